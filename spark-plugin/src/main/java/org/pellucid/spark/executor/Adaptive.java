package org.pellucid.spark.executor;

import java.util.function.LongSupplier;
import org.pellucid.spark.core.Memory;
import org.pellucid.spark.core.Reason;
import org.pellucid.spark.core.Tuner;
import org.pellucid.spark.core.Tuning;
import org.pellucid.spark.metrics.Accumulables.Name;
import org.pellucid.spark.metrics.Gauges;
import org.pellucid.spark.metrics.TaskMeter;
import org.pellucid.spark.metrics.ThreadClock;

/** The mode {@code adaptive}: a {@link Tuner} holds tasks at a gate, and the driver tells what similar stages found. */
final class Adaptive implements ExecutorMode, Tuner.Listener {
    private final DriverClient driver;
    private final Tuner tuner;
    /** The pass of the thread's task; none if the task was killed at the gate. */
    private final ThreadLocal<Tuner.Pass> pass = new ThreadLocal<>();
    private volatile long lastIndex = -1;

    /**
     * @param clock nanoseconds, as {@link System#nanoTime}
     */
    Adaptive(Tuning tuning, LongSupplier clock, DriverClient driver) {
        this.driver = driver;
        this.tuner = new Tuner(tuning, clock, this);
    }

    Tuner tuner() {
        return tuner;
    }

    @Override
    public boolean adjustsSlots() {
        return true;
    }

    @Override
    public void setOwnSlots(int slots) {
        tuner.setMax(slots);
    }

    @Override
    public int slotsWanted(int own) {
        return tuner.slots();
    }

    @Override
    public void start(TaskMeter task) throws InterruptedException {
        if (task.ungated) {
            pass.set(tuner.enterUngated(task.stage));
            return;
        }
        long from = System.nanoTime();
        try {
            pass.set(tuner.enter(task.stage, task::killed));
        } finally {
            task.passedGate(System.nanoTime() - from);
        }
    }

    @Override
    public int concurrency(TaskMeter task) {
        return pass.get() == null ? 0 : tuner.concurrency(task.stage);
    }

    @Override
    public Reason reason(TaskMeter task) {
        return tuner.reason(task.stage);
    }

    @Override
    public void succeeded(TaskMeter task, ThreadClock end) {
        if (pass.get() != null) {
            long index = tuner.leave(pass.get(), task.bytes(), task.ioWaitNs(end));
            if (index >= 0) {
                lastIndex = index;
                task.accumulables.add(Name.INDEX_NS2_PER_MB, index);
            }
        }
    }

    @Override
    public void release() {
        Tuner.Pass held = pass.get();
        if (held != null) {
            pass.remove();
            tuner.abandon(held);
        }
    }

    @Override
    public void open() {
        tuner.open();
        driver.restoreSlots();
    }

    @Override
    public void slotsChanged() {
        driver.slotsChanged();
    }

    @Override
    public void stageStarted(long stage) {
        driver.stage(stage, answer -> {
            if (answer.length > 0) {
                tuner.expect(stage, Integer.parseInt(answer[0]));
            }
            if (answer.length > 1) {
                tuner.remember(stage, Integer.parseInt(answer[1]));
            }
        });
    }

    @Override
    public void stageSettled(long stage, int concurrency, Reason reason) {
        if (reason == Reason.REMEMBERED || reason == Reason.FIXED) {
            return;
        }
        boolean all = reason == Reason.NOT_BOUND_BY_IO || reason == Reason.AT_MAXIMUM;
        driver.settled(stage, all ? Memory.ALL : concurrency);
    }

    @Override
    public void addGauges(Gauges gauges) {
        gauges.add("tasks.running", tuner::running);
        gauges.add("tasks.waiting", tuner::waiting);
        gauges.add("stage", () -> tuner.latestStage() < 0 ? -1 : tuner.latestStage() >> 32);
        gauges.add("concurrency", () -> tuner.concurrency(tuner.latestStage()));
        gauges.add("reason", () -> {
            Reason reason = tuner.reason(tuner.latestStage());
            return reason == null ? 0 : reason.code;
        });
        gauges.add("index.ns2_per_mb", () -> lastIndex);
    }
}
