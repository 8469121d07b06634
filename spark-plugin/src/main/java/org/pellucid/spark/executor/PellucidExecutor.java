package org.pellucid.spark.executor;

import java.io.IOException;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
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
import org.pellucid.spark.core.BoundedMap;
import org.pellucid.spark.core.Controller;
import org.pellucid.spark.core.Cores;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.Reason;
import org.pellucid.spark.core.Tuner;
import org.pellucid.spark.io.Disks;
import org.pellucid.spark.io.FileIo;
import org.pellucid.spark.io.FileTotals;
import org.pellucid.spark.io.LocalFiles;
import org.pellucid.spark.metrics.Accumulables;
import org.pellucid.spark.metrics.Accumulables.Name;
import org.pellucid.spark.metrics.Gauges;
import org.pellucid.spark.metrics.TaskMeter;
import org.pellucid.spark.metrics.ThreadClock;
import org.pellucid.spark.settings.Settings;
import org.pellucid.spark.shuffle.ShuffleFiles;
import org.pellucid.spark.shuffle.ShuffleReads;

/**
 * The executor's side of the plugin: the gate, the task meters, and the file system.
 *
 * <p>Spark calls {@link #onTaskStart} on the task's thread before it deserialises the task's work, so a task
 * at the gate holds nothing. Its permit is returned when Spark completes the task, or at the latest when its
 * thread learns the outcome or starts the next task.
 */
public final class PellucidExecutor implements ExecutorPlugin {
    private static final int MAX_STAGES = 1000;

    private PluginContext spark;
    private Gauges gauges;
    private Settings settings;
    private Failsafe failsafe;
    private Tuner tuner;
    private volatile Cores cores;
    private Disks disks;
    private final FileTotals files = new FileTotals();
    private ShuffleFiles shuffles;
    private DriverClient driver;
    private byte[] accumulables;
    private ScheduledExecutorService background;
    /** Stages that ran here, in monotasks mode. With a new one each disk's permits are tuned again. */
    private final Set<Long> stages = Collections.newSetFromMap(Collections.synchronizedMap(new BoundedMap<>(MAX_STAGES)));
    /** Wait for permits of all tasks. */
    private final LongAdder queuedNs = new LongAdder();
    private volatile long lastIndex = -1;
    private volatile long coresReportedFor = -1;

    @Override
    public void init(PluginContext context, Map<String, String> fromDriver) {
        spark = context;
        String template = fromDriver.get(Accumulables.KEY);
        failsafe = new Failsafe(Set.of(), this::openGates);
        if (template == null) {
            return; // the driver has logged the reason
        }
        failsafe.guard("init", () -> {
            settings = Settings.of(context.conf());
            failsafe = new Failsafe(settings.faults, this::openGates);
            failsafe.guard("init", () -> begin(template));
        });
    }

    private void begin(String template) throws IOException {
        gauges = new Gauges(spark.metricRegistry());
        background = Executors.newSingleThreadScheduledExecutor(task -> {
            Thread thread = new Thread(task, "pellucid");
            thread.setDaemon(true);
            return thread;
        });
        driver = new DriverClient(spark, background);
        tuner = new Tuner(settings.tuning, System::nanoTime, driver);
        if (settings.mode == Settings.Mode.MONOTASKS) {
            disks = new Disks(settings.disks, settings.diskMax, () -> Controller.ofMonotasks(
                settings.tuning.policy, settings.diskMin, settings.diskMax, settings.tuning.gain), this::newDisk);
        }
        driver.begin(this, tuner, failsafe, settings.mode);
        String problem = LocalFiles.install(spark.conf(), settings.mode == Settings.Mode.MONOTASKS);
        if (problem != null) {
            Failsafe.LOG.warn("Pellucid cannot measure reads and writes of files: {}", problem);
        } else if (settings.mode != Settings.Mode.MONOTASKS) {
            FileIo.install(new FileIo(failsafe, files));
        }
        addGauges();
        accumulables = Base64.getDecoder().decode(template);
        Failsafe.LOG.info("Pellucid: mode {}", settings.mode);
    }

    /** Sets the executor's cores. In {@code monotasks} mode, cores and files are gated from now on. */
    void coresKnown(int count) {
        if (settings.mode == Settings.Mode.MONOTASKS) {
            Cores gate = new Cores(count, settings.tuning.patienceNs);
            FileIo io = new FileIo(failsafe, files, gate, disks, () -> slotsWanted(driver.ownSlots()));
            shuffles = new ShuffleFiles(io, driver::shuffles, () -> slotsWanted(driver.ownSlots()));
            cores = gate;
            FileIo.install(io);
        }
    }

    /** Returns the slots that Spark should use here, given the executor's own. */
    int slotsWanted(int own) {
        if (settings.mode == Settings.Mode.MONOTASKS) {
            return own + disks.maxPermits() + 4 + 1; // disks, four for the network, and one (Monotasks §3.4)
        }
        return tuner.slots();
    }

