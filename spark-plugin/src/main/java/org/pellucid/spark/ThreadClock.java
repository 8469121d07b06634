package org.pellucid.spark;

import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * Where the calling thread's time went since a moment: computing, garbage collection, and, where
 * Linux tells, waiting for a core. What is left it stood still.
 */
final class ThreadClock {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final List<GarbageCollectorMXBean> COLLECTORS = ManagementFactory.getGarbageCollectorMXBeans();
    /** Computing, waiting for a core (ns), times scheduled; of the thread that opens it. */
    private static final Path SCHEDSTAT = Path.of("/proc/thread-self/schedstat");

    private static final Path STAT = Path.of("/proc/thread-self/stat");
    /** Of the fields after the name in parentheses; counted in hundredths of a second. */
    private static final int BLOCK_DELAY = 39;
    private static final long TICK_NS = 10_000_000;
    private static final boolean CPU = THREADS.isCurrentThreadCpuTimeSupported();
    private static final boolean DELAYS = delaysCounted();

    final long wallNs;
    /** -1, of this and those below: not known here. */
    final long cpuNs;
    final long gcNs;
    final long runQueueNs;
    final long blockDelayNs;

    /** What a thread's counters say. */
    ThreadClock(long wallNs, long cpuNs, long gcNs, long runQueueNs, long blockDelayNs) {
        this.wallNs = wallNs;
        this.cpuNs = cpuNs;
        this.gcNs = gcNs;
        this.runQueueNs = runQueueNs;
        this.blockDelayNs = blockDelayNs;
    }

    static ThreadClock now() {
        return new ThreadClock(System.nanoTime(), cpu(), gc(), runQueue(), DELAYS ? blockDelay() : -1);
    }

    /** What the calling thread has computed; -1: not known here. */
    static long cpu() {
        return CPU ? THREADS.getCurrentThreadCpuTime() : -1;
    }

    /** Runnable without a core since then; -1: not known. */
    long runQueueSince(ThreadClock begin) {
        return runQueueNs < 0 || begin.runQueueNs < 0 ? -1 : Math.max(runQueueNs - begin.runQueueNs, 0);
    }

    /**
     * Waiting for block devices since then, as the kernel counts it; -1: it does not. A thread's first wait
     * may count from when the machine was started: what is longer than the time itself is not known.
     */
    long blockDelaySince(ThreadClock begin) {
        long delay = Math.max(blockDelayNs - begin.blockDelayNs, 0);
        boolean known = blockDelayNs >= 0 && begin.blockDelayNs >= 0 && delay <= wallNs - begin.wallNs + TICK_NS;
        return known ? delay : -1;
    }

    /** Neither computing, collecting garbage, nor runnable since then; -1: not known. */
    long stoodStillSince(ThreadClock begin) {
        long offCore = offCoreSince(begin);
        return offCore < 0 ? -1 : Math.max(offCore - (gcNs - begin.gcNs), 0);
    }

    /**
     * Neither computing nor runnable since then, whether or not garbage was collected meanwhile: no wait of
     * the thread's is longer. -1: not known.
     */
    long offCoreSince(ThreadClock begin) {
        if (cpuNs < 0 || begin.cpuNs < 0) {
            return -1;
        }
        return Math.max(wallNs - begin.wallNs - (cpuNs - begin.cpuNs) - Math.max(runQueueSince(begin), 0), 0);
    }

    /** Of the whole process: a collection stops every thread. Spark counts it so too. */
    private static long gc() {
        long ms = 0;
        for (GarbageCollectorMXBean collector : COLLECTORS) {
            ms += Math.max(collector.getCollectionTime(), 0);
        }
        return ms * 1_000_000;
    }

    private static long runQueue() {
        try {
            String[] fields = new String(Files.readAllBytes(SCHEDSTAT), StandardCharsets.US_ASCII).trim().split(" ");
            return Long.parseLong(fields[1]);
        } catch (IOException | NumberFormatException | ArrayIndexOutOfBoundsException e) {
            return -1;
        }
    }

    private static long blockDelay() {
        try {
            String text = new String(Files.readAllBytes(STAT), StandardCharsets.ISO_8859_1);
            String[] fields = text.substring(text.lastIndexOf(')') + 2).trim().split(" ");
            return Long.parseLong(fields[BLOCK_DELAY]) * TICK_NS;
        } catch (IOException | NumberFormatException | IndexOutOfBoundsException e) {
            return -1;
        }
    }

    /** Linux counts them only where it is told to. */
    private static boolean delaysCounted() {
        try {
            return Files.readString(Path.of("/proc/sys/kernel/task_delayacct")).trim().equals("1");
        } catch (IOException e) {
            return false;
        }
    }
}
