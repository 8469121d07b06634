package org.pellucid.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class BoundedMapTest {
    @Test
    void keepsWhatWasAskedForLast() {
        BoundedMap<Integer, String> latest = new BoundedMap<>(3);
        for (int stage = 0; stage < 3; stage++) {
            latest.put(stage, "of " + stage);
        }
        latest.computeIfAbsent(0, key -> "made anew");
        latest.computeIfAbsent(3, key -> "of 3");
        assertEquals(List.of(2, 0, 3), new ArrayList<>(latest.keySet()));
        assertEquals("of 0", latest.get(0));
    }
}
