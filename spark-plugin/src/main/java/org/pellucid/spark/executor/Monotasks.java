package org.pellucid.spark.executor;

import java.util.Collections;
import java.util.List;
import java.util.Set;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.core.BoundedMap;
import org.pellucid.spark.core.Controller;
import org.pellucid.spark.core.Cores;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.io.Disks;
import org.pellucid.spark.io.FileIo;
import org.pellucid.spark.io.FileTotals;
import org.pellucid.spark.metrics.Gauges;
import org.pellucid.spark.metrics.TaskMeter;
import org.pellucid.spark.settings.Settings;
import org.pellucid.spark.shuffle.ShuffleFiles;
import org.pellucid.spark.shuffle.ShuffleReads;

/** The mode {@code monotasks}: tasks compute on the executor's cores only, and I/O queues per disk. */
final class Monotasks implements ExecutorMode {
    private static final int MAX_STAGES = 1000;
    /** Slots beyond those for cores and disks: four for the network, and one (Monotasks, SOSP '17, §3.4). */
    private static final int EXTRA_SLOTS = 4 + 1;

    private final Failsafe failsafe;
    private final DriverClient driver;
    private final FileTotals files;
    private final Gauges gauges;
    private final Disks disks;
    private final long patienceNs;
    /** Stages that ran here. With a new one each disk's permits are tuned again. */
    private final Set<Long> stages = Collections.newSetFromMap(Collections.synchronizedMap(new BoundedMap<>(MAX_STAGES)));
    private ShuffleFiles shuffles;
    /** Null until the number of cores is known; until then tasks are not gated. */
    private volatile Cores cores;

    Monotasks(Settings settings, Failsafe failsafe, DriverClient driver, FileTotals files, Gauges gauges) {
        this.failsafe = failsafe;
        this.driver = driver;
        this.files = files;
        this.gauges = gauges;
        this.patienceNs = settings.tuning.patienceNs;
        this.disks = new Disks(settings.disks, settings.diskMax, () -> Controller.ofMonotasks(
            settings.tuning.policy, settings.diskMin, settings.diskMax, settings.tuning.gain), this::newDisk);
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

    @Override
    public boolean queuesFiles() {
        return true;
    }

    @Override
    public boolean adjustsSlots() {
        return true;
    }

    /** Gates cores and files from now on. */
    @Override
    public void coresKnown(int count) {
        Cores gate = new Cores(count, patienceNs);
        FileIo io = new FileIo(failsafe, files, gate, disks, () -> slotsWanted(driver.ownSlots()));
        shuffles = new ShuffleFiles(io, driver::shuffles, () -> slotsWanted(driver.ownSlots()));
        cores = gate;
        FileIo.install(io);
    }

    @Override
    public void setOwnSlots(int slots) {
        driver.slotsChanged();
    }

    @Override
    public int slotsWanted(int own) {
        return own + disks.maxPermits() + EXTRA_SLOTS;
    }

    /** Reads the task's shuffle blocks into the page cache, then takes a core. */
    @Override
    public void start(TaskMeter task) throws InterruptedException {
        if (cores == null || task.ungated) {
            return;
        }
        if (stages.add(task.stage)) {
            disks.all().forEach(DiskQueue::restart);
        }
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

    @Override
    public void release() {
        if (cores != null) {
            cores.release();
        }
    }

    @Override
    public void open() {
        if (cores != null) {
            cores.open();
        }
        disks.all().forEach(DiskQueue::open);
        driver.restoreSlots();
    }

    @Override
    public void addGauges(Gauges all) {
        ExecutorMode.super.addGauges(all);
        all.add("cores.held", () -> cores == null ? 0 : cores.holders());
        all.add("disk.running", () -> disks.all().stream().mapToInt(DiskQueue::running).sum());
        all.add("disk.waiting", () -> disks.all().stream().mapToInt(DiskQueue::waiting).sum());
        all.add("disk.permits", () -> disks.all().stream().mapToInt(DiskQueue::permits).sum());
        all.add("disk.peak", () -> disks.all().stream().mapToInt(DiskQueue::peak).max().orElse(0));
    }
}
