package org.pellucid.spark;

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

/**
 * The blocks that one stage's tasks read of one shuffle, on this executor's disks: read as disk
 * monotasks (Monotasks, SOSP '17, §3.2) into the page cache, before the tasks compute.
 *
 * <p>A map task's file has a block for each reduce task, in their order. Reduce tasks that read
 * their blocks by themselves, one after another from every file, make a disk position for nearly
 * every block, and blocks are small. But partitions beside each other lie beside each other in every
 * file, and Spark hands out their tasks together. So a task whose blocks come from the disk reads those of
 * the tasks after it as well, as many as run at once, in one monotask a disk. (The paper leaves
 * small monotasks to future work: its footnote 1.)
 *
 * <p>Nothing depends on it: Spark reads the same bytes afterwards, as it always does. A few blocks
 * tell whether they are in the page cache: then nothing is read, and nobody queues. Where a block comes
 * from the disk within two milliseconds there is no head to be moved, and nothing is read either. A file
 * that cannot be read is passed over: Spark will say so.
 */
final class ShuffleReads {
    /** Of blocks, which lie in the page cache until their tasks have read them. */
    private static final long MAX_AHEAD_BYTES = 128L << 20;
    private static final int PIECE_BYTES = 256 << 10;
    /** Blocks of a task on a disk that are looked at. */
    private static final int LOOKS = 8;
    private static final int LOOK_BYTES = 4096;
    /** Longer than from the page cache, and than from a disk without a head; half of what a position takes. */
    private static final long LONG_NS = TimeUnit.MILLISECONDS.toNanos(2);

    private final FileIo io;
    private final LongSupplier clock;
    private final int partitions;
    /** Partitions beside each other that are read together; 0: not even one is. */
    private final int together;
    private final List<OfDisk> disks = new ArrayList<>();

    private static final class OfDisk {
        final DiskQueue queue;
        final List<File> files = new ArrayList<>();
        final List<File> indices = new ArrayList<>();
        /** Of each file, where its blocks begin, and where the last ends; null before, and where it cannot be told. */
        private volatile long[][] offsets;

        OfDisk(DiskQueue queue) {
            this.queue = queue;
        }

        /** Where the disk may be read. */
        synchronized long[][] learn(int partitions) {
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
     * @param files what map tasks wrote here: data files, and the index of each
     * @param partitions of the shuffle; files of as many blocks are read, and no others
     * @param most tasks of the stage that this executor runs at once
     * @param clock nanoseconds, as {@link System#nanoTime}
     */
    ShuffleReads(FileIo io, Map<File, File> files, int partitions, int most, LongSupplier clock) {
        this.io = io;
        this.clock = clock;
        this.partitions = partitions;
        Map<DiskQueue, OfDisk> byQueue = new LinkedHashMap<>();
        long bytes = 0;
        for (Map.Entry<File, File> file : files.entrySet()) {
            DiskQueue queue = io.queueOf(file.getKey());
            if (queue != null) {
                OfDisk disk = byQueue.computeIfAbsent(queue, OfDisk::new);
                disk.files.add(file.getKey());
                disk.indices.add(file.getValue());
                bytes += file.getKey().length();
            }
        }
        disks.addAll(byQueue.values());
        long each = Math.max(bytes / Math.max(partitions, 1), 1);
        together = (int) Math.min(MAX_AHEAD_BYTES / each, most);
    }

    /** Has this partition's blocks in the page cache, as far as can be told. */
    void fetch(int partition, BooleanSupplier killed) {
        if (together == 0 || partition < 0 || partition >= partitions) {
            return;
        }
        for (int i = 0; i < disks.size(); i++) {
            // Tasks that begin together begin with different disks.
            OfDisk disk = disks.get((partition + i) % disks.size());
            if (!killed.getAsBoolean() && !there(disk, partition)) {
                try (FileIo.Access access = io.begin(disk.queue, Phase.SHUFFLE_READ)) {
                    if (killed.getAsBoolean() || Thread.currentThread().isInterrupted()) {
                        return;
                    }
                    disk.learn(partitions);
                    if (!there(disk, partition)) { // another task may have read them meanwhile
                        access.moved(read(disk, partition, Math.min(partition + together, partitions)));
                    }
                }
            }
        }
    }

    /** Whether this partition's blocks seem to be in the page cache, or come as fast; asks for a few of their bytes. */
    boolean there(int partition) {
        if (together == 0 || partition < 0 || partition >= partitions) {
            return true;
        }
        for (OfDisk disk : disks) {
            if (!there(disk, partition)) {
                return false;
            }
        }
        return true;
    }

    private boolean there(OfDisk disk, int partition) {
        long[][] offsets = disk.offsets;
        if (offsets == null) {
            return false;
        }
        ByteBuffer look = ByteBuffer.allocate(LOOK_BYTES);
        int step = Math.max(offsets.length / LOOKS, 1);
        // Of other files for each partition.
        for (int i = partition % step; i < offsets.length; i += step) {
            if (offsets[i] != null) {
                // Of their ends: who read the block before read on by itself.
                long end = offsets[i][partition + 1];
                long from = clock.getAsLong();
                read(disk.files.get(i), Math.max(end - LOOK_BYTES, offsets[i][partition]), end, look);
                if (clock.getAsLong() - from > LONG_NS) {
                    return false;
                }
            }
        }
        return true;
    }

    private static long read(OfDisk disk, int first, int end) {
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
                // Deleted meanwhile, or broken: Spark's to say.
            }
        }
        return at - begin;
    }

    /** As Spark's index file says; null where it is of another number of blocks, or there is none. */
    private static long[] offsetsOf(File index, int partitions) {
        try {
            ByteBuffer said = ByteBuffer.wrap(Files.readAllBytes(index.toPath()));
            if (said.remaining() != (partitions + 1) * Long.BYTES) {
                return null;
            }
            long[] offsets = new long[partitions + 1];
            said.asLongBuffer().get(offsets);
            return offsets;
        } catch (IOException e) {
            return null;
        }
    }
}
