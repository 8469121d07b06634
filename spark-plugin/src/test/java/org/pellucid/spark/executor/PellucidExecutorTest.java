package org.pellucid.spark.executor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.util.LongAccumulator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.io.FileIo;
import org.pellucid.spark.io.LocalFiles;
import org.pellucid.spark.metrics.Accumulables;
import org.pellucid.spark.settings.MapConf;
import org.pellucid.spark.settings.Settings;

/** The executor's side with a fake driver and fake tasks: the slots requested from Spark, and what is gated. */
class PellucidExecutorTest {
    private static final int CORES = 8;

    @TempDir
    Path folder;
    private final PellucidExecutor executor = new PellucidExecutor();
    private final MetricRegistry metrics = new MetricRegistry();
    /** Cores requested from the driver, in order. */
    private final List<Integer> requested = new CopyOnWriteArrayList<>();
    private volatile boolean fails;

    private void begin(String... settings) throws IOException {
        Map<String, String> all = new TreeMap<>();
        for (int i = 0; i < settings.length; i += 2) {
            all.put(Settings.PREFIX + settings[i], settings[i + 1]);
        }
        SparkConf conf = new MapConf(all);
        PluginContext context = (PluginContext) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {PluginContext.class}, (self, method, arguments) -> {
                switch (method.getName()) {
                    case "conf":
                        return conf;
                    case "executorID":
                        return "1";
                    case "metricRegistry":
                        return metrics;
                    case "ask":
                        return answer((String[]) arguments[0]);
                    case "send":
                        receive((String[]) arguments[0]);
                        return null;
                    default:
                        throw new AssertionError(method);
                }
            });
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(new LongAccumulator[Accumulables.Name.values().length]); // no task of these tests reports
        }
        String template = Base64.getEncoder().encodeToString(bytes.toByteArray());
        executor.init(context, Map.of(Accumulables.KEY, template));
    }

    private static String[] answer(String[] question) {
        switch (question[0]) {
            case "executor":
                return new String[] {Integer.toString(CORES), "true"};
            case "stage":
                return new String[] {"64"};
            default:
                return new String[] {"1"};
        }
    }

    private void receive(String[] message) throws IOException {
        if (message[0].equals("cores")) {
            requested.add(Integer.parseInt(message[2]));
            if (fails) {
                throw new IOException("the driver is gone");
            }
        }
    }

    @AfterEach
    void end() {
        if (TaskContext.get() != null) {
            executor.onTaskFailed(null);
            TaskContext$.MODULE$.unset();
        }
        executor.shutdown();
    }

    /** Waits for another thread; the generous deadline passes only if it never acts. */
    private void untilRequested(Integer... cores) {
        until(() -> requested.equals(List.of(cores)));
    }

    private void until(BooleanSupplier condition) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, "requested " + requested);
            Thread.onSpinWait();
        }
    }

    /** Starts a task of stage 0 with a minimal context, which has no metrics. */
    private void startTask(String mode) throws ReflectiveOperationException {
        Properties local = new Properties();
        if (mode != null) {
            local.setProperty(Settings.MODE, mode);
        }
        Constructor<?> constructor = TaskContextImpl.class.getConstructors()[0];
        Object[] arguments = Arrays.stream(constructor.getParameterTypes())
            .map(type -> type == int.class ? (Object) 0 : type == long.class ? 0L : type == Properties.class ? local : null)
            .toArray();
        TaskContext$.MODULE$.setTaskContext((TaskContext) constructor.newInstance(arguments));
        executor.onTaskStart();
    }

    private long gauge(String name) {
        return (Long) metrics.getGauges().get(name).getValue();
    }

    @Test
    void failureRestoresExecutorsOwnSlots() throws Exception {
        begin("mode", "adaptive", "fault", "onTaskSucceeded");
        untilRequested(2);
        executor.onTaskSucceeded();
        untilRequested(2, CORES);
        executor.onTaskSucceeded();
        assertEquals(CORES, gauge("slots"));
        assertEquals(1, gauge("off"));
    }

    @Test
    void failureRestoresSlotsAboveConcurrencyMax() throws Exception {
        begin("mode", "adaptive", "fault", "onTaskSucceeded", "concurrency.max", "2");
        untilRequested(2);
        executor.onTaskSucceeded();
        untilRequested(2, CORES);
    }

    @Test
    void failureRestoresSlotsInMonotasksMode() throws Exception {
        begin("mode", "monotasks", "fault", "onTaskSucceeded");
        untilRequested(CORES + 4 + 4 + 1);
        executor.onTaskSucceeded();
        untilRequested(CORES + 4 + 4 + 1, CORES);
    }

    @Test
    void unreachableDriverDoesNotTripFailsafe() throws Exception {
        begin("mode", "adaptive", "fault", "onTaskSucceeded");
        untilRequested(2);
        fails = true;
        executor.onTaskSucceeded();
        untilRequested(2, CORES);
        executor.onTaskSucceeded();
        startTask(null);
    }

    @Test
    void slotsGrowWithEachNewDisk() throws Exception {
        begin("mode", "monotasks", "disks", folder.resolve("a") + "," + folder.resolve("b"), "disk.concurrency.max", "3");
        untilRequested(CORES + 2 * 3 + 4 + 1);
        until(() -> FileIo.installed() != null);
        FileIo.installed().queueOf(folder.resolve("a/file").toFile());
        FileIo.installed().queueOf(folder.resolve("b/file").toFile());
        DiskQueue third = FileIo.installed().queueOf(folder.resolve("elsewhere").toFile());
        untilRequested(CORES + 2 * 3 + 4 + 1, CORES + 3 * 3 + 4 + 1);
        assertNotNull(third);
        long each = metrics.getGauges().keySet().stream().filter(name -> name.matches("disk\\..+\\.permits")).count();
        assertEquals(3, each, metrics.getGauges().keySet().toString());
        String first = "disk." + (folder + "/a").substring(1).replaceAll("[^A-Za-z0-9_-]+", "_");
        assertEquals(1, gauge(first + ".permits"));
        assertEquals(1, gauge(first + ".reason"));
        assertEquals(0, gauge(first + ".peak"));
        assertEquals(0, gauge(first + ".over"));
    }

    @Test
    void closingFileSystemKeepsItForOtherTasks() throws Exception {
        begin("mode", "measure");
        until(() -> FileIo.installed() != null);
        FileSystem files = FileSystem.get(URI.create("file:///"), new Configuration(false));
        assertInstanceOf(LocalFiles.class, files);
        Path ours = Files.createFile(folder.resolve("gone"));
        files.deleteOnExit(new org.apache.hadoop.fs.Path(ours.toUri()));
        files.close();
        assertFalse(Files.exists(ours), "deleteOnExit works as in stock Hadoop");
        assertSame(files, FileSystem.get(URI.create("file:///"), new Configuration(false)));
    }

    @Test
    void queueMetricIncludesCoreAndDiskWaits() throws Exception {
        begin("mode", "monotasks");
        until(() -> FileIo.installed() != null);
        assertEquals(0, gauge("queue_ns"));
        startTask(null);
        long first = gauge("queue_ns");
        assertTrue(first > 0, "waits for a core");
        FileIo io = FileIo.installed();
        io.begin(io.queueOf(folder.resolve("file").toFile()), DiskQueue.Phase.READ).close();
        assertTrue(gauge("queue_ns") > first, "waits for a disk, and for a core again");
    }

    @Test
    void queueMetricIncludesGateWait() throws Exception {
        begin("mode", "adaptive");
        untilRequested(2);
        startTask(null);
        assertTrue(gauge("queue_ns") > 0);
        assertEquals(1, gauge("tasks.running"));
    }

    @Test
    void jobThatIsOffIsNotGatedAndNextOneIs() throws Exception {
        begin("mode", "monotasks");
        until(() -> FileIo.installed() != null);
        File file = folder.resolve("file").toFile();
        for (int round = 0; round < 2; round++) {
            startTask(round == 0 ? "off" : "measure");
            assertEquals(0, gauge("cores.held"));
            assertNull(FileIo.installed().queueOf(file), "not gated");
            executor.onTaskSucceeded();
            startTask(round == 0 ? null : "monotasks");
            assertEquals(1, gauge("cores.held"));
            assertNotNull(FileIo.installed().queueOf(file));
            executor.onTaskSucceeded();
            assertEquals(0, gauge("cores.held"));
        }
        assertEquals(0, gauge("off"), "failsafe not tripped");
    }
}
