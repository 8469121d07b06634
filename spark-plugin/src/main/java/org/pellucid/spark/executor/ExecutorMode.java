package org.pellucid.spark.executor;

import org.pellucid.spark.core.Reason;
import org.pellucid.spark.metrics.Gauges;
import org.pellucid.spark.metrics.TaskMeter;
import org.pellucid.spark.metrics.ThreadClock;

/**
 * The rules of a mode in an executor: the permits that a task takes before it runs, and the slots that the
 * executor wants. The defaults take no permit and change nothing.
 *
 * <p>Methods about a task are called on its own thread.
 */
interface ExecutorMode {
    /** Returns true if reads and writes of files queue for their disk. */
    default boolean queuesFiles() {
        return false;
    }

    /** Returns true if the executor's slots in Spark change. */
    default boolean adjustsSlots() {
        return false;
    }

    /** Sets the executor's cores. Called once, before {@link #setOwnSlots}. */
    default void coresKnown(int cores) {}

    /** Sets the slots that the executor has without the plugin. */
    default void setOwnSlots(int slots) {}

    /** Returns the slots that Spark should use here, given the executor's own. */
    default int slotsWanted(int own) {
        return own;
    }

    /** Waits until the task may run. */
    default void start(TaskMeter task) throws InterruptedException {}

    /** Returns how many tasks of the task's stage may run; 0 if that is not tuned. */
    default int concurrency(TaskMeter task) {
        return 0;
    }

    /** Returns the reason for that number. */
    default Reason reason(TaskMeter task) {
        return Reason.FIXED;
    }

    /** Records a task that succeeded. */
    default void succeeded(TaskMeter task, ThreadClock end) {}

    /** Releases the permits of the calling thread; does nothing if it holds none. */
    default void release() {}

    /** Admits all tasks, now and in future, after the plugin failed. */
    default void open() {}

    /** Adds the mode's gauges. Those of {@link Adaptive} are present, but idle, in the other modes. */
    default void addGauges(Gauges gauges) {
        gauges.add("tasks.running", () -> 0);
        gauges.add("tasks.waiting", () -> 0);
        gauges.add("stage", () -> -1);
        gauges.add("concurrency", () -> 0);
        gauges.add("reason", () -> 0);
        gauges.add("index.ns2_per_mb", () -> -1);
    }
}
