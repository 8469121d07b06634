package org.pellucid.spark.core;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;

/**
 * The cores of an executor: one computing thread per core (Monotasks, SOSP '17, §3.3), first come, first
 * served.
 *
 * <p>A task holds its cores from start to end and releases them while it is in a {@link DiskQueue}. It never
 * holds a core and a disk at once, so these two cannot deadlock. But a thread can block inside Spark without
 * the plugin's knowledge: on a shuffle fetch, or for memory of a task that in turn waits for a core here. So
 * the core of a blocked holder counts as free, and each waiter checks the holders' thread states every 20 ms.
 * This breaks all such cycles and keeps cores busy while tasks fetch. A holder blocked on a monitor counts as
 * computing at first. Most monitors are held by threads that compute, such as the first tasks of a stage
 * loading its classes, and lending the core would only make all of them do so at once.
 *
 * <p>A holder that waits for a socket or a pipe looks as if it computed; if the other end is a Python worker,
 * it does. If tasks wait for each other that way, no core is released, and after {@code patience} all waiters
 * are admitted.
 */
public final class Cores {
    private static final long POLL_NS = TimeUnit.MILLISECONDS.toNanos(20);
    /** Time that a holder may be blocked on monitors before its core is lent. */
    private static final long MONITOR_NS = TimeUnit.MILLISECONDS.toNanos(500);
    private static final long NEVER = Long.MIN_VALUE;

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Thread, Holder> holders = new IdentityHashMap<>();
    private final Deque<Waiter> queue = new ArrayDeque<>();
    private final int cores;
    private final long patienceNs;
    private final LongSupplier clock;
    /** When a core was last released or granted. */
    private long progressNs;
    private boolean open;

    private static final class Holder {
        final int cores;
        /** True once the holder has returned from acquire. */
        boolean returned;
        /** Since when every check found it blocked on a monitor. */
        long monitorNs = NEVER;

        Holder(int cores) {
            this.cores = cores;
        }
    }

    private static final class Waiter {
        final Condition turn;
        final Thread thread;
        final int cores;
        boolean granted;

        Waiter(Condition turn, Thread thread, int cores) {
            this.turn = turn;
            this.thread = thread;
            this.cores = cores;
        }
    }

    /**
     * Creates this many cores, with the system's clock.
     *
     * @param patienceNs admit all waiters if no core is released within this time
     */
    public Cores(int cores, long patienceNs) {
        this(cores, patienceNs, System::nanoTime);
    }

    /**
     * @param clock nanoseconds, as {@link System#nanoTime}
     */
    Cores(int cores, long patienceNs, LongSupplier clock) {
        this.cores = Math.max(cores, 1);
        this.patienceNs = patienceNs;
        this.clock = clock;
        this.progressNs = clock.getAsLong();
    }

    /**
     * Waits for as many cores as the task takes. The calling thread must hold none.
     *
     * @return true if it holds them now; false if cancelled
     */
    public boolean acquire(int count, BooleanSupplier cancelled) throws InterruptedException {
        lock.lock();
        try {
            Waiter self = new Waiter(lock.newCondition(), Thread.currentThread(), Math.min(Math.max(count, 1), cores));
            queue.add(self);
            grant(cores - taken());
            try {
                while (!self.granted && !cancelled.getAsBoolean()) {
                    self.turn.awaitNanos(POLL_NS);
                    if (!self.granted) {
                        boolean standsStill = clock.getAsLong() - progressNs > patienceNs;
                        grant(standsStill ? Integer.MAX_VALUE : cores - computing());
                    }
                }
                if (self.granted) {
                    holders.get(self.thread).returned = true;
                }
                return self.granted;
            } catch (InterruptedException e) {
                if (self.granted) {
                    holders.remove(self.thread);
                    grant(cores - taken());
                    self.granted = false;
                }
                throw e;
            } finally {
                queue.remove(self);
            }
        } finally {
            lock.unlock();
        }
    }

    /** Releases the calling thread's cores; does nothing if it holds none. */
    public void release() {
        lock.lock();
        try {
            if (holders.remove(Thread.currentThread()) != null) {
                progressNs = clock.getAsLong();
                grant(cores - taken());
            }
        } finally {
            lock.unlock();
        }
    }

    /** Returns true if the calling thread holds a core. */
    public boolean held() {
        lock.lock();
        try {
            return holders.containsKey(Thread.currentThread());
        } finally {
            lock.unlock();
        }
    }

    /** Admits all waiters, now and in future. */
    public void open() {
        lock.lock();
        try {
            open = true;
            grant(0);
        } finally {
            lock.unlock();
        }
    }

    /** Returns the number of threads that hold cores, blocked ones included. */
    public int holders() {
        lock.lock();
        try {
            return holders.size();
        } finally {
            lock.unlock();
        }
    }

    private int taken() {
        return holders.values().stream().mapToInt(holder -> holder.cores).sum();
    }

    private int computing() {
        long now = clock.getAsLong();
        int computing = 0;
        for (Map.Entry<Thread, Holder> entry : holders.entrySet()) {
            computing += computes(entry.getKey().getState(), entry.getValue(), now) ? entry.getValue().cores : 0;
        }
        return computing;
    }

    private static boolean computes(Thread.State state, Holder holder, long now) {
        if (state != Thread.State.BLOCKED) {
            holder.monitorNs = NEVER;
            return !holder.returned || state == Thread.State.RUNNABLE;
        }
        if (holder.monitorNs == NEVER) {
            holder.monitorNs = now;
        }
        return now - holder.monitorNs < MONITOR_NS;
    }

    private void grant(int free) {
        for (int left = free; !queue.isEmpty() && (open || queue.peek().cores <= left);) {
            Waiter next = queue.remove();
            left -= next.cores;
            next.granted = true;
            progressNs = clock.getAsLong();
            holders.put(next.thread, new Holder(next.cores));
            next.turn.signal();
        }
    }
}
