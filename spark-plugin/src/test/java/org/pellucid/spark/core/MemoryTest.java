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

/** Lookups in the driver's memory, and its file. */
class MemoryTest {
    private static final OptionalInt NOT_FOUND = OptionalInt.empty();
    private final Memory memory = new Memory();

    private static Memory.StageKey stage(String site, int tasks) {
        return new Memory.StageKey(site, tasks);
    }

    @Test
    void findTriesExecutorThenHostForSamePowerOfTwo() {
        memory.learn(stage("scan", 200), "a", "1", 4);
        memory.learn(stage("scan", 200), "a", "2", 16);
        assertEquals(OptionalInt.of(4), memory.find(stage("scan", 130), "a", "1", false));
        assertEquals(OptionalInt.of(16), memory.find(stage("scan", 200), "a", "3", false));
        assertEquals(NOT_FOUND, memory.find(stage("scan", 200), "b", "1", false));
        assertEquals(NOT_FOUND, memory.find(stage("sort", 200), "a", "1", false));
        assertEquals(NOT_FOUND, memory.find(stage("scan", 300), "a", "1", false));
        assertEquals(OptionalInt.of(4), memory.find(stage("scan", 5), "a", "1", true));
    }

    @Test
    void savedMemoryIsLoadedByNextApplication(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("memory.tsv");
        memory.load(file);
        memory.learn(stage("a\tsite\nof two lines", 10), "host", "1", Memory.ALL);
        memory.save(file);
        assertArrayEquals(new String[] {"memory.tsv"}, folder.toFile().list(), "no temporary file is left");
        Memory next = new Memory();
        next.load(file);
        assertEquals(OptionalInt.of(Memory.ALL), next.find(stage("a\tsite\nof two lines", 9), "host", "1", false));
        Files.writeString(file, "4\ta\t1\tb\nnot an entry\n");
        String message = assertThrows(IOException.class, () -> next.load(file)).getMessage();
        assertTrue(message.contains("line 2"), message);
        assertEquals(NOT_FOUND, next.find(stage("b", 1), "a", "1", false), "an invalid file is rejected as a whole");
    }

    @Test
    void oldestEntriesAreEvicted() {
        for (int site = 0; site < 10_000; site++) {
            memory.learn(stage("site " + site, 1), "host", "1", 4);
        }
        assertEquals(NOT_FOUND, memory.find(stage("site 0", 1), "host", "1", true));
        assertEquals(OptionalInt.of(4), memory.find(stage("site 9999", 1), "host", "1", false));
    }
}
