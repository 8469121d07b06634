package org.pellucid.spark.metrics;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.util.function.LongSupplier;

/** An executor's gauges in Spark's metrics system. */
public final class Gauges {
    private final MetricRegistry registry;

    public Gauges(MetricRegistry registry) {
        this.registry = registry;
    }

    public void add(String name, LongSupplier value) {
        registry.register(name, (Gauge<Long>) value::getAsLong);
    }

    public boolean contains(String name) {
        return registry.getGauges().containsKey(name);
    }
}
