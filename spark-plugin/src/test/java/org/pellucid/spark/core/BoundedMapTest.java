package org.pellucid.spark.core;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The entries that a full map evicts. */
class BoundedMapTest {
    @Test
    void keepsMostRecentlyUsedEntries() {
        BoundedMap<Integer, String> map = new BoundedMap<>(3);
        for (int stage = 0; stage < 3; stage++) {
            map.put(stage, "of " + stage);
        }
        map.computeIfAbsent(0, key -> "new");
        map.computeIfAbsent(3, key -> "of 3");
        assertEquals(List.of(2, 0, 3), new ArrayList<>(map.keySet()));
        assertEquals("of 0", map.get(0));
    }
}
