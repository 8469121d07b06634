package org.pellucid.spark;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.Base64;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/**
 * What a task says in the event log: one named accumulator each, in nanoseconds and bytes.
 *
 * <p>The driver makes and registers them and hands them to the executors serialised. A task that
 * reads them back gets zeroed copies, which register with the task by themselves: Spark does that
 * for whatever accumulator a task's closure brings (AccumulatorV2.readObject). So no task needs to
 * be changed, and the values come back with its result. What is never added to is left out of the
 * log: absent, not zero.
 */
final class Accumulables {
    /** In the order of the serialised array. */
    enum Name {
        /** What the executor allowed the task's stage when it ended; marks a measured task. */
        CONCURRENCY,
        /** Why: {@link org.pellucid.spark.core.Reason#code}. */
        REASON,
        /** Waiting for permits of the plugin; within executorRunTime. */
        QUEUE_NS,
        /** Run time that was neither computing, collecting garbage, queueing nor runnable. */
        IO_WAIT_NS,
        /** Runnable without a core. */
        RUN_QUEUE_NS,
        /** Stalled in reads of files; absent where some went past the plugin. */
        READ_WAIT_NS,
        /** Stalled in writes of files; absent likewise. */
        WRITE_WAIT_NS,
        /** The kernel's own count of waiting for block devices, where it keeps one, in steps of 10 ms. */
        BLOCK_DELAY_NS,
        READ_BYTES,
        WRITE_BYTES,
        /** That the machine gives its executor, whatever slots it has; once a stage. */
        CORES,
        /** ζ of the interval that this task ended, in ns² a megabyte. */
        INDEX_NS2_PER_MB,
        /** Of the disk that it queued for last, when it had its turn. */
        DISK_PERMITS;

        String inLog() {
            return "pellucid." + name().toLowerCase(java.util.Locale.ROOT);
        }
    }

    private final LongAccumulator[] all;

    private Accumulables(LongAccumulator[] all) {
        this.all = all;
    }

    /** On the driver, which must keep them: Spark holds registered ones weakly. */
    static Accumulables register(SparkContext context) {
        Name[] names = Name.values();
        LongAccumulator[] all = new LongAccumulator[names.length];
        for (int i = 0; i < names.length; i++) {
            all[i] = new LongAccumulator();
            // Tasks that failed waited too.
            all[i].register(context, scala.Option.apply(names[i].inLog()), true);
        }
        return new Accumulables(all);
    }

    /** For the executors' configuration. */
    String serialised() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(all);
        }
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    /** On the thread of a task that starts: a set of its own. */
    static Accumulables ofTask(byte[] serialised) throws IOException, ClassNotFoundException {
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(serialised))) {
            return new Accumulables((LongAccumulator[]) in.readObject());
        }
    }

    void add(Name name, long value) {
        all[name.ordinal()].add(value);
    }
}
