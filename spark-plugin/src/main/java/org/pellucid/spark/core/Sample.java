package org.pellucid.spark.core;

/** One completed task or disk monotask, as the controller sees it. */
final class Sample {
    /** Value of {@link #waitNs} if all service time is wait, as for a disk monotask. */
    static final long ALL_WAIT = -1;

    /** Start time. */
    final long startNs;
    /** Bytes moved. */
    final long bytes;
    /** Time stalled on I/O, or {@link #ALL_WAIT}. */
    final long waitNs;
    /** Number of those running until this one completed, itself included. */
    final int running;

    Sample(long startNs, long bytes, long waitNs, int running) {
        this.startNs = startNs;
        this.bytes = bytes;
        this.waitNs = waitNs;
        this.running = running;
    }
}
