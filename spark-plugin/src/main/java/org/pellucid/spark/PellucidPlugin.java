package org.pellucid.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.driver.PellucidDriver;
import org.pellucid.spark.executor.PellucidExecutor;

/**
 * The plugin that {@code spark.plugins} names. {@code spark.pellucid.mode} selects what it does:
 *
 * <ul>
 *   <li>{@code measure} (the default): measures and changes nothing;
 *   <li>{@code adaptive}: each executor finds, stage by stage, how many tasks should run at once. Short stages,
 *       and stages that gain from all slots, take longer than on stock Spark;
 *   <li>{@code monotasks}: limits computing to the cores and queues I/O per disk;
 *   <li>{@code off}: does nothing.
 * </ul>
 *
 * All modes but {@code off} write measurements to the event log and to Spark's metrics. docs/spark-plugin.md
 * lists the plugin's parts and the interfaces of Spark that each uses.
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

    /** Logs the missing class and returns null, by which Spark understands that the plugin has no such part. */
    private static <T> T incomplete(LinkageError missing) {
        Failsafe.LOG.error("Pellucid is off: its jar, or this Spark, lacks a class; the job goes on without it", missing);
        return null;
    }
}
