package org.pellucid.spark.core;

/** One completed task or disk monotask, as the controller sees it. */
public final class Sample {
    /** {@link #waitNs} where all of the service time is wait: a disk monotask does nothing but I/O. */
    public static final long ALL_WAIT = -1;

    /** When it started. */
    public final long startNs;
    /** Bytes that it moved. */
    public final long bytes;
    /** Time stalled on I/O, or {@link #ALL_WAIT}. */
    public final long waitNs;
    /** How many ran until it completed, itself included. */
    public final int running;

    public Sample(long startNs, long bytes, long waitNs, int running) {
        this.startNs = startNs;
        this.bytes = bytes;
        this.waitNs = waitNs;
        this.running = running;
    }
}
