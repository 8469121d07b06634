package org.pellucid.spark.core;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * The queue of one disk (Monotasks, SOSP '17, §3.3). As many threads do I/O as the disk has permits; the
 * others wait, and phases take turns, so that a queue of writes does not keep new tasks from reading.
 *
 * <p>A {@link Controller} decides the number of permits. One monotask is one sample, and all of its service
 * time is wait. Thread-safe. A wait ends on interrupt, and when the task is killed.
 */
public final class DiskQueue {
    private static final long POLL_NS = TimeUnit.MILLISECONDS.toNanos(50);

    /** The phases of a task's disk monotasks: its input, its output, and its shuffle reads. Each has its own queue. */
    public enum Phase { READ, WRITE, SHUFFLE_READ }

    /** A permit to do I/O, for the thread that acquired it. */
    public final class Turn implements AutoCloseable {
        private final Condition granted = lock.newCondition();
        private boolean held;
        private long startNs;
        private long bytes = -1;
        private int permits;
        private int concurrent;

        /** Returns the disk's number of permits when this one was granted. */
        public int permits() {
            return permits;
        }

        /** Returns the number of threads in gated I/O at that time, this one included. */
        int concurrent() {
            return concurrent;
        }

        /** Records that the I/O succeeded and moved this many bytes; without this call the controller ignores it. */
        public void moved(long count) {
            bytes = count;
        }

        /** Releases the permit; later calls do nothing. */
        @Override
        public void close() {
            release(this);
        }
    }

    private final ReentrantLock lock = new ReentrantLock();
    private final List<Deque<Turn>> phases = new ArrayList<>();
    private final Controller controller;
    private final LongSupplier clock;
    private int next;
    private int running;
    private int peak;
    private int over;
    private boolean open;

    /**
     * @param controller decides the number of permits; must not be shared
     * @param clock nanoseconds
     */
    public DiskQueue(Controller controller, LongSupplier clock) {
        this.controller = controller;
        this.clock = clock;
        for (int i = 0; i < Phase.values().length; i++) {
            phases.add(new ArrayDeque<>());
        }
    }

    /**
     * Waits for a permit.
     *
     * @return the permit, to be closed after the I/O; null if cancelled
     */
    public Turn acquire(Phase phase, BooleanSupplier cancelled) throws InterruptedException {
        lock.lock();
        try {
            Turn turn = new Turn();
            Deque<Turn> queue = phases.get(phase.ordinal());
            queue.add(turn);
            grant();
            try {
                while (!turn.held && !cancelled.getAsBoolean()) {
                    turn.granted.awaitNanos(POLL_NS);
                }
            } catch (InterruptedException e) {
                if (turn.held) {
                    turn.held = false;
                    running--;
                    grant();
                }
                throw e;
            } finally {
                queue.remove(turn);
            }
            return turn.held ? turn : null;
        } finally {
            lock.unlock();
        }
    }

    private void release(Turn turn) {
        lock.lock();
        try {
            if (!turn.held) {
                return;
            }
            turn.held = false;
            if (turn.bytes >= 0) {
                Sample sample = new Sample(turn.startNs, turn.bytes, Sample.ALL_WAIT, running);
                controller.completed(clock.getAsLong(), sample);
            }
            running--;
            grant();
        } finally {
            lock.unlock();
        }
    }

    /**
     * Climbs again from the minimum, because other stages run. I/O beyond the minimum goes on; until it has
     * ended nothing is granted, and the controller counts from the first grant after that.
     */
    public void restart() {
        lock.lock();
        try {
            controller.restart();
            grant();
        } finally {
            lock.unlock();
        }
    }

    /** Admits all waiters, now and in future. */
    public void open() {
        lock.lock();
        try {
            open = true;
            grant();
        } finally {
            lock.unlock();
        }
    }

    /** Returns the current number of permits. */
    public int permits() {
        return locked(() -> controller.concurrency());
    }

    /** Returns the reason for that number. */
    public Reason reason() {
        return locked(() -> controller.reason());
    }

    /** Returns the number of threads in gated I/O. */
    public int running() {
        return locked(() -> running);
    }

    /** Returns the largest number of threads that were ever in gated I/O at once. */
    public int peak() {
        return locked(() -> peak);
    }

    /** Returns by how many threads in gated I/O ever exceeded the permits on admission: 0 unless the queue was opened. */
    public int over() {
        return locked(() -> over);
    }

    /** Returns the number of waiting threads. */
    public int waiting() {
        return locked(() -> phases.stream().mapToInt(Deque::size).sum());
    }

    private <T> T locked(Supplier<T> state) {
        lock.lock();
        try {
            return state.get();
        } finally {
            lock.unlock();
        }
    }

    private void grant() {
        while (open || running < controller.concurrency()) {
            Turn turn = nextInTurn();
            if (turn == null) {
                return;
            }
            turn.held = true;
            turn.startNs = clock.getAsLong();
            controller.started(turn.startNs);
            running++;
            peak = Math.max(peak, running);
            turn.permits = controller.concurrency();
            over = Math.max(over, running - turn.permits);
            turn.concurrent = running;
            turn.granted.signal();
        }
    }

    /** Returns a waiter of the next phase in turn that has one; null if none waits. */
    private Turn nextInTurn() {
        for (int i = 0; i < phases.size(); i++) {
            int phase = (next + i) % phases.size();
            Turn turn = phases.get(phase).poll();
            if (turn != null) {
                next = (phase + 1) % phases.size();
                return turn;
            }
        }
        return null;
    }
}
