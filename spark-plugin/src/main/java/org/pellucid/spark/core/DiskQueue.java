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
 * The queue of one disk (Monotasks, SOSP '17, §3.3): as many threads do I/O on it as it has
 * permits, and the others wait in turns of phases, so that a queue of writes does not keep new
 * tasks from their reads.
 *
 * <p>How many permits is a {@link Controller}'s to say: one monotask is one sample, all of whose
 * service time is wait. Thread-safe; a wait ends on interrupt and where the task was killed.
 */
public final class DiskQueue {
    private static final long POLL_NS = TimeUnit.MILLISECONDS.toNanos(50);

    /** What a monotask is to its task: its input, its output, what it reads of shuffles. Each is a queue of its own. */
    public enum Phase { READ, WRITE, SHUFFLE_READ }

    /** Leave to do I/O, for the thread that asked. */
    public final class Turn implements AutoCloseable {
        private final Condition granted = lock.newCondition();
        private boolean held;
        private long startNs;
        private long bytes = -1;
        private int permits;
        private int beside;

        /** The disk's, when it was granted. */
        public int permits() {
            return permits;
        }

        /** Threads in gated I/O then, with this one. */
        int beside() {
            return beside;
        }

        /** The I/O went well and moved so many bytes; without it, it says nothing to the controller. */
        public void moved(long count) {
            bytes = count;
        }

        /** Gives the permit back; once is enough. */
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
     * @param controller how many permits; used by this queue alone
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
     * @return to be closed after the I/O; null where it was cancelled
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
     * Other stages run: climb again. What runs above the least goes on; until it has ended nothing is granted,
     * and the controller counts from the first that is.
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

    /** Lets everybody through, for good. */
    public void open() {
        lock.lock();
        try {
            open = true;
            grant();
        } finally {
            lock.unlock();
        }
    }

    /** Permits now. */
    public int permits() {
        return locked(() -> controller.concurrency());
    }

    /** Why as many. */
    public Reason reason() {
        return locked(() -> controller.reason());
    }

    /** Threads in gated I/O. */
    public int running() {
        return locked(() -> running);
    }

    /** The most that ever were in gated I/O at once. */
    public int peak() {
        return locked(() -> peak);
    }

    /** By how many there ever were more in gated I/O than permits when one more was let in: 0 unless the queue was opened. */
    public int over() {
        return locked(() -> over);
    }

    /** Threads that wait. */
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
            turn.beside = running;
            turn.granted.signal();
        }
    }

    /** Of the first phase, from where the last turn ended, that has one waiting. */
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
