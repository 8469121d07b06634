package org.pellucid.spark;

import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/** A third-party plugin that runs beside ours, counts the tasks that it sees, and prints the count at shutdown. */
public final class OtherPlugin implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        return null;
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorPlugin() {
            private final LongAdder tasks = new LongAdder();

            @Override
            public void init(PluginContext context, Map<String, String> fromDriver) {}

            @Override
            public void onTaskStart() {
                tasks.increment();
            }

            @Override
            public void shutdown() {
                System.err.println("the other plugin saw " + tasks.sum() + " tasks");
            }
        };
    }
}
