package org.pellucid.spark;

import com.codahale.metrics.Gauge;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.source.Source;

/**
 * Waits as disks let wait, inside a real executor, for checks that need no disk: SQL calls these
 * with {@code java_method}.
 */
public final class SlowDisk {
    private static final Object HEAD = new Object();
    private static final List<String> GAUGES =
        List.of("off", "tasks.running", "tasks.waiting", "cores.held", "disk.running", "disk.waiting", "disk.peak");

    private SlowDisk() {}

    /** On executor 1 one at a time is served, as by one head, in half the time; on the others all at once. */
    public static String read(int ms) throws InterruptedException {
        if (SparkEnv.get().executorId().equals("1")) {
            synchronized (HEAD) {
                Thread.sleep(ms / 2);
            }
        } else {
            Thread.sleep(ms);
        }
        return "read";
    }

    /** The first executor that calls it with this path dies on the spot; later it is as {@link #read}. */
    public static String dieOnce(String mark, int ms) throws IOException, InterruptedException {
        try {
            Files.createFile(Path.of(mark));
        } catch (java.nio.file.FileAlreadyExistsException e) {
            return read(ms);
        }
        Runtime.getRuntime().halt(1);
        return "dead";
    }

    /** The first task that calls it with this path fails; later it is as {@link #read}. */
    public static String failOnce(String mark, int ms) throws IOException, InterruptedException {
        try {
            Files.createFile(Path.of(mark));
        } catch (java.nio.file.FileAlreadyExistsException e) {
            return read(ms);
        }
        throw new IOException("a failure that the job asked for");
    }

    /**
     * What the plugin of this executor has given out, by its own metrics: the executor, then NAME=VALUE of those
     * that there are. The task that asks is one of them, unless the plugin is off.
     */
    public static String held() throws ReflectiveOperationException {
        Object metrics = SparkEnv.get().metricsSystem();
        // A Seq of another class in each Scala.
        Object sources = metrics.getClass().getMethod("getSourcesByName", String.class)
            .invoke(metrics, "plugin." + PellucidPlugin.class.getName());
        Object iterator = Class.forName("scala.collection.Iterable").getMethod("iterator").invoke(sources);
        scala.collection.Iterator<?> each = (scala.collection.Iterator<?>) iterator;
        StringBuilder said = new StringBuilder(SparkEnv.get().executorId());
        Source source = each.hasNext() ? (Source) each.next() : null;
        for (String name : GAUGES) {
            Gauge<?> gauge = source == null ? null : source.metricRegistry().getGauges().get(name);
            if (gauge != null) {
                said.append(' ').append(name).append('=').append(gauge.getValue());
            }
        }
        return said.toString();
    }

    /** Computes for so long. */
    public static String compute(int ms) {
        long until = System.nanoTime() + ms * 1_000_000L;
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
        return "computed";
    }
}
