package org.pellucid.spark.core;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;

/**
 * One executor's loop of monitor, analyse, plan and execute (Middleware '19, §5): decides how many tasks
 * of each stage run, and holds the others at a gate.
 *
 * <p>A task enters before it does anything and leaves when it is done, on its own thread. The bytes it
 * moved and its wait go to its stage's {@link Controller}. {@link #slots()} is the number for the scheduler,
 * so that it sends no tasks that would only wait at the gate. Knowledge that outlives a stage is in
 * {@link Memory}, which the driver keeps.
 *
 * <p>A task at the gate holds nothing that another needs, so the gate alone cannot deadlock. But tasks of one
 * stage may wait for each other (receivers, undeclared barrier stages). Then nothing completes, and the gate
 * opens for the stage after {@code patience}.
 */
public final class Tuner {
    /** Maximum number of stages to keep that have no task, since more tasks may come. */
    private static final int IDLE_STAGES = 64;
    /** Interval at which a task at the gate checks whether it was killed. */
    private static final long POLL_NS = TimeUnit.MILLISECONDS.toNanos(50);

    /** Receives events that matter outside this executor. Called without a lock held. */
    public interface Listener {
        /** {@link Tuner#slots()} may have changed. */
        void slotsChanged();

        /** A stage's first task runs here. */
        void stageStarted(long stage);

        /** The tuning of a stage ended at this concurrency. */
        void stageSettled(long stage, int concurrency, Reason reason);
    }

    /** A permit for one task to run. Held by the thread that entered, and returned once. */
    public static final class Pass {
        private final Stage stage;
        private final boolean gated;
        private boolean held = true;
        /** When the task began to run. */
        private final long startNs;

        private Pass(Stage stage, boolean gated, long startNs) {
            this.stage = stage;
            this.gated = gated;
            this.startNs = startNs;
        }
    }

    private static final class Stage {
        final long id;
        final Controller controller;
        final Condition room;
        /** Tasks at the gate, in order of arrival. */
        final Deque<Object> queue = new ArrayDeque<>();
        int running;
        long progressNs;
        boolean open;

        Stage(long id, Controller controller, Condition room) {
            this.id = id;
            this.controller = controller;
            this.room = room;
        }

        int limit() {
            return open ? Integer.MAX_VALUE : controller.concurrency();
        }

        boolean idle() {
            return running == 0 && queue.isEmpty();
        }
    }

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Long, Stage> stages = new LinkedHashMap<>();
    private final Tuning tuning;
    private final LongSupplier clock;
    private final Listener listener;
    /** The executor's slots, regardless of {@code tuning.max}. */
    private int executorSlots = Integer.MAX_VALUE;
    private int max;
    private boolean open;
    private int ungated;
    private Stage latest;

    /**
     * @param clock nanoseconds, as {@link System#nanoTime}
     */
    public Tuner(Tuning tuning, LongSupplier clock, Listener listener) {
        this.tuning = tuning;
        this.clock = clock;
        this.listener = listener;
        this.max = tuning.max;
    }

    /**
     * Waits until one more task of the stage may run.
     *
     * @param cancelled whether the task was killed; polled every 50 ms
     * @return a permit, to be returned by leave or abandon; null if cancelled
     */
    public Pass enter(long stage, BooleanSupplier cancelled) throws InterruptedException {
        return enter(stage, cancelled, true);
    }

    /** Like {@link #enter}, but admits the task at once: it is counted, but tunes nothing. */
    public Pass enterUngated(long stage) {
        lock.lock();
        try {
            ungated++;
            return new Pass(null, false, clock.getAsLong());
        } finally {
            lock.unlock();
            listener.slotsChanged();
        }
    }

