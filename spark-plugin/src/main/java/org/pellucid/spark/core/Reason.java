package org.pellucid.spark.core;

/** The reason for a concurrency. Its code goes into the event log. */
public enum Reason {
    START(1),
    DOUBLED(2),
    STEPPED_BACK(3),
    NOT_BOUND_BY_IO(4),
    AT_MAXIMUM(5),
    REMEMBERED(6),
    FIXED(7);

    /** The value of {@code pellucid.reason}. */
    public final int code;

    Reason(int code) {
        this.code = code;
    }
}
