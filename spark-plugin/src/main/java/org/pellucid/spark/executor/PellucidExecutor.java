package org.pellucid.spark.executor;

import java.io.IOException;
import java.util.Base64;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.util.TaskCompletionListener;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.core.Reason;
import org.pellucid.spark.io.FileIo;
import org.pellucid.spark.io.FileTotals;
import org.pellucid.spark.io.LocalFiles;
import org.pellucid.spark.metrics.Accumulables;
import org.pellucid.spark.metrics.Accumulables.Name;
import org.pellucid.spark.metrics.Gauges;
import org.pellucid.spark.metrics.TaskMeter;
import org.pellucid.spark.metrics.ThreadClock;
import org.pellucid.spark.settings.Settings;

/**
 * The executor's side of the plugin: meters every task, and lets the {@link ExecutorMode} decide when it runs.
 *
 * <p>Spark calls {@link #onTaskStart} on the task's thread before it deserialises the task's work, so a task
 * at the gate holds nothing. Its permit is returned when Spark completes the task, or at the latest when its
 * thread learns the outcome or starts the next task.
 */
public final class PellucidExecutor implements ExecutorPlugin {
    private PluginContext spark;
    private Settings settings;
    private Failsafe failsafe;
    private ExecutorMode mode = new MeasureOnly();
    private DriverClient driver;
    private ScheduledExecutorService background;
    /** Null if the plugin is off. */
    private byte[] accumulables;
    private final FileTotals files = new FileTotals();
    /** Wait for permits of all tasks. */
    private final LongAdder queuedNs = new LongAdder();
    private volatile long coresReportedFor = -1;

    @Override
    public void init(PluginContext context, Map<String, String> fromDriver) {
        spark = context;
        String template = fromDriver.get(Accumulables.KEY);
        failsafe = new Failsafe(Set.of(), () -> mode.open());
        if (template == null) {
            return; // the driver has logged the reason
        }
        failsafe.guard("init", () -> {
            settings = Settings.of(context.conf());
            failsafe = new Failsafe(settings.faults, () -> mode.open());
            failsafe.guard("init", () -> begin(template));
        });
    }

    private void begin(String template) throws IOException {
        background = Executors.newSingleThreadScheduledExecutor(task -> {
            Thread thread = new Thread(task, "pellucid");
            thread.setDaemon(true);
            return thread;
        });
        driver = new DriverClient(spark, background, failsafe);
        Gauges gauges = new Gauges(spark.metricRegistry());
        mode = newMode(gauges);
        driver.begin(mode);
        String problem = LocalFiles.install(spark.conf(), mode.queuesFiles());
        if (problem != null) {
            Failsafe.LOG.warn("Pellucid cannot measure reads and writes of files: {}", problem);
        } else if (!mode.queuesFiles()) {
            FileIo.install(new FileIo(failsafe, files));
        }
        addGauges(gauges);
        accumulables = Base64.getDecoder().decode(template);
        Failsafe.LOG.info("Pellucid: mode {}", settings.mode);
    }

    private ExecutorMode newMode(Gauges gauges) {
        switch (settings.mode) {
            case ADAPTIVE:
                return new Adaptive(settings.tuning, System::nanoTime, driver);
            case MONOTASKS:
                return new Monotasks(settings, failsafe, driver, files, gauges);
            default:
                return new MeasureOnly();
        }
    }

    private void addGauges(Gauges gauges) {
        gauges.add("slots", driver::slots);
        gauges.add("read.bytes", files::readBytes);
        gauges.add("read.wait_ns", files::readWaitNs);
        gauges.add("write.bytes", files::writeBytes);
        gauges.add("write.wait_ns", files::writeWaitNs);
        gauges.add("queue_ns", queuedNs::sum);
        gauges.add("shuffle.read.bytes", files::shuffleReadBytes);
        gauges.add("off", () -> failsafe.isTripped() ? 1 : 0);
        mode.addGauges(gauges);
    }

    @Override
    public void onTaskStart() {
        if (accumulables != null) {
            failsafe.guard("onTaskStart", this::start);
        }
    }

    private void start() throws Exception {
        finish();
        TaskContext context = TaskContext.get();
        TaskMeter task = new TaskMeter(context, Accumulables.ofTask(accumulables), queuedNs);
        // Tasks of a barrier stage wait for each other, so all must run at once.
        task.ungated = Settings.isOff(context.getLocalProperty(Settings.MODE)) || context instanceof BarrierTaskContext;
        task.attach();
        // The first listener is called last, when the task's streams are closed.
        context.addTaskCompletionListener(new Completion(task));
        driver.taskStarts(task.cores);
        mode.start(task);
    }

    private final class Completion implements TaskCompletionListener {
        private final TaskMeter task;

        Completion(TaskMeter task) {
            this.task = task;
        }

        @Override
        public void onTaskCompletion(TaskContext context) {
            try {
                failsafe.guard("onTaskCompletion", () -> complete(task));
            } finally {
                finish();
            }
        }
    }

    private void complete(TaskMeter task) {
        ThreadClock end = ThreadClock.now();
        int slots = task.ungated ? driver.ownSlots() : driver.slots();
        int tuned = mode.concurrency(task);
        Reason reason = tuned > 0 ? mode.reason(task) : Reason.FIXED;
        if (!task.context.isFailed() && !task.killed()) {
            mode.succeeded(task, end);
        }
        if (task.stage != coresReportedFor) {
            coresReportedFor = task.stage;
            task.accumulables.add(Name.CORES, Runtime.getRuntime().availableProcessors());
        }
        task.accumulables.add(Name.CONCURRENCY, Math.max(tuned > 0 ? tuned : slots, 1));
        task.accumulables.add(Name.REASON, reason.code);
        task.report(end);
    }

    /** Releases what the calling thread's task holds; does nothing if it holds nothing. */
    private void finish() {
        try {
            TaskMeter task = TaskMeter.ofThread();
            if (task != null) {
                task.detach();
            }
            mode.release();
        } catch (RuntimeException e) {
            failsafe.trip("finish", e);
        }
    }

    @Override
    public void onTaskSucceeded() {
        finish();
        failsafe.guard("onTaskSucceeded", () -> { });
    }

    @Override
    public void onTaskFailed(TaskFailedReason reason) {
        finish();
        failsafe.guard("onTaskFailed", () -> { });
    }

    @Override
    public void shutdown() {
        if (background != null) {
            background.shutdownNow();
            FileIo.install(null); // a local master's process may run another application next
            failsafe.guard("shutdown", () -> { });
        }
    }
}
