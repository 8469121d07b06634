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
 * One computing thread a core (Monotasks, SOSP '17, §3.3): first come, first served.
 *
 * <p>A task holds its cores from its start to its end, and gives them back while it is in a
 * {@link DiskQueue}; it never holds a core and a disk at once, so these two cannot deadlock. But a
 * thread can stop inside Spark, where nothing tells us: on a shuffle fetch, or for memory that a
 * task holds which waits for a core here. So a core whose holder waits counts as free: who
 * wants one looks every 20 ms at the holders' thread states. That breaks every such circle, and keeps
 * cores busy while others fetch. A holder that stands before a monitor is taken for computing at
 * first: most monitors are held by others who compute, as where the first tasks of a stage load its
 * classes, and to lend its core would only have all of them do it at once.
 *
 * <p>A holder that waits for a socket or a pipe looks as if it computed; where that is a Python worker, it does. Where
 * tasks wait for each other so, nobody gives a core back, and after {@code patience} all who wait are let through.
 */
public final class Cores {
    private static final long POLL_NS = TimeUnit.MILLISECONDS.toNanos(20);
    /** How long a holder may stand before monitors until its core is lent. */
    private static final long MONITOR_NS = TimeUnit.MILLISECONDS.toNanos(500);
    private static final long NEVER = Long.MIN_VALUE;

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Thread, Holder> holders = new IdentityHashMap<>();
    private final Deque<Waiter> queue = new ArrayDeque<>();
    private final int cores;
    private final long patienceNs;
    private final LongSupplier clock;
    /** When a core was given back or granted last. */
    private long progressNs;
    private boolean open;

    private static final class Holder {
        final int cores;
        /** Whether it has come back from waiting for its core. */
        boolean back;
        /** Since when every look found it before a monitor. */
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
     * As many as there are, by the machine's clock.
     *
     * @param patienceNs how long nobody gives a core back until all who wait are let through
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
     * Waits for as many cores as its task takes, for the calling thread, which must hold none.
     *
     * @return whether it holds one now: not where it was cancelled
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
                    holders.get(self.thread).back = true;
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

    /** Gives the calling thread's core back; does nothing where it holds none. */
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

    /** Whether the calling thread holds one. */
    public boolean held() {
        lock.lock();
        try {
            return holders.containsKey(Thread.currentThread());
        } finally {
            lock.unlock();
        }
    }

    /** Lets everybody through, for good. */
    public void open() {
        lock.lock();
        try {
            open = true;
            grant(0);
        } finally {
            lock.unlock();
        }
    }

    /** Threads that hold one, blocked ones too. */
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
            return !holder.back || state == Thread.State.RUNNABLE;
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
