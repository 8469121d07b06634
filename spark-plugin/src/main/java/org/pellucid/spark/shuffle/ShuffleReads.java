package org.pellucid.spark.shuffle;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.DiskQueue.Phase;
import org.pellucid.spark.io.FileIo;

/**
 * The blocks of one shuffle on this executor's disks that one stage's tasks read. They are read into the
 * page cache as disk monotasks (Monotasks, SOSP '17, §3.2) before the tasks compute.
 *
 * <p>A map task's file has one block per reduce task, in order. Reduce tasks that read their blocks
 * themselves, from one file after another, cost a seek for nearly every block, and blocks are small. But
 * neighbouring partitions are adjacent in every file, and Spark starts their tasks together. So a task whose
 * blocks are on the disk also reads those of the following tasks, as many as run at once, in one monotask per
 * disk. (The paper leaves small monotasks to future work: footnote 1.)
 *
 * <p>This is an optimisation only: Spark reads the same bytes afterwards. A few probes tell whether the
 * blocks are in the page cache; if so, nothing is read and no task queues. A block that arrives within two
 * milliseconds needs no seek, so nothing is read either. A file that cannot be read is skipped, and Spark
 * reports the error.
 */
public final class ShuffleReads {
    /** Bytes to read ahead, which stay in the page cache until their tasks have read them. */
    private static final long MAX_AHEAD_BYTES = 128L << 20;
    private static final int PIECE_BYTES = 256 << 10;
    /** Blocks to probe per task and disk. */
    private static final int MAX_PROBES = 8;
    private static final int PROBE_BYTES = 4096;
    /** Longer than a read from the page cache or from a disk without seeks; half of a typical seek. */
    private static final long UNCACHED_NS = TimeUnit.MILLISECONDS.toNanos(2);

    private final FileIo io;
    private final LongSupplier clock;
    private final int partitions;
    /** Neighbouring partitions that are read together; 0 if even one is too large. */
    private final int batch;
    private final List<DiskFiles> disks = new ArrayList<>();

    private static final class DiskFiles {
        final DiskQueue queue;
        final List<File> files = new ArrayList<>();
        final List<File> indices = new ArrayList<>();
        /** Offsets of each file's blocks, and the end of the last. Null until loaded; an entry is null if unreadable. */
        private volatile long[][] offsets;

        DiskFiles(DiskQueue queue) {
            this.queue = queue;
        }

        /** Loads the offsets once. Call only while holding a turn of the disk. */
        synchronized long[][] loadOffsets(int partitions) {
            if (offsets == null) {
                long[][] found = new long[files.size()][];
                for (int i = 0; i < found.length; i++) {
                    found[i] = offsetsOf(indices.get(i), partitions);
                }
                offsets = found;
            }
            return offsets;
        }
    }

    /**
     * @param files data files of map tasks that ran here, each with its index file
     * @param partitions partitions of the shuffle; files with another number of blocks are skipped
     * @param max tasks of the stage that this executor runs at once
     * @param clock nanoseconds, as {@link System#nanoTime}
     */
    ShuffleReads(FileIo io, Map<File, File> files, int partitions, int max, LongSupplier clock) {
        this.io = io;
        this.clock = clock;
        this.partitions = partitions;
        Map<DiskQueue, DiskFiles> byQueue = new LinkedHashMap<>();
        long bytes = 0;
        for (Map.Entry<File, File> file : files.entrySet()) {
            DiskQueue queue = io.queueOf(file.getKey());
            if (queue != null) {
                DiskFiles disk = byQueue.computeIfAbsent(queue, DiskFiles::new);
                disk.files.add(file.getKey());
                disk.indices.add(file.getValue());
                bytes += file.getKey().length();
            }
        }
        disks.addAll(byQueue.values());
        long each = Math.max(bytes / Math.max(partitions, 1), 1);
        batch = (int) Math.min(MAX_AHEAD_BYTES / each, max);
    }

    /** Brings the partition's blocks into the page cache, as far as possible. */
    void fetch(int partition, BooleanSupplier killed) {
        if (batch == 0 || partition < 0 || partition >= partitions) {
            return;
        }
        for (int i = 0; i < disks.size(); i++) {
            // Tasks that start together start with different disks.
            DiskFiles disk = disks.get((partition + i) % disks.size());
            if (!killed.getAsBoolean() && !cached(disk, partition)) {
                try (FileIo.Access access = io.begin(disk.queue, Phase.SHUFFLE_READ)) {
                    if (killed.getAsBoolean() || Thread.currentThread().isInterrupted()) {
                        return;
                    }
                    disk.loadOffsets(partitions);
                    if (!cached(disk, partition)) { // another task may have read them while this one waited
                        access.moved(read(disk, partition, Math.min(partition + batch, partitions)));
                    }
                }
            }
        }
    }

    /** Probes a few bytes of the partition's blocks; returns true if they are cached or arrive as fast. */
    public boolean cached(int partition) {
        if (batch == 0 || partition < 0 || partition >= partitions) {
            return true;
        }
        for (DiskFiles disk : disks) {
            if (!cached(disk, partition)) {
                return false;
            }
        }
        return true;
    }

    private boolean cached(DiskFiles disk, int partition) {
        long[][] offsets = disk.offsets;
        if (offsets == null) {
            return false;
        }
        ByteBuffer probe = ByteBuffer.allocate(PROBE_BYTES);
        int step = Math.max(offsets.length / MAX_PROBES, 1);
        // Each partition probes different files.
        for (int i = partition % step; i < offsets.length; i += step) {
            if (offsets[i] != null) {
                // Probe the block's end, because reading the previous block may have triggered read-ahead into its start.
                long end = offsets[i][partition + 1];
                long from = clock.getAsLong();
                read(disk.files.get(i), Math.max(end - PROBE_BYTES, offsets[i][partition]), end, probe);
                if (clock.getAsLong() - from > UNCACHED_NS) {
                    return false;
                }
            }
        }
        return true;
    }

    private static long read(DiskFiles disk, int first, int end) {
        ByteBuffer piece = ByteBuffer.allocate(PIECE_BYTES);
        long[][] offsets = disk.offsets;
        long moved = 0;
        for (int i = 0; i < offsets.length; i++) {
            if (offsets[i] != null) {
                moved += read(disk.files.get(i), offsets[i][first], offsets[i][end], piece);
            }
        }
        return moved;
    }

    private static long read(File file, long begin, long end, ByteBuffer piece) {
        long at = begin;
        if (begin < end) {
            try (FileChannel channel = FileChannel.open(file.toPath())) {
                int count = 0;
                while (at < end && count >= 0) {
                    piece.clear().limit((int) Math.min(piece.capacity(), end - at));
                    count = channel.read(piece, at);
                    at += Math.max(count, 0);
                }
            } catch (IOException e) {
                // Deleted or unreadable; Spark reports it.
            }
        }
        return at - begin;
    }

    /** Reads block offsets from Spark's index file; returns null if it is missing or has another number of blocks. */
    private static long[] offsetsOf(File index, int partitions) {
        try {
            ByteBuffer content = ByteBuffer.wrap(Files.readAllBytes(index.toPath()));
            if (content.remaining() != (partitions + 1) * Long.BYTES) {
                return null;
            }
            long[] offsets = new long[partitions + 1];
            content.asLongBuffer().get(offsets);
            return offsets;
        } catch (IOException e) {
            return null;
        }
    }
}
