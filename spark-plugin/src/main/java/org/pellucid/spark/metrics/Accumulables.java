package org.pellucid.spark.metrics;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.Base64;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/**
 * The accumulables that a task writes to the event log, one named accumulator each, in nanoseconds and
 * bytes.
 *
 * <p>The driver registers the accumulators and sends them to the executors serialised. A task that
 * deserialises them gets zeroed copies, which register with the task themselves: Spark does that for any
 * accumulator in a task's closure (AccumulatorV2.readObject). So no task has to be changed, and the values
 * return with its result. An accumulator that is never added to is absent from the log, not zero.
 */
public final class Accumulables {
    /** Key of the serialised accumulators for the executors. Executors without it do nothing. */
    public static final String KEY = "accumulables";

    /** The order is that of the serialised array. */
    public enum Name {
        /** Tasks of this stage that the executor allowed when the task ended; marks a measured task. */
        CONCURRENCY,
        /** Reason for the concurrency: the code of a {@code Reason}. */
        REASON,
        /** Wait for the plugin's permits; part of executorRunTime. */
        QUEUE_NS,
        /** Run time minus computing, garbage collection, queueing and run queue. */
        IO_WAIT_NS,
        /** Time runnable without a core. */
        RUN_QUEUE_NS,
        /** Stall in reads of files; absent if some bypassed the plugin. */
        READ_WAIT_NS,
        /** Stall in writes of files; absent if some bypassed the plugin. */
        WRITE_WAIT_NS,
        /** The kernel's block device delay if it keeps one, in steps of 10 ms. */
        BLOCK_DELAY_NS,
        READ_BYTES,
        WRITE_BYTES,
        /** Cores of the executor's machine, regardless of its slots; once per stage. */
        CORES,
        /** ζ of the interval that this task ended, in ns² per megabyte. */
        INDEX_NS2_PER_MB,
        /** Permits of the disk that the task queued for last, at the time it was admitted. */
        DISK_PERMITS;

        String logName() {
            return "pellucid." + name().toLowerCase(java.util.Locale.ROOT);
        }
    }

    private final LongAccumulator[] all;

    private Accumulables(LongAccumulator[] all) {
        this.all = all;
    }

    /** Registers the accumulators on the driver, which must keep them: Spark holds them weakly. */
    public static Accumulables register(SparkContext context) {
        Name[] names = Name.values();
        LongAccumulator[] all = new LongAccumulator[names.length];
        for (int i = 0; i < names.length; i++) {
            all[i] = new LongAccumulator();
            // Count failed values too: a failed task also waited.
            all[i].register(context, scala.Option.apply(names[i].logName()), true);
        }
        return new Accumulables(all);
    }

    /** Returns the accumulators serialised, for the executors' configuration. */
    public String serialised() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(all);
        }
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    /** Deserialises a new set on the thread of a starting task. */
    public static Accumulables ofTask(byte[] serialised) throws IOException, ClassNotFoundException {
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(serialised))) {
            return new Accumulables((LongAccumulator[]) in.readObject());
        }
    }

    public void add(Name name, long value) {
        all[name.ordinal()].add(value);
    }
}
