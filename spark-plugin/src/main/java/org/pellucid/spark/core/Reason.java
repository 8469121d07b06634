package org.pellucid.spark.core;

/** Why a concurrency is what it is. The code goes into the event log. */
public enum Reason {
    START(1),
    DOUBLED(2),
    STEPPED_BACK(3),
    NOT_BOUND_BY_IO(4),
    AT_THE_MOST(5),
    REMEMBERED(6),
    FIXED(7);

    /** What {@code pellucid.reason} says. */
    public final int code;

    Reason(int code) {
        this.code = code;
    }
}
