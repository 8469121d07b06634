package org.pellucid.spark.shuffle;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import org.apache.spark.storage.RDDInfo;
import org.apache.spark.storage.StorageLevel;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.core.Controller;
import org.pellucid.spark.core.Cores;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.Policy;
import org.pellucid.spark.io.Disks;
import org.pellucid.spark.io.FileIo;
import org.pellucid.spark.io.FileTotals;

/** Reading shuffle blocks ahead, and the stages for which that is done. */
class ShuffleReadsTest {
    private static final int PARTITIONS = 10;
    private static final int BLOCK = 1000;

    @TempDir
    Path folder;
    private final Failsafe failsafe = new Failsafe(Set.of(), () -> { });
    private final FileTotals totals = new FileTotals();

    private FileIo disks() {
        List<String> both = List.of(folder.resolve("a").toString(), folder.resolve("b").toString());
        Disks disks = new Disks(both, 4, () -> Controller.ofMonotasks(Policy.THROUGHPUT, 1, 4, 0.07), (name, disk) -> { });
        return new FileIo(failsafe, totals, new Cores(2, Long.MAX_VALUE), disks, () -> 8);
    }

    /** Writes a map task's output of {@code blocks} blocks of 1,000 bytes each. */
    private File output(String disk, int map, int blocks) throws IOException {
        Path place = Files.createDirectories(folder.resolve(disk));
        ByteBuffer offsets = ByteBuffer.allocate((blocks + 1) * Long.BYTES);
        for (int i = 0; i <= blocks; i++) {
            offsets.putLong((long) i * BLOCK);
        }
        Files.write(place.resolve("shuffle_0_" + map + "_0.index"), offsets.array());
        return Files.write(place.resolve("shuffle_0_" + map + "_0.data"), new byte[blocks * BLOCK]).toFile();
    }

    private Map<File, File> outputs() throws IOException {
        Map<File, File> files = new LinkedHashMap<>();
        for (int map = 0; map < 6; map++) {
            put(files, output(map % 2 == 0 ? "a" : "b", map, PARTITIONS));
        }
        return files;
    }

    private static void put(Map<File, File> files, File data) {
        files.put(data, new File(data.getPath().replace(".data", ".index")));
    }

    /** Returns a clock by which every read takes this long. */
    private static LongSupplier taking(long ns) {
        AtomicLong now = new AtomicLong();
        return () -> now.addAndGet(ns);
    }

    private static void assertNothingHeld(FileIo io, Map<File, File> files) {
        for (File file : files.keySet()) {
            assertEquals(0, io.queueOf(file).running() + io.queueOf(file).waiting());
        }
    }

    @Test
    void slowBlocksAreReadAheadForNextPartitions() throws Exception {
        FileIo io = disks();
        Map<File, File> files = outputs();
        ShuffleReads reads = new ShuffleReads(io, files, PARTITIONS, 4, taking(7_000_000));
        reads.fetch(1, () -> false);
        assertEquals(6 * 4 * BLOCK, totals.shuffleReadBytes(), "partitions 1 to 4");
        assertFalse(reads.cached(1));
        reads.fetch(PARTITIONS - 1, () -> false);
        assertEquals(6 * 5 * BLOCK, totals.shuffleReadBytes(), "no partition follows the last");
        reads.fetch(PARTITIONS, () -> false);
        assertEquals(6 * 5 * BLOCK, totals.shuffleReadBytes(), "an invalid partition reads nothing");
        assertEquals(0, totals.readBytes(), "not counted as input");
        for (File file : files.keySet()) {
            assertEquals(1, io.queueOf(file).peak());
        }
        assertNothingHeld(io, files);
    }

    @Test
    void cachedBlocksAreNotReadAgain() throws Exception {
        FileIo io = disks();
        Map<File, File> files = outputs();
        ShuffleReads reads = new ShuffleReads(io, files, PARTITIONS, 4, taking(20_000));
        assertFalse(reads.cached(0), "offsets are not loaded yet");
        reads.fetch(0, () -> false);
        assertTrue(reads.cached(0) && reads.cached(9));
        assertEquals(0, totals.shuffleReadBytes());
        // Cached blocks need no turn: this works while another task holds the disk.
        DiskQueue disk = io.queueOf(files.keySet().iterator().next());
        try (DiskQueue.Turn other = disk.acquire(DiskQueue.Phase.WRITE, () -> false)) {
            reads.fetch(5, () -> false);
        }
        assertNothingHeld(io, files);
    }

