package org.pellucid.spark.core;

/** The criterion by which more concurrency pays. */
public enum Policy {
    /**
     * The congestion index ζ = ε ÷ µ, wait for I/O over bytes per second, must not rise
     * (Middleware '19, §5.1, equation 1). Every completion of an interval counts.
     */
    INDEX,
    /**
     * Bytes per second must grow by a gain. A stage that hardly waits for I/O gets the maximum
     * at once.
     */
    THROUGHPUT
}
