package org.pellucid.spark;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.TaskContext;
import org.apache.spark.executor.TaskMetrics;
import org.pellucid.spark.Accumulables.Name;
import org.pellucid.spark.core.Tuner;

/**
 * One running task: what it waited for and moved, and the permits that it holds. Permits belong to
 * its thread; other threads may read files for it, as the one that feeds a Python worker does.
 */
final class TaskMeter {
    private static final ThreadLocal<TaskMeter> OF_THREAD = new ThreadLocal<>();
    private static final Map<Long, TaskMeter> OF_ATTEMPT = new ConcurrentHashMap<>();

    final TaskContext context;
    final Accumulables accumulables;
    /** Of its stage and the stage's attempt. */
    final long stage;
    /** That it takes. */
    final int cores;
    /** Of all tasks: what they waited for permits. */
    private final LongAdder allQueuedNs;
    /** Where the plugin is off for its job, or in a barrier stage: waits for no permit and holds none. */
    volatile boolean ungated;
    /** Null until it passed the gate, and where there is none. */
    Tuner.Pass pass;
    private ThreadClock begin = ThreadClock.now();

    /** At the gate, before it began. */
    private long gateNs;
    /** Since: for cores and disks. */
    private long queueNs;
    /** Of the disk that it queued for last, when it had its turn; 0: it never did. */
    private int diskPermits;
    private long readWaitNs;
    private long writeWaitNs;
    private long readBytes;
    private long writeBytes;

    TaskMeter(TaskContext context, Accumulables accumulables, LongAdder allQueuedNs) {
        this.context = context;
        this.accumulables = accumulables;
        this.allQueuedNs = allQueuedNs;
        this.cores = Math.max(context.cpus(), 1);
        this.stage = stageKey(context.stageId(), context.stageAttemptNumber());
    }

    static long stageKey(int stage, int attempt) {
        return (long) stage << 32 | attempt;
    }

    /** Whose thread this is; null where it is no task's own. */
    static TaskMeter ofThread() {
        return OF_THREAD.get();
    }

    /** The task that the calling thread works for; null where it works for none. */
    static TaskMeter current() {
        TaskMeter own = OF_THREAD.get();
        TaskContext context = own == null ? TaskContext.get() : null;
        return context == null ? own : OF_ATTEMPT.get(context.taskAttemptId());
    }

    void attach() {
        OF_THREAD.set(this);
        OF_ATTEMPT.put(context.taskAttemptId(), this);
    }

    /** On its own thread. */
    void detach() {
        OF_THREAD.remove();
        OF_ATTEMPT.remove(context.taskAttemptId(), this);
    }

    /** It stood at the gate for so long, and begins now. */
    synchronized void begins(long ns) {
        gateNs = ns;
        allQueuedNs.add(ns);
        begin = ThreadClock.now();
    }

    synchronized void queued(long ns) {
        queueNs += ns;
        allQueuedNs.add(ns);
    }

    synchronized void diskPermits(int permits) {
        diskPermits = permits;
    }

    synchronized void read(long bytes, long waitNs) {
        readBytes += bytes;
        readWaitNs += waitNs;
    }

    synchronized void wrote(long bytes, long waitNs) {
        writeBytes += bytes;
        writeWaitNs += waitNs;
    }

    boolean killed() {
        return context.isInterrupted();
    }

    /** All that Spark, or the plugin where it saw more, counted as moved. */
    synchronized long bytes() {
        TaskMetrics metrics = context.taskMetrics();
        // Remote and local reads are summed up as readers end; some may not have.
        metrics.mergeShuffleReadMetrics();
        return Math.max(metrics.inputMetrics().bytesRead(), readBytes)
            + Math.max(metrics.outputMetrics().bytesWritten(), writeBytes)
            + metrics.shuffleReadMetrics().remoteBytesRead()
            + metrics.shuffleReadMetrics().localBytesRead()
            + metrics.shuffleWriteMetrics().bytesWritten()
            + metrics.diskBytesSpilled();
    }

    /** Time since the gate that was neither computing nor queueing; 0 where it is not known. */
    synchronized long ioWaitNs(ThreadClock end) {
        return Math.max(end.stoodStillSince(begin) - queueNs, 0);
    }

    /**
     * Fills the accumulables of the task's own times and bytes. Accesses are timed by the wall clock, less what their thread
     * computed; together they waited for disks for no longer than it was off its core and not in a queue.
     */
    synchronized void report(ThreadClock end) {
        TaskMetrics metrics = context.taskMetrics();
        accumulables.add(Name.QUEUE_NS, queueNs + gateNs);
        if (end.stoodStillSince(begin) >= 0) {
            accumulables.add(Name.IO_WAIT_NS, ioWaitNs(end));
        }
        if (end.runQueueSince(begin) >= 0) {
            accumulables.add(Name.RUN_QUEUE_NS, end.runQueueSince(begin));
        }
        if (end.blockDelaySince(begin) >= 0) {
            accumulables.add(Name.BLOCK_DELAY_NS, end.blockDelaySince(begin));
        }
        long offCore = end.offCoreSince(begin);
        long most = offCore < 0 ? Long.MAX_VALUE : Math.max(offCore - queueNs, 0);
        long reads = Math.min(readWaitNs, most);
        if (allCameBy(metrics.inputMetrics().bytesRead(), readBytes)) {
            accumulables.add(Name.READ_WAIT_NS, reads);
        }
        if (allCameBy(metrics.outputMetrics().bytesWritten(), writeBytes)) {
            accumulables.add(Name.WRITE_WAIT_NS, Math.min(writeWaitNs, most - reads));
        }
        if (readBytes > 0) {
            accumulables.add(Name.READ_BYTES, readBytes);
        }
        if (writeBytes > 0) {
            accumulables.add(Name.WRITE_BYTES, writeBytes);
        }
        if (diskPermits > 0) {
            accumulables.add(Name.DISK_PERMITS, diskPermits);
        }
    }

    /**
     * Whether the plugin saw all that Spark counted: else some went another way, and its wait is not
     * measured. Hadoop counts what its streams fetch, also what a seek then makes them drop.
     */
    private static boolean allCameBy(long counted, long seen) {
        return counted - seen <= Math.max(1 << 16, seen / 20);
    }
}
