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
 * One executor's loop of monitor, analyse, plan and execute (Middleware '19, §5): how many tasks
 * of each stage run, and the gate that holds the others.
 *
 * <p>A task enters before it does anything and leaves when it is done, on its own thread; what it
 * moved and waited for goes to its stage's {@link Controller}. {@link #slots()} is what the
 * scheduler should know, so that it sends no tasks that would stand at the gate. The knowledge
 * that outlives a stage is {@link Memory}, kept by the driver.
 *
 * <p>A task at the gate holds nothing that another needs, so the gate alone cannot deadlock. Where
 * tasks of one stage wait for each other all the same (receivers, barrier stages that were not
 * declared), nothing completes, and after {@code patience} the stage is let through.
 */
public final class Tuner {
    /** Stages without a task that are kept, since their next task may come. */
    private static final int IDLE_STAGES = 64;
    /** How often a task at the gate looks whether it was killed. */
    private static final long POLL_NS = TimeUnit.MILLISECONDS.toNanos(50);

    /** Told, without a lock held, of what others should know. */
    public interface Listener {
        /** {@link Tuner#slots()} may have changed. */
        void slotsChanged();

        /** A stage runs its first task here. */
        void began(long stage);

        /** A stage's concurrency is found. */
        void settled(long stage, int concurrency, Reason reason);
    }

    /** One task's leave to run. Held by the thread that entered; given back once. */
    public static final class Pass {
        private final Stage stage;
        private final boolean gated;
        private boolean held = true;
        /** When it began to run. */
        public final long startNs;

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
        /** At the gate, in the order in which they came. */
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
    /** The executor's, whatever {@code tuning.max} says. */
    private int own = Integer.MAX_VALUE;
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
     * @param cancelled whether the task was killed meanwhile; asked every 50 ms
     * @return its leave, to be given back; null where it was cancelled
     */
    public Pass enter(long stage, BooleanSupplier cancelled) throws InterruptedException {
        return enter(stage, cancelled, true);
    }

    /** As {@link #enter}, but lets the task through: it is counted, and tunes nothing. */
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

    /** As {@link #enter}, without waiting: null where the stage has as many as may run. */
    public Pass tryEnter(long stage) {
        try {
            return enter(stage, () -> true, false);
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private Pass enter(long id, BooleanSupplier cancelled, boolean wait) throws InterruptedException {
        boolean fresh;
        Pass pass = null;
        lock.lock();
        try {
            fresh = !stages.containsKey(id);
            Stage stage = stage(id);
            if (stage.idle()) {
                stage.progressNs = clock.getAsLong(); // what it was not here for is no standing still
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
                wake(stage); // who is first now may have room as well
            }
        } finally {
            lock.unlock();
        }
        if (fresh) {
            listener.began(id);
        }
        listener.slotsChanged();
        return pass;
    }

    private boolean mayEnter(Stage stage, Object self) {
        return open || stage.running < stage.limit() && stage.queue.peek() == self;
    }

    /**
     * A task ended well.
     *
     * @param bytes all that it read and wrote
     * @param waitNs how long it stalled on I/O
     * @return ζ if this ended an interval of its stage, in ns² a megabyte; else -1
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
                boolean was = stage.controller.settled();
                Sample sample = new Sample(pass.startNs, bytes, waitNs, stage.running);
                if (stage.controller.completed(now, sample)) {
                    index = stage.controller.lastIndex();
                }
                settled = stage.controller.settled() && !was;
            }
            giveBack(pass);
        } finally {
            lock.unlock();
        }
        if (settled) {
            listener.settled(stage.id, stage.controller.concurrency(), stage.controller.reason());
        }
        listener.slotsChanged();
        return index;
    }

    /** A task failed, was killed, or nobody knows: its leave is free, and it says nothing. */
    public void abandon(Pass pass) {
        lock.lock();
        try {
            if (pass.held) {
                giveBack(pass);
            }
        } finally {
            lock.unlock();
        }
        listener.slotsChanged();
    }

    private void giveBack(Pass pass) {
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
            stage.room.signalAll(); // who is not the first waits again
        }
    }

    /** A like stage was tuned before: this one stays at what it found. 0: all there is. */
    public void remember(long id, int found) {
        lock.lock();
        try {
            Stage stage = stages.get(id);
            // One that has come to its own end by now knows better; one that still climbs does not.
            if (stage != null && !stage.controller.settled()) {
                stage.controller.remember(found == 0 ? max : found);
                wake(stage);
            }
        } finally {
            lock.unlock();
        }
        listener.slotsChanged();
    }

    /** So many of a stage's tasks will come here, all in all. */
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

    /** The executor's slots became known. */
    public void setMax(int slots) {
        lock.lock();
        try {
            own = slots;
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

    /** Lets everybody through, for good: the plugin gets out of the way. */
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
     * How many tasks the scheduler should have here at once: of all stages that have any, what
     * each may run; the least where there is none, so that the next stage finds no crowd; the executor's
     * own where somebody is not gated.
     */
    public int slots() {
        lock.lock();
        try {
            if (open || ungated > 0) {
                return own;
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

    /** What the stage may run now; 0 where it is not known. */
    public int concurrency(long id) {
        lock.lock();
        try {
            Stage stage = stages.get(id);
            return stage == null ? 0 : Math.min(stage.limit(), max);
        } finally {
            lock.unlock();
        }
    }

    /** Why it may run as many; null where it is not known. */
    public Reason reason(long id) {
        lock.lock();
        try {
            Stage stage = stages.get(id);
            return stage == null ? null : stage.controller.reason();
        } finally {
            lock.unlock();
        }
    }

    /** The stage that began last; -1 before the first. */
    public long latestStage() {
        lock.lock();
        try {
            return latest == null ? -1 : latest.id;
        } finally {
            lock.unlock();
        }
    }

    /** Tasks that run, ungated ones too. */
    public int running() {
        lock.lock();
        try {
            return ungated + stages.values().stream().mapToInt(stage -> stage.running).sum();
        } finally {
            lock.unlock();
        }
    }

    /** Tasks at the gate. */
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
            forget();
            Controller controller = Controller.ofTasks(tuning.policy, tuning.min, max, tuning.gain);
            stage = new Stage(id, controller, lock.newCondition());
            stage.progressNs = clock.getAsLong();
            stages.put(id, stage);
            latest = stage;
        }
        return stage;
    }

    private void forget() {
        Iterator<Stage> oldest = stages.values().iterator();
        while (stages.size() >= IDLE_STAGES && oldest.hasNext()) {
            if (oldest.next().idle()) {
                oldest.remove();
            }
        }
    }
}
