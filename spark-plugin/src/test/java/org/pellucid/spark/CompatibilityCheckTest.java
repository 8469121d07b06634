package org.pellucid.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class CompatibilityCheckTest {
    private static final String US = "org.pellucid.spark.PellucidPlugin";

    @Test
    void nothingIsSaidOfWhatWasTested() {
        for (String version : new String[] {"3.5.0", "3.5.9", "4.0.1", "4.3.0", "4.3.1-SNAPSHOT"}) {
            assertEquals(List.of(), CompatibilityCheck.of(version, "sort", US), version);
        }
        assertEquals(List.of(), CompatibilityCheck.of("4.3.0", "org.apache.spark.shuffle.sort.SortShuffleManager", " " + US));
    }

    @Test
    void anythingElseIsOneLineThatNamesIt() {
        for (String version : new String[] {"2.4.8", "3.3.2", "3.50.1", "4.1.0", "4.4.0", "5.0.0"}) {
            List<String> said = CompatibilityCheck.of(version, "sort", US);
            assertEquals(1, said.size(), version);
            assertTrue(said.get(0).endsWith("not with " + version), said.get(0));
        }
        List<String> said = CompatibilityCheck.of("5.0.0", "com.example.Shuffle", US + ",com.example.Plugin");
        assertEquals(3, said.size());
        assertTrue(said.get(1).contains("spark.shuffle.manager=com.example.Shuffle"), said.get(1));
        assertTrue(said.get(2).contains("com.example.Plugin"), said.get(2));
    }
}
