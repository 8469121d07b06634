package org.pellucid.spark.core;

import java.util.concurrent.TimeUnit;

/** The user's settings for tuning. */
public final class Tuning {
    public final Policy policy;
    /** The concurrency that each stage starts with. */
    public final int min;
    /** Maximum concurrency of a stage; {@link Integer#MAX_VALUE} for the executor's slots. */
    public final int max;
    /** By how much bytes per second must grow for a doubling to pay: 0.07 for 7 %. */
    public final double gain;
    /** The gate opens for a stage if no task completes within this time. */
    public final long patienceNs;

    public Tuning(Policy policy, int min, int max, double gain, long patienceNs) {
        this.policy = policy;
        this.min = min;
        this.max = max;
        this.gain = gain;
        this.patienceNs = patienceNs;
    }

    /** The defaults: throughput, from 2 to the executor's slots, 7 %, five minutes. */
    public static Tuning standard() {
        return new Tuning(Policy.THROUGHPUT, 2, Integer.MAX_VALUE, 0.07, TimeUnit.MINUTES.toNanos(5));
    }
}