    @Test
    void concurrentTasksAllReturn() throws Exception {
        FileIo io = disks();
        Map<File, File> files = outputs();
        ShuffleReads reads = new ShuffleReads(io, files, PARTITIONS, 3, taking(400_000));
        AtomicInteger returned = new AtomicInteger();
        List<Thread> tasks = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            int own = partition;
            tasks.add(new Thread(() -> {
                reads.fetch(own, () -> own == 4);
                returned.incrementAndGet();
            }));
        }
        tasks.forEach(Thread::start);
        for (Thread task : tasks) {
            task.join(60_000);
        }
        assertEquals(PARTITIONS, returned.get());
        assertNothingHeld(io, files);
    }

    @Test
    void missingAndMismatchedFilesAreSkipped() throws Exception {
        FileIo io = disks();
        Map<File, File> files = outputs();
        put(files, output("a", 100, PARTITIONS + 1));
        File gone = output("a", 101, PARTITIONS);
        put(files, gone);
        Files.delete(gone.toPath());
        File alone = output("b", 102, PARTITIONS);
        put(files, alone);
        Files.delete(files.get(alone).toPath());
        new ShuffleReads(io, files, PARTITIONS, PARTITIONS, taking(7_000_000)).fetch(0, () -> false);
        assertEquals(6L * PARTITIONS * BLOCK, totals.shuffleReadBytes());
        assertFalse(failsafe.isTripped());
    }

    @Test
    void killedTaskLeavesQueue() throws Exception {
        FileIo io = disks();
        Map<File, File> files = outputs();
        ShuffleReads reads = new ShuffleReads(io, files, PARTITIONS, PARTITIONS, taking(7_000_000));
        AtomicBoolean killed = new AtomicBoolean();
        DiskQueue disk = io.queueOf(files.keySet().iterator().next());
        try (DiskQueue.Turn other = disk.acquire(DiskQueue.Phase.WRITE, () -> false)) {
            Thread task = new Thread(() -> reads.fetch(0, killed::get));
            task.start();
            while (disk.waiting() == 0) {
                Thread.onSpinWait();
            }
            killed.set(true);
            task.interrupt();
            task.join(60_000);
            assertFalse(task.isAlive());
        }
        assertEquals(0, totals.shuffleReadBytes());
        assertNothingHeld(io, files);
    }

    @Test
    void blocksTooLargeForCacheAreNotReadAhead() throws Exception {
        FileIo io = disks();
        File file = output("a", 0, PARTITIONS);
        try (RandomAccessFile sparse = new RandomAccessFile(file, "rw")) {
            sparse.setLength(PARTITIONS * (200L << 20));
        }
        Map<File, File> files = new LinkedHashMap<>();
        put(files, file);
        ShuffleReads reads = new ShuffleReads(io, files, PARTITIONS, PARTITIONS, taking(7_000_000));
        reads.fetch(0, () -> false);
        assertTrue(reads.cached(0));
        assertEquals(0, totals.shuffleReadBytes());
    }

    private static RDDInfo rdd(StorageLevel level) {
        return new RDDInfo(1, "ShuffledRowRDD", 8, level, false, null, "", scala.Option.empty(), null);
    }

    @Test
    void onlySimpleStagesListTheirShuffles() {
        List<RDDInfo> plain = List.of(rdd(StorageLevel.NONE()));
        assertArrayEquals(new String[] {"8", "3", "4"}, StageShuffles.answer(8, List.of(3, 4), plain));
        assertArrayEquals(new String[] {"8"}, StageShuffles.answer(8, List.of(), plain));
        List<RDDInfo> persisted = List.of(rdd(StorageLevel.NONE()), rdd(StorageLevel.MEMORY_ONLY()));
        assertArrayEquals(new String[] {"8"}, StageShuffles.answer(8, List.of(3), persisted));
        assertArrayEquals(new String[] {"8"}, StageShuffles.answer(8, Arrays.asList(3, null), plain));
    }
}
