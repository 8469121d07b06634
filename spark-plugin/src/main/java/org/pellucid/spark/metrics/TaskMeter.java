package org.pellucid.spark.metrics;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.TaskContext;
import org.apache.spark.executor.TaskMetrics;
import org.pellucid.spark.metrics.Accumulables.Name;

/**
 * The meter of one running task: its waits, and the bytes it moved. Other threads than the task's own may
 * read files for it, such as the one that feeds a Python worker.
 */
public final class TaskMeter {
    private static final ThreadLocal<TaskMeter> OF_THREAD = new ThreadLocal<>();
    private static final Map<Long, TaskMeter> OF_ATTEMPT = new ConcurrentHashMap<>();

    public final TaskContext context;
    public final Accumulables accumulables;
    /** Key of the stage and its attempt. */
    public final long stage;
    /** Cores that the task takes. */
    public final int cores;
    /** Wait for permits of all tasks of this executor. */
    private final LongAdder allQueuedNs;
    /** True in a barrier stage or if the job turned the plugin off: the task waits for and holds no permit. */
    public volatile boolean ungated;
    private ThreadClock begin = ThreadClock.now();

    /** Wait at the gate, before the task began. */
    private long gateNs;
    /** Wait for cores and disks since then. */
    private long queueNs;
    /** Permits of the disk that the task queued for last, when it was admitted; 0 if it never queued. */
    private int diskPermits;
    private long readWaitNs;
    private long writeWaitNs;
    private long readBytes;
    private long writeBytes;

    public TaskMeter(TaskContext context, Accumulables accumulables, LongAdder allQueuedNs) {
        this.context = context;
        this.accumulables = accumulables;
        this.allQueuedNs = allQueuedNs;
        this.cores = Math.max(context.cpus(), 1);
        this.stage = stageKey(context.stageId(), context.stageAttemptNumber());
    }

    public static long stageKey(int stage, int attempt) {
        return (long) stage << 32 | attempt;
    }

    /** Returns the task whose own thread is calling; null if it is not a task's thread. */
    public static TaskMeter ofThread() {
        return OF_THREAD.get();
    }

    /** Returns the task that the calling thread works for; null if it works for none. */
    public static TaskMeter current() {
        TaskMeter own = OF_THREAD.get();
        TaskContext context = own == null ? TaskContext.get() : null;
        return context == null ? own : OF_ATTEMPT.get(context.taskAttemptId());
    }

    public void attach() {
        OF_THREAD.set(this);
        OF_ATTEMPT.put(context.taskAttemptId(), this);
    }

    /** Must be called on the task's own thread. */
    public void detach() {
        OF_THREAD.remove();
        OF_ATTEMPT.remove(context.taskAttemptId(), this);
    }

    /** Records the wait at the gate; the task begins now. */
    public synchronized void passedGate(long ns) {
        gateNs = ns;
        allQueuedNs.add(ns);
        begin = ThreadClock.now();
    }

    public synchronized void queued(long ns) {
        queueNs += ns;
        allQueuedNs.add(ns);
    }

    public synchronized void diskPermits(int permits) {
        diskPermits = permits;
    }

    public synchronized void read(long bytes, long waitNs) {
        readBytes += bytes;
        readWaitNs += waitNs;
    }

    public synchronized void wrote(long bytes, long waitNs) {
        writeBytes += bytes;
        writeWaitNs += waitNs;
    }

    public boolean killed() {
        return context.isInterrupted();
    }

    /** Returns all bytes moved, by Spark's count or the plugin's, whichever is larger. */
    public synchronized long bytes() {
        TaskMetrics metrics = context.taskMetrics();
        // Spark adds up remote and local reads as readers end; some may still be open.
        metrics.mergeShuffleReadMetrics();
        return Math.max(metrics.inputMetrics().bytesRead(), readBytes)
            + Math.max(metrics.outputMetrics().bytesWritten(), writeBytes)
            + metrics.shuffleReadMetrics().remoteBytesRead()
            + metrics.shuffleReadMetrics().localBytesRead()
            + metrics.shuffleWriteMetrics().bytesWritten()
            + metrics.diskBytesSpilled();
    }

    /** Returns the time since the gate that was neither computing nor queueing; 0 if unknown. */
    public synchronized long ioWaitNs(ThreadClock end) {
        return Math.max(end.blockedSince(begin) - queueNs, 0);
    }

    /**
     * Fills in the task's accumulables. Accesses are timed by the wall clock minus what their thread computed.
     * Together their waits are capped at the time that the thread was off its core and not queueing.
     */
    public synchronized void report(ThreadClock end) {
        TaskMetrics metrics = context.taskMetrics();
        accumulables.add(Name.QUEUE_NS, queueNs + gateNs);
        if (end.blockedSince(begin) >= 0) {
            accumulables.add(Name.IO_WAIT_NS, ioWaitNs(end));
        }
        if (end.runQueueSince(begin) >= 0) {
            accumulables.add(Name.RUN_QUEUE_NS, end.runQueueSince(begin));
        }
        if (end.blockDelaySince(begin) >= 0) {
            accumulables.add(Name.BLOCK_DELAY_NS, end.blockDelaySince(begin));
        }
        long offCore = end.offCoreSince(begin);
        long maxNs = offCore < 0 ? Long.MAX_VALUE : Math.max(offCore - queueNs, 0);
        long reads = Math.min(readWaitNs, maxNs);
        if (sawAll(metrics.inputMetrics().bytesRead(), readBytes)) {
            accumulables.add(Name.READ_WAIT_NS, reads);
        }
        if (sawAll(metrics.outputMetrics().bytesWritten(), writeBytes)) {
            accumulables.add(Name.WRITE_WAIT_NS, Math.min(writeWaitNs, maxNs - reads));
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
     * Returns true if the plugin saw nearly all bytes that Spark counted. Otherwise some bypassed it and their
     * wait is unknown. Hadoop counts everything its streams fetch, including what a seek then discards.
     */
    private static boolean sawAll(long counted, long seen) {
        return counted - seen <= Math.max(1 << 16, seen / 20);
    }
}
