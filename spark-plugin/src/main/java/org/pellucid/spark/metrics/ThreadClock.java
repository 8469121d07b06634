package org.pellucid.spark.metrics;

import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * A snapshot of the calling thread's times: computing, garbage collection and, on Linux, waiting for a
 * core. The rest of the wall-clock time between two snapshots is the time the thread was blocked.
 */
public final class ThreadClock {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final List<GarbageCollectorMXBean> COLLECTORS = ManagementFactory.getGarbageCollectorMXBeans();
    /** Fields: time on a core (ns), wait for a core (ns), times scheduled; of the thread that opens the file. */
    private static final Path SCHEDSTAT = Path.of("/proc/thread-self/schedstat");

    private static final Path STAT = Path.of("/proc/thread-self/stat");
    /** Index among the fields after the name in parentheses; the field counts hundredths of a second. */
    private static final int BLOCK_DELAY_FIELD = 39;
    private static final long TICK_NS = 10_000_000;
    private static final boolean HAS_CPU_TIME = THREADS.isCurrentThreadCpuTimeSupported();
    private static final boolean HAS_BLOCK_DELAYS = blockDelaysKept();

    final long wallNs;
    /** This field and those below are -1 if unknown on this system. */
    final long cpuNs;
    final long gcNs;
    final long runQueueNs;
    final long blockDelayNs;

    /** Creates a snapshot from a thread's counters. */
    ThreadClock(long wallNs, long cpuNs, long gcNs, long runQueueNs, long blockDelayNs) {
        this.wallNs = wallNs;
        this.cpuNs = cpuNs;
        this.gcNs = gcNs;
        this.runQueueNs = runQueueNs;
        this.blockDelayNs = blockDelayNs;
    }

    public static ThreadClock now() {
        return new ThreadClock(System.nanoTime(), cpu(), gc(), runQueue(), HAS_BLOCK_DELAYS ? blockDelay() : -1);
    }

    /** Returns the CPU time of the calling thread; -1 if unknown. */
    public static long cpu() {
        return HAS_CPU_TIME ? THREADS.getCurrentThreadCpuTime() : -1;
    }

    /** Returns the time since {@code begin} that the thread was runnable without a core; -1 if unknown. */
    long runQueueSince(ThreadClock begin) {
        return runQueueNs < 0 || begin.runQueueNs < 0 ? -1 : Math.max(runQueueNs - begin.runQueueNs, 0);
    }

    /**
     * Returns the kernel's block device delay since {@code begin}; -1 if unknown. A thread's first delay may be
     * counted from the machine's start, so a delay longer than the elapsed time is unknown.
     */
    long blockDelaySince(ThreadClock begin) {
        long delay = Math.max(blockDelayNs - begin.blockDelayNs, 0);
        boolean known = blockDelayNs >= 0 && begin.blockDelayNs >= 0 && delay <= wallNs - begin.wallNs + TICK_NS;
        return known ? delay : -1;
    }

    /** Returns the time since {@code begin} without computing, garbage collection or run queue; -1 if unknown. */
    long blockedSince(ThreadClock begin) {
        long offCore = offCoreSince(begin);
        return offCore < 0 ? -1 : Math.max(offCore - (gcNs - begin.gcNs), 0);
    }

    /**
     * Returns the time since {@code begin} that the thread was neither computing nor runnable, garbage
     * collection included; -1 if unknown. No wait of the thread is longer.
     */
    long offCoreSince(ThreadClock begin) {
        if (cpuNs < 0 || begin.cpuNs < 0) {
            return -1;
        }
        return Math.max(wallNs - begin.wallNs - (cpuNs - begin.cpuNs) - Math.max(runQueueSince(begin), 0), 0);
    }

    /** Returns the collection time of the whole process, since a collection stops every thread. Spark counts alike. */
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
            return Long.parseLong(fields[BLOCK_DELAY_FIELD]) * TICK_NS;
        } catch (IOException | NumberFormatException | IndexOutOfBoundsException e) {
            return -1;
        }
    }

    /** Returns true if the kernel keeps block device delays, which Linux does only on request. */
    private static boolean blockDelaysKept() {
        try {
            return Files.readString(Path.of("/proc/sys/kernel/task_delayacct")).trim().equals("1");
        } catch (IOException e) {
            return false;
        }
    }
}
