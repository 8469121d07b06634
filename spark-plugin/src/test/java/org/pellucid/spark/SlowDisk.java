package org.pellucid.spark;

import com.codahale.metrics.Gauge;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.source.Source;

/**
 * Simulates disk waits inside a real executor, for tests that need no disk. SQL calls these methods with
 * {@code java_method}.
 */
public final class SlowDisk {
    private static final Object HEAD = new Object();
    private static final List<String> GAUGES =
        List.of("off", "tasks.running", "tasks.waiting", "cores.held", "disk.running", "disk.waiting", "disk.peak");

    private SlowDisk() {}

    /** Waits. Executor 1 serves one caller at a time, like a single head, in half the time; the others serve all at once. */
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

    /** Kills the first executor that calls it with this path; later calls behave like {@link #read}. */
    public static String dieOnce(String mark, int ms) throws IOException, InterruptedException {
        try {
            Files.createFile(Path.of(mark));
        } catch (java.nio.file.FileAlreadyExistsException e) {
            return read(ms);
        }
        Runtime.getRuntime().halt(1);
        return "dead";
    }

    /** Fails the first task that calls it with this path; later calls behave like {@link #read}. */
    public static String failOnce(String mark, int ms) throws IOException, InterruptedException {
        try {
            Files.createFile(Path.of(mark));
        } catch (java.nio.file.FileAlreadyExistsException e) {
            return read(ms);
        }
        throw new IOException("failure requested by the job");
    }

    /**
     * Returns the permits and cores in use by this executor's own metrics: the executor's id, then NAME=VALUE for
     * each gauge. The calling task is included, unless the plugin is off.
     */
    public static String held() throws ReflectiveOperationException {
        Object metrics = SparkEnv.get().metricsSystem();
        // Seq is a different class in each Scala version.
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

    /** Computes for this many milliseconds. */
    public static String compute(int ms) {
        long until = System.nanoTime() + ms * 1_000_000L;
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
        return "computed";
    }
}
