package org.pellucid.spark.io;

import java.io.File;
import java.util.function.IntSupplier;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.core.Cores;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.DiskQueue.Phase;
import org.pellucid.spark.metrics.TaskMeter;
import org.pellucid.spark.metrics.ThreadClock;

/**
 * Wraps every access to a file: reads the clocks, and in {@code monotasks} mode queues for the disk with the
 * task's core released meanwhile. A thread never holds a core and a disk at once.
 *
 * <p>There is one instance per process, because Hadoop creates its file systems itself.
 */
public final class FileIo {
    /** The first fill of a gated stream's buffer: a spinning disk reads this much in the time of one seek. */
    static final int FIRST_FILL_BYTES = 1 << 20;
    /** Later fills: the seek takes a tenth of the time. */
    private static final int MAX_FILL_BYTES = 8 << 20;
    static final long NO_STAGE = -1;

    private static volatile FileIo installed;

    final Failsafe failsafe;
    private final FileTotals totals;
    private final Cores cores;
    private final Disks disks;
    private final IntSupplier tasks;
    /** The stage whose last stream read past its first fill. Unsynchronised readers see an old value at worst. */
    volatile long sequentialStage = NO_STAGE;

    /** Creates an instance that only measures. */
    public FileIo(Failsafe failsafe, FileTotals totals) {
        this(failsafe, totals, null, null, () -> 1);
    }

    /**
     * Creates an instance that queues for disks.
     *
     * @param tasks the number of tasks that run at once
     */
    public FileIo(Failsafe failsafe, FileTotals totals, Cores cores, Disks disks, IntSupplier tasks) {
        this.failsafe = failsafe;
        this.totals = totals;
        this.cores = cores;
        this.disks = disks;
        this.tasks = tasks;
    }

    /** Returns how much a gated stream may hold, so that all tasks together hold an eighth of the heap. */
    int maxFillBytes() {
        long share = Runtime.getRuntime().maxMemory() / 8 / tasks.getAsInt();
        return (int) Math.max(Math.min(share, MAX_FILL_BYTES), FIRST_FILL_BYTES);
    }

    /** Installs this process's instance; null to remove it. */
    public static void install(FileIo io) {
        installed = io;
    }

    /** Returns the installed instance; null if there is none or the plugin is off. */
    public static FileIo installed() {
        FileIo io = installed;
        return io == null || io.failsafe.isTripped() ? null : io;
    }

    /** Returns the queue of the file's disk; null if the disk or the calling task is not gated. */
    public DiskQueue queueOf(File file) {
        DiskQueue[] found = new DiskQueue[1];
        TaskMeter task = TaskMeter.current();
        if (disks != null && (task == null || !task.ungated)) {
            failsafe.guard("disks", () -> found[0] = disks.of(file));
        }
        return found[0];
    }

    /** One access to a file, from admission to {@link #close}. Never throws. */
    public final class Access implements AutoCloseable {
        private final Phase phase;
        private final TaskMeter task = TaskMeter.current();
        private DiskQueue.Turn turn;
        private boolean releasedCore;
        private long startNs;
        private long startCpuNs;
        private long bytes;

        private Access(Phase phase) {
            this.phase = phase;
        }

        /** Records that the access succeeded and moved this many bytes. */
        public void moved(long count) {
            bytes = Math.max(count, 0);
            if (turn != null) {
                turn.moved(bytes);
            }
        }

        @Override
        public void close() {
            long tookNs = System.nanoTime() - startNs;
            if (turn != null) {
                try {
                    turn.close();
                } catch (RuntimeException e) {
                    failsafe.trip("disk", e);
                }
            }
            failsafe.guard(partName(), () -> record(tookNs));
            if (releasedCore) {
                failsafe.guard("core", () -> queued(() -> cores.acquire(task.cores, task::killed)));
            }
        }

        private void releaseCore() {
            if (task != null && cores.held()) {
                releasedCore = true;
                cores.release();
            }
        }

        private void enter(DiskQueue disk) throws Exception {
            releaseCore();
            queued(() -> turn = disk.acquire(phase, () -> task != null && task.killed()));
            if (task != null && turn != null) {
                task.diskPermits(turn.permits());
            }
        }

        private void queued(Failsafe.Part part) throws Exception {
            long from = System.nanoTime();
            try {
                part.run();
            } finally {
                if (task != null) {
                    task.queued(System.nanoTime() - from);
                }
            }
        }

        private String partName() {
            return phase == Phase.WRITE ? "write" : "read";
        }

        private void record(long tookNs) {
            if (phase == Phase.SHUFFLE_READ) {
                totals.readShuffle(bytes);
            } else {
                // Computing on this thread, such as copying from the page cache, is not wait.
                recordFile(Math.max(tookNs - (ThreadClock.cpu() - startCpuNs), 0));
            }
        }

        private void recordFile(long waitNs) {
            // Without a task the access counts for the process only.
            if (phase == Phase.READ) {
                totals.read(bytes, waitNs);
                if (task != null) {
                    task.read(bytes, waitNs);
                }
            } else {
                totals.wrote(bytes, waitNs);
                if (task != null) {
                    task.wrote(bytes, waitNs);
                }
            }
        }
    }

    /**
     * Starts an access, waiting for the disk if it is gated. The caller closes it afterwards.
     *
     * @param disk the disk's queue; null if it is not gated
     */
    public Access begin(DiskQueue disk, Phase phase) {
        Access access = new Access(phase);
        if (disk != null) {
            failsafe.guard("disk", () -> access.enter(disk));
        }
        return start(access);
    }

    /** Like {@link #begin}, but without queueing: for metadata operations, which wait for a disk but move little. */
    Access beginUnqueued(Phase phase) {
        Access access = new Access(phase);
        if (cores != null) {
            failsafe.guard("core", access::releaseCore);
        }
        return start(access);
    }

    private Access start(Access access) {
        failsafe.guard(access.partName(), () -> access.startCpuNs = ThreadClock.cpu());
        access.startNs = System.nanoTime();
        return access;
    }
}