    /** Like {@link #enter}, but returns null instead of waiting. */
    public Pass tryEnter(long stage) {
        try {
            return enter(stage, () -> true, false);
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private Pass enter(long id, BooleanSupplier cancelled, boolean wait) throws InterruptedException {
        boolean isNew;
        Pass pass = null;
        lock.lock();
        try {
            isNew = !stages.containsKey(id);
            Stage stage = stage(id);
            if (stage.idle()) {
                stage.progressNs = clock.getAsLong(); // time without tasks does not count towards patience
            }
            Object self = new Object();
            stage.queue.add(self);
            try {
                while (!mayEnter(stage, self) && wait && !cancelled.getAsBoolean()) {
                    stage.room.awaitNanos(POLL_NS);
                    if (clock.getAsLong() - stage.progressNs > tuning.patienceNs) {
                        stage.open = true;
                    }
                }
                if (mayEnter(stage, self)) {
                    stage.running++;
                    long now = clock.getAsLong();
                    stage.controller.started(now);
                    pass = new Pass(stage, true, now);
                }
            } finally {
                stage.queue.remove(self);
                wake(stage); // the next in the queue may have room as well
            }
        } finally {
            lock.unlock();
        }
        if (isNew) {
            listener.stageStarted(id);
        }
        listener.slotsChanged();
        return pass;
    }

    private boolean mayEnter(Stage stage, Object self) {
        return open || stage.running < stage.limit() && stage.queue.peek() == self;
    }

    /**
     * Ends a task that succeeded.
     *
     * @param bytes all bytes that it read and wrote
     * @param waitNs how long it stalled on I/O
     * @return ζ if this ended an interval of its stage, in ns² per megabyte; else -1
     */
    public long leave(Pass pass, long bytes, long waitNs) {
        lock.lock();
        boolean settled = false;
        Stage stage = pass.stage;
        long index = -1;
        try {
            if (!pass.held) {
                return -1;
            }
            if (pass.gated) {
                long now = clock.getAsLong();
                boolean wasSettled = stage.controller.settled();
                Sample sample = new Sample(pass.startNs, bytes, waitNs, stage.running);
                if (stage.controller.completed(now, sample)) {
                    index = stage.controller.lastIndex();
                }
                settled = stage.controller.settled() && !wasSettled;
            }
            release(pass);
        } finally {
            lock.unlock();
        }
        if (settled) {
            listener.stageSettled(stage.id, stage.controller.concurrency(), stage.controller.reason());
        }
        listener.slotsChanged();
        return index;
    }

    /** Ends a task that failed, was killed, or whose outcome is unknown. Its values are not used for tuning. */
    public void abandon(Pass pass) {
        lock.lock();
        try {
            if (pass.held) {
                release(pass);
            }
        } finally {
            lock.unlock();
        }
        listener.slotsChanged();
    }

    private void release(Pass pass) {
        pass.held = false;
        if (!pass.gated) {
            ungated--;
            return;
        }
        pass.stage.running--;
        pass.stage.progressNs = clock.getAsLong();
        wake(pass.stage);
    }

    private void wake(Stage stage) {
        if (!stage.queue.isEmpty() && (open || stage.running < stage.limit())) {
            stage.room.signalAll(); // those that are not first wait again
        }
    }

    /** Sets a stage to what a similar stage found; {@link Memory#ALL} for all slots. */
    public void remember(long id, int found) {
        lock.lock();
        try {
            Stage stage = stages.get(id);
            // A settled stage has its own, better result; one that is still climbing does not.
            if (stage != null && !stage.controller.settled()) {
                stage.controller.remember(found == 0 ? max : found);
                wake(stage);
            }
        } finally {
            lock.unlock();
        }
        listener.slotsChanged();
    }

    /** Sets how many of a stage's tasks this executor will get in total. */
    public void expect(long id, int tasks) {
        lock.lock();
        try {
            Stage stage = stages.get(id);
            if (stage != null) {
                stage.controller.expect(tasks);
            }
        } finally {
            lock.unlock();
        }
    }

    /** Sets the executor's slots. */
    public void setMax(int slots) {
        lock.lock();
        try {
            executorSlots = slots;
            max = Math.min(slots, tuning.max);
            for (Stage stage : stages.values()) {
                stage.controller.setMax(max);
                wake(stage);
            }
        } finally {
            lock.unlock();
        }
        listener.slotsChanged();
    }

    /** Opens the gate for all tasks, for good. */
    public void open() {
        lock.lock();
        try {
            open = true;
            stages.values().forEach(stage -> stage.room.signalAll());
        } finally {
            lock.unlock();
        }
        listener.slotsChanged();
    }

    /**
     * Returns how many tasks the scheduler should run here at once: the sum over all stages with tasks; the
     * minimum if there are none, so that the next stage does not start with a crowd; the executor's own slots
     * while a task is not gated.
     */
    public int slots() {
        lock.lock();
        try {
            if (open || ungated > 0) {
                return executorSlots;
            }
            long sum = 0;
            for (Stage stage : stages.values()) {
                sum += stage.idle() ? 0 : stage.limit();
            }
            return (int) Math.min(sum == 0 ? tuning.min : sum, max);
        } finally {
            lock.unlock();
        }
    }

    /** Returns the stage's current concurrency; 0 if unknown. */
    public int concurrency(long id) {
        lock.lock();
        try {
            Stage stage = stages.get(id);
            return stage == null ? 0 : Math.min(stage.limit(), max);
        } finally {
            lock.unlock();
        }
    }

    /** Returns the reason for the stage's concurrency; null if unknown. */
    public Reason reason(long id) {
        lock.lock();
        try {
            Stage stage = stages.get(id);
            return stage == null ? null : stage.controller.reason();
        } finally {
            lock.unlock();
        }
    }

    /** Returns the stage that started last; -1 before the first. */
    public long latestStage() {
        lock.lock();
        try {
            return latest == null ? -1 : latest.id;
        } finally {
            lock.unlock();
        }
    }

    /** Returns the number of running tasks, ungated ones included. */
    public int running() {
        lock.lock();
        try {
            return ungated + stages.values().stream().mapToInt(stage -> stage.running).sum();
        } finally {
            lock.unlock();
        }
    }

    /** Returns the number of tasks at the gate. */
    public int waiting() {
        lock.lock();
        try {
            return stages.values().stream().mapToInt(stage -> stage.queue.size()).sum();
        } finally {
            lock.unlock();
        }
    }

    private Stage stage(long id) {
        Stage stage = stages.get(id);
        if (stage == null) {
            evictIdle();
            Controller controller = Controller.ofTasks(tuning.policy, tuning.min, max, tuning.gain);
            stage = new Stage(id, controller, lock.newCondition());
            stage.progressNs = clock.getAsLong();
            stages.put(id, stage);
            latest = stage;
        }
        return stage;
    }

    private void evictIdle() {
        Iterator<Stage> oldest = stages.values().iterator();
        while (stages.size() >= IDLE_STAGES && oldest.hasNext()) {
            if (oldest.next().idle()) {
                oldest.remove();
            }
        }
    }
}
