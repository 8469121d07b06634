package org.pellucid.spark.io;

import java.util.concurrent.atomic.LongAdder;

/** Bytes and waits of all accesses to files in this executor, counted as they end. */
public final class FileTotals {
    private final LongAdder readBytes = new LongAdder();
    private final LongAdder readWaitNs = new LongAdder();
    private final LongAdder writeBytes = new LongAdder();
    private final LongAdder writeWaitNs = new LongAdder();
    private final LongAdder shuffleReadBytes = new LongAdder();

    void read(long bytes, long waitNs) {
        readBytes.add(bytes);
        readWaitNs.add(waitNs);
    }

    void wrote(long bytes, long waitNs) {
        writeBytes.add(bytes);
        writeWaitNs.add(waitNs);
    }

    void readShuffle(long bytes) {
        shuffleReadBytes.add(bytes);
    }

    public long readBytes() {
        return readBytes.sum();
    }

    public long readWaitNs() {
        return readWaitNs.sum();
    }

    public long writeBytes() {
        return writeBytes.sum();
    }

    public long writeWaitNs() {
        return writeWaitNs.sum();
    }

    /** Returns the bytes of shuffle files, which are read in monotasks of their own. */
    public long shuffleReadBytes() {
        return shuffleReadBytes.sum();
    }
}
