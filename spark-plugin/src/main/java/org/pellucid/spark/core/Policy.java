package org.pellucid.spark.core;

/** What makes more concurrency pay. */
public enum Policy {
    /**
     * The congestion index ζ = ε ÷ µ must not rise: wait for I/O over bytes per second
     * (Middleware '19, §5.1, equation 1). Every completion of an interval counts.
     */
    INDEX,
    /**
     * Bytes per second must grow by a gain, and a stage that hardly waits for I/O gets
     * the maximum at once.
     */
    THROUGHPUT
}
