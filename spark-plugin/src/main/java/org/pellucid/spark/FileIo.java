package org.pellucid.spark;

import java.io.File;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.IntSupplier;
import org.pellucid.spark.core.Cores;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.DiskQueue.Phase;

/**
 * What stands round every access to a file: the clock, and in the {@code monotasks} mode the
 * disk's queue, with the task's core given back meanwhile. A thread never holds both.
 *
 * <p>One a process, because Hadoop makes its file systems itself.
 */
final class FileIo {
    /** The first fill of a gated stream's buffer: a spinning disk reads as much in the time of a position. */
    static final int FIRST_FILL_BYTES = 1 << 20;
    /** A later one: the position is a tenth of it. */
    private static final int MAX_FILL_BYTES = 8 << 20;
    static final long NO_STAGE = -1;

    private static volatile FileIo installed;

    final LongAdder readBytes = new LongAdder();
    final LongAdder writeBytes = new LongAdder();
    final LongAdder readWaitNs = new LongAdder();
    final LongAdder writeWaitNs = new LongAdder();
    /** Of shuffle files, in monotasks of their own. */
    final LongAdder shuffleReadBytes = new LongAdder();

    final Failsafe fuse;
    final Cores cores;
    private final Disks disks;
    private final IntSupplier tasks;
    /** The stage whose last stream was read on past its first fill; whoever looks sees an old one at worst. */
    volatile long readOnStage = NO_STAGE;

    /**
     * Measures alone where there are neither cores nor disks.
     *
     * @param tasks that run at once
     */
    FileIo(Failsafe fuse, Cores cores, Disks disks, IntSupplier tasks) {
        this.fuse = fuse;
        this.cores = cores;
        this.disks = disks;
        this.tasks = tasks;
    }

    /** That a gated stream may hold: of all tasks an eighth of the heap. */
    int mostFillBytes() {
        long share = Runtime.getRuntime().maxMemory() / 8 / tasks.getAsInt();
        return (int) Math.max(Math.min(share, MAX_FILL_BYTES), FIRST_FILL_BYTES);
    }

    /** Null: from now on none. */
    static void install(FileIo io) {
        installed = io;
    }

    /** Null where the plugin is not there, or is off. */
    static FileIo installed() {
        FileIo io = installed;
        return io == null || io.fuse.isBlown() ? null : io;
    }

    /** The queue of the file's disk; null: not gated, as nothing is of a task that is let through. */
    DiskQueue queueOf(File file) {
        DiskQueue[] found = new DiskQueue[1];
        TaskMeter task = TaskMeter.current();
        if (disks != null && (task == null || !task.ungated)) {
            fuse.guard("disks", () -> found[0] = disks.of(file));
        }
        return found[0];
    }

    /** One access, from when it may begin to {@link #close}. Fails in nothing. */
    final class Access implements AutoCloseable {
        private final Phase phase;
        private final TaskMeter task = TaskMeter.current();
        private DiskQueue.Turn turn;
        private boolean gaveCore;
        private long startNs;
        private long startCpuNs;
        private long bytes;

        private Access(Phase phase) {
            this.phase = phase;
        }

        /** It went well and moved so many bytes. */
        void moved(long count) {
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
                    fuse.blow("disk", e);
                }
            }
            fuse.guard(part(), () -> count(tookNs));
            if (gaveCore) {
                fuse.guard("core", () -> queued(() -> cores.acquire(task.cores, task::killed)));
            }
        }

        private void giveCore() {
            if (task != null && cores.held()) {
                gaveCore = true;
                cores.release();
            }
        }

        private void enter(DiskQueue disk) throws Exception {
            giveCore();
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

        private String part() {
            return phase == Phase.WRITE ? "write" : "read";
        }

        private void count(long tookNs) {
            if (phase == Phase.SHUFFLE_READ) {
                shuffleReadBytes.add(bytes);
            } else {
                // What its thread computed meanwhile, copying from the page cache, is no wait.
                countFile(Math.max(tookNs - (ThreadClock.cpu() - startCpuNs), 0));
            }
        }

        private void countFile(long waitNs) {
            boolean read = phase == Phase.READ;
            (read ? readBytes : writeBytes).add(bytes);
            (read ? readWaitNs : writeWaitNs).add(waitNs);
            if (task == null) {
                return; // of the process, of no task
            }
            if (read) {
                task.read(bytes, waitNs);
            } else {
                task.wrote(bytes, waitNs);
            }
        }
    }

    /**
     * Waits for the disk, where it is gated. To be closed after the access.
     *
     * @param disk null: not gated
     */
    Access begin(DiskQueue disk, Phase phase) {
        Access access = new Access(phase);
        if (disk != null) {
            fuse.guard("disk", () -> access.enter(disk));
        }
        return started(access);
    }

    /** As {@link #begin}, but queues for no disk: for what waits for one, and moves next to nothing. */
    Access beside(Phase phase) {
        Access access = new Access(phase);
        if (cores != null) {
            fuse.guard("core", access::giveCore);
        }
        return started(access);
    }

    private Access started(Access access) {
        fuse.guard(access.part(), () -> access.startCpuNs = ThreadClock.cpu());
        access.startNs = System.nanoTime();
        return access;
    }
}