    private void newDisk(String name, DiskQueue disk) {
        String plain = "disk." + name.replaceAll("[^A-Za-z0-9_-]+", " ").trim().replace(' ', '_');
        while (gauges.contains(plain + ".permits")) {
            plain += "_";
        }
        gauges.add(plain + ".permits", disk::permits);
        gauges.add(plain + ".reason", () -> disk.reason().code);
        gauges.add(plain + ".peak", disk::peak);
        gauges.add(plain + ".over", disk::over);
        driver.slotsChanged();
    }

    private void openGates() {
        if (tuner != null) {
            tuner.open();
        }
        if (cores != null) {
            cores.open();
        }
        if (disks != null) {
            disks.all().forEach(DiskQueue::open);
        }
        if (driver != null) {
            driver.restoreSlots();
        }
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
        if (settings.mode == Settings.Mode.ADAPTIVE) {
            if (task.ungated) {
                task.pass = tuner.enterUngated(task.stage);
            } else {
                passGate(task);
            }
        } else if (settings.mode == Settings.Mode.MONOTASKS && cores != null && !task.ungated) {
            if (stages.add(task.stage)) {
                disks.all().forEach(DiskQueue::restart);
            }
            fetchAndCompute(task);
        }
    }

    private void passGate(TaskMeter task) throws InterruptedException {
        long from = System.nanoTime();
        try {
            task.pass = tuner.enter(task.stage, task::killed);
        } finally {
            task.passedGate(System.nanoTime() - from);
        }
    }

    /** Reads the task's shuffle blocks into the page cache, then takes a core. */
    private void fetchAndCompute(TaskMeter task) throws InterruptedException {
        List<ShuffleReads> all = shuffles.fetch(task);
        takeCore(task);
        // The page cache may have dropped the blocks meanwhile. Retry only once: if memory is that short, Spark
        // has to read them.
        if (!all.stream().allMatch(reads -> reads.cached(task.context.partitionId()))) {
            cores.release();
            shuffles.fetch(task);
            takeCore(task);
        }
    }

    private void takeCore(TaskMeter task) throws InterruptedException {
        long from = System.nanoTime();
        try {
            cores.acquire(task.cores, task::killed);
        } finally {
            task.queued(System.nanoTime() - from);
        }
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
        int concurrency = task.ungated ? driver.ownSlots() : driver.slots();
        Reason reason = Reason.FIXED;
        if (task.pass != null) {
            if (tuner.concurrency(task.stage) > 0) {
                concurrency = tuner.concurrency(task.stage);
                reason = tuner.reason(task.stage);
            }
            if (!task.context.isFailed() && !task.killed()) {
                long index = tuner.leave(task.pass, task.bytes(), task.ioWaitNs(end));
                if (index >= 0) {
                    lastIndex = index;
                    task.accumulables.add(Name.INDEX_NS2_PER_MB, index);
                }
            }
        }
        if (task.stage != coresReportedFor) {
            coresReportedFor = task.stage;
            task.accumulables.add(Name.CORES, Runtime.getRuntime().availableProcessors());
        }
        task.accumulables.add(Name.CONCURRENCY, Math.max(concurrency, 1));
        task.accumulables.add(Name.REASON, reason.code);
        task.report(end);
    }

    /** Releases what the calling thread's task holds; does nothing if it holds nothing. */
    private void finish() {
        try {
            TaskMeter task = TaskMeter.ofThread();
            if (task != null) {
                task.detach();
                if (task.pass != null) {
                    tuner.abandon(task.pass);
                }
            }
            if (cores != null) {
                cores.release();
            }
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

    private void addGauges() {
        gauges.add("slots", () -> driver.slots());
        gauges.add("tasks.running", tuner::running);
        gauges.add("tasks.waiting", tuner::waiting);
        gauges.add("stage", () -> tuner.latestStage() < 0 ? -1 : tuner.latestStage() >> 32);
        gauges.add("concurrency", () -> tuner.concurrency(tuner.latestStage()));
        gauges.add("reason", () -> {
            Reason reason = tuner.reason(tuner.latestStage());
            return reason == null ? 0 : reason.code;
        });
        gauges.add("index.ns2_per_mb", () -> lastIndex);
        gauges.add("read.bytes", files::readBytes);
        gauges.add("read.wait_ns", files::readWaitNs);
        gauges.add("write.bytes", files::writeBytes);
        gauges.add("write.wait_ns", files::writeWaitNs);
        gauges.add("queue_ns", queuedNs::sum);
        gauges.add("shuffle.read.bytes", files::shuffleReadBytes);
        gauges.add("off", () -> failsafe.isTripped() ? 1 : 0);
        if (disks != null) {
            gauges.add("cores.held", () -> cores == null ? 0 : cores.holders());
            gauges.add("disk.running", () -> disks.all().stream().mapToInt(DiskQueue::running).sum());
            gauges.add("disk.waiting", () -> disks.all().stream().mapToInt(DiskQueue::waiting).sum());
            gauges.add("disk.permits", () -> disks.all().stream().mapToInt(DiskQueue::permits).sum());
            gauges.add("disk.peak", () -> disks.all().stream().mapToInt(DiskQueue::peak).max().orElse(0));
        }
    }
}
