package org.pellucid.spark.core;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.OptionalInt;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MemoryTest {
    private static final OptionalInt NOTHING = OptionalInt.empty();
    private final Memory memory = new Memory();

    private static Memory.Like like(String site, int tasks) {
        return new Memory.Like(site, tasks);
    }

    @Test
    void byExecutorThenByHostAndOfThePowerOfTwo() {
        memory.learn(like("scan", 200), "a", "1", 4);
        memory.learn(like("scan", 200), "a", "2", 16);
        assertEquals(OptionalInt.of(4), memory.find(like("scan", 130), "a", "1", false));
        assertEquals(OptionalInt.of(16), memory.find(like("scan", 200), "a", "3", false));
        assertEquals(NOTHING, memory.find(like("scan", 200), "b", "1", false));
        assertEquals(NOTHING, memory.find(like("sort", 200), "a", "1", false));
        assertEquals(NOTHING, memory.find(like("scan", 300), "a", "1", false));
        assertEquals(OptionalInt.of(4), memory.find(like("scan", 5), "a", "1", true));
    }

    @Test
    void outlivesTheApplication(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("memory.tsv");
        memory.load(file);
        memory.learn(like("a\tsite\nof two lines", 10), "host", "1", Memory.ALL);
        memory.save(file);
        assertArrayEquals(new String[] {"memory.tsv"}, folder.toFile().list(), "and nothing beside it");
        Memory next = new Memory();
        next.load(file);
        assertEquals(OptionalInt.of(Memory.ALL), next.find(like("a\tsite\nof two lines", 9), "host", "1", false));
        Files.writeString(file, "4\ta\t1\tb\nwhat is this\n");
        String said = assertThrows(IOException.class, () -> next.load(file)).getMessage();
        assertTrue(said.contains("line 2"), said);
        assertEquals(NOTHING, next.find(like("b", 1), "a", "1", false), "all of a file, or nothing");
    }

    @Test
    void isBounded() {
        for (int site = 0; site < 10_000; site++) {
            memory.learn(like("site " + site, 1), "host", "1", 4);
        }
        assertEquals(NOTHING, memory.find(like("site 0", 1), "host", "1", true));
        assertEquals(OptionalInt.of(4), memory.find(like("site 9999", 1), "host", "1", false));
    }
}
