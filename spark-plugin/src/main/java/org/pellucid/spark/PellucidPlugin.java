package org.pellucid.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * What {@code spark.plugins} names. One of three modes ({@code spark.pellucid.mode}):
 *
 * <ul>
 *   <li>{@code adaptive}: each executor finds, stage by stage, how many tasks should run at once;
 *   <li>{@code monotasks}: computing is limited to the cores and I/O queues for its disk;
 *   <li>{@code measure}: nothing is changed, only measured.
 * </ul>
 *
 * All write what stock Spark cannot see into its event log and its metrics. The parts, and what of
 * Spark each touches, are listed in docs/spark-plugin.md.
 */
public final class PellucidPlugin implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        return new PellucidDriver();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new PellucidExecutor();
    }
}
