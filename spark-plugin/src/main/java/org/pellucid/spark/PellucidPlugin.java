package org.pellucid.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * What {@code spark.plugins} names. One of three modes ({@code spark.pellucid.mode}):
 *
 * <ul>
 *   <li>{@code measure} (the default): nothing is changed, only measured;
 *   <li>{@code adaptive}: each executor finds, stage by stage, how many tasks should run at once. Stages that are short or
 *       gain from all slots take longer than on stock Spark;
 *   <li>{@code monotasks}: computing is limited to the cores and I/O queues for its disk.
 * </ul>
 *
 * All write what stock Spark cannot see into its event log and its metrics. The parts, and what of
 * Spark each touches, are listed in docs/spark-plugin.md.
 */
public final class PellucidPlugin implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        try {
            return new PellucidDriver();
        } catch (LinkageError e) {
            return incomplete(e);
        }
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        try {
            return new PellucidExecutor();
        } catch (LinkageError e) {
            return incomplete(e);
        }
    }

    /** To Spark, null is a plugin that has no such part. */
    private static <T> T incomplete(LinkageError missing) {
        Failsafe.LOG.error("Pellucid is off: its jar, or this Spark, lacks a class; the job goes on without it", missing);
        return null;
    }
}
