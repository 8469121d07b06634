package org.pellucid.spark.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.pellucid.spark.PellucidPlugin;

/** Warnings about setups that were not tested. */
class CompatibilityCheckTest {
    private static final String US = PellucidPlugin.class.getName();

    @Test
    void testedSetupGivesNoWarning() {
        for (String version : new String[] {"3.5.0", "3.5.9", "4.0.1", "4.3.0", "4.3.1-SNAPSHOT"}) {
            assertEquals(List.of(), CompatibilityCheck.of(version, "sort", US), version);
        }
        assertEquals(List.of(), CompatibilityCheck.of("4.3.0", "org.apache.spark.shuffle.sort.SortShuffleManager", " " + US));
    }

    @Test
    void untestedPartGivesOneWarningThatNamesIt() {
        for (String version : new String[] {"2.4.8", "3.3.2", "3.50.1", "4.1.0", "4.4.0", "5.0.0"}) {
            List<String> warnings = CompatibilityCheck.of(version, "sort", US);
            assertEquals(1, warnings.size(), version);
            assertTrue(warnings.get(0).endsWith("not with " + version), warnings.get(0));
        }
        List<String> warnings = CompatibilityCheck.of("5.0.0", "com.example.Shuffle", US + ",com.example.Plugin");
        assertEquals(3, warnings.size());
        assertTrue(warnings.get(1).contains("spark.shuffle.manager=com.example.Shuffle"), warnings.get(1));
        assertTrue(warnings.get(2).contains("com.example.Plugin"), warnings.get(2));
    }
}
