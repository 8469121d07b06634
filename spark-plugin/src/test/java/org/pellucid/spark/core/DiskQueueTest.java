package org.pellucid.spark.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** Disk queues, cores and the gate with real threads: no permit is lost, and no thread waits forever. */
class DiskQueueTest {
    private static final long PATIENCE_NS = TimeUnit.HOURS.toNanos(1);

    private static DiskQueue queue(int min, int max) {
        return new DiskQueue(Controller.ofMonotasks(Policy.THROUGHPUT, min, max, 0.07), System::nanoTime);
    }

    @Test
    void phasesTakeTurns() throws Exception {
        DiskQueue disk = queue(1, 1);
        DiskQueue.Turn first = disk.acquire(DiskQueue.Phase.WRITE, () -> false);
        List<DiskQueue.Phase> order = Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            DiskQueue.Phase phase = i < 3 ? DiskQueue.Phase.WRITE : DiskQueue.Phase.READ;
            Thread thread = new Thread(() -> {
                try (DiskQueue.Turn turn = disk.acquire(phase, () -> false)) {
                    order.add(phase);
                } catch (InterruptedException e) {
                    fail(e);
                }
            });
            thread.start();
            threads.add(thread);
            int waiting = i + 1;
            until(() -> disk.waiting() == waiting);
        }
        first.close();
        join(threads, 0);
        // The first turn was a write, so a read comes next.
        assertEquals("[READ, WRITE, READ, WRITE, READ, WRITE]", order.toString());
        assertEquals(1, disk.peak());
    }

    @Test
    void killedTaskLeavesQueue() throws Exception {
        DiskQueue disk = queue(1, 1);
        DiskQueue.Turn first = disk.acquire(DiskQueue.Phase.READ, () -> false);
        assertNull(disk.acquire(DiskQueue.Phase.READ, () -> true));
        assertEquals(0, disk.waiting());
        first.close();
        first.close();
        assertEquals(0, disk.running());
        assertNotNull(disk.acquire(DiskQueue.Phase.READ, () -> true));
    }

    @Test
    void restartGrantsNothingUntilRunningFallsBelowPermits() throws Exception {
        AtomicLong now = new AtomicLong();
        DiskQueue disk = new DiskQueue(Controller.ofMonotasks(Policy.THROUGHPUT, 1, 4, 0.07), now::get);
        // Each turn keeps its rate at any concurrency, so every doubling pays.
        while (disk.permits() < 4) {
            List<DiskQueue.Turn> turns = new ArrayList<>();
            while (turns.size() < disk.permits()) {
                turns.add(disk.acquire(DiskQueue.Phase.READ, () -> true));
            }
            now.addAndGet(1000);
            turns.forEach(turn -> turn.moved(1000));
            turns.forEach(DiskQueue.Turn::close);
        }
        List<DiskQueue.Turn> turns = new ArrayList<>();
        while (turns.size() < 4) {
            turns.add(disk.acquire(DiskQueue.Phase.READ, () -> true));
        }
        assertNull(disk.acquire(DiskQueue.Phase.READ, () -> true), "a fifth");
        disk.restart();
        assertEquals(4, disk.running());
        assertEquals(1, disk.permits());
        for (DiskQueue.Turn turn : turns) {
            assertNull(disk.acquire(DiskQueue.Phase.READ, () -> true), disk.running() + " run");
            turn.close();
        }
        assertEquals(1, disk.acquire(DiskQueue.Phase.READ, () -> true).permits());
        assertEquals(4, disk.peak());
        assertEquals(0, disk.over());
        disk.open();
        assertNotNull(disk.acquire(DiskQueue.Phase.READ, () -> true));
        assertEquals(1, disk.over());
    }

    @Test
    void coreOfBlockedHolderIsLent() throws Exception {
        Cores cores = new Cores(1, PATIENCE_NS);
        Object never = new Object();
        Thread holder = new Thread(() -> {
            try {
                cores.acquire(1, () -> false);
                synchronized (never) {
                    never.wait();
                }
            } catch (InterruptedException e) {
                cores.release();
            }
        });
        holder.start();
        until(() -> cores.holders() == 1 && holder.getState() == Thread.State.WAITING);
        assertTrue(cores.acquire(1, () -> false), "a core whose holder is blocked");
        cores.release();
        holder.interrupt();
        join(List.of(holder), 0);
        assertEquals(0, cores.holders());
    }

    @Test
    void holderBlockedOnMonitorCountsAsComputingAtFirst() throws Exception {
        AtomicLong now = new AtomicLong();
        Cores cores = new Cores(1, PATIENCE_NS, now::get);
        Object monitor = new Object();
        Thread holder = new Thread(() -> {
            try {
                cores.acquire(1, () -> false);
            } catch (InterruptedException e) {
                fail(e);
            }
            synchronized (monitor) {
                cores.release();
            }
        });
        synchronized (monitor) {
            holder.start();
            until(() -> holder.getState() == Thread.State.BLOCKED);
            AtomicInteger looks = new AtomicInteger();
            assertFalse(cores.acquire(1, () -> looks.incrementAndGet() > 5), "a short block does not lend the core");
            now.addAndGet(TimeUnit.SECONDS.toNanos(1));
            assertTrue(cores.acquire(1, () -> false), "a long block lends the core");
        }
        cores.release();
        join(List.of(holder), 0);
        assertEquals(0, cores.holders());
    }

    @Test
    void allWaitersAreAdmittedAfterPatience() throws Exception {
        AtomicLong now = new AtomicLong();
        Cores cores = new Cores(1, PATIENCE_NS, now::get);
        AtomicBoolean ends = new AtomicBoolean();
        Thread holder = new Thread(() -> {
            try {
                cores.acquire(1, () -> false);
            } catch (InterruptedException e) {
                fail(e);
            }
            while (!ends.get()) {
                Thread.onSpinWait(); // like a thread that waits for a socket, it looks as if it computed
            }
            cores.release();
        });
        holder.start();
        until(() -> cores.holders() == 1);
        AtomicInteger looks = new AtomicInteger();
        assertFalse(cores.acquire(1, () -> looks.incrementAndGet() > 5));
        now.addAndGet(PATIENCE_NS + 1);
        assertTrue(cores.acquire(1, () -> false), "the holder may be waiting for this thread");
        cores.release();
        looks.set(0);
        assertFalse(cores.acquire(1, () -> looks.incrementAndGet() > 5), "cores are limited again afterwards");
        ends.set(true);
        join(List.of(holder), 0);
        assertEquals(0, cores.holders());
    }

    @Test
    void taskGetsAllOfItsCoresOrNone() throws Exception {
        Cores cores = new Cores(3, PATIENCE_NS);
        assertTrue(cores.acquire(2, () -> false));
        List<Boolean> got = new CopyOnWriteArrayList<>();
        Thread other = new Thread(() -> {
            try {
                for (int count = 2; count >= 1; count--) {
                    AtomicInteger looks = new AtomicInteger();
                    got.add(cores.acquire(count, () -> looks.incrementAndGet() > 5));
                    cores.release();
                }
            } catch (InterruptedException e) {
                fail(e);
            }
        });
        other.start();
        while (other.isAlive()) {
            Thread.onSpinWait(); // this thread must not block, or its cores would be lent
        }
        assertEquals(List.of(false, true), got);
        cores.release();
        assertTrue(cores.acquire(4, () -> false), "a request is capped at the number of cores");
        cores.release();
        assertEquals(0, cores.holders());
    }

    /** Runs 200 seeds of two stages whose tasks enter, read, compute, write, fail, are killed, and are interrupted. */
    @Test
    void randomRunsNeitherDeadlockNorLosePermits() throws Exception {
        for (long seed = 0; seed < 200; seed++) {
            randomRun(seed);
        }
    }

    private static void randomRun(long seed) throws Exception {
        Random random = new Random(seed);
        List<DiskQueue> disks = List.of(queue(1, 4), queue(1 + random.nextInt(2), 2));
        Cores cores = new Cores(1 + random.nextInt(3), PATIENCE_NS);
        Tuner tuner = new Tuner(Tuning.standard(), System::nanoTime, new Tuner.Listener() {
            @Override
            public void slotsChanged() {}

            @Override
            public void stageStarted(long stage) {}

            @Override
            public void stageSettled(long stage, int concurrency, Reason reason) {}
        });
        tuner.setMax(8);
        AtomicInteger over = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            long own = random.nextLong();
            threads.add(new Thread(() -> task(new Random(own), tuner, cores, disks, over)));
        }
        threads.forEach(Thread::start);
        for (int i = 0; i < 6; i++) {
            threads.get(random.nextInt(threads.size())).interrupt();
            Thread.yield();
        }
        if (random.nextInt(10) == 0) {
            tuner.open();
            cores.open();
            disks.forEach(DiskQueue::open);
            over.set(Integer.MIN_VALUE / 2);
        }
        join(threads, seed);
        assertEquals(0, tuner.running() + tuner.waiting() + cores.holders(), "seed " + seed);
        for (DiskQueue disk : disks) {
            assertEquals(0, disk.running() + disk.waiting(), "seed " + seed);
        }
        assertTrue(over.get() <= 0, "more in gated I/O than permits, seed " + seed);
    }

    private static void task(Random random, Tuner tuner, Cores cores, List<DiskQueue> disks, AtomicInteger over) {
        for (int i = 0; i < 10; i++) {
            Tuner.Pass pass = null;
            try {
                boolean killed = random.nextInt(8) == 0;
                pass = tuner.enter(random.nextInt(2), () -> killed);
                int count = 1 + random.nextInt(2);
                if (pass == null || !cores.acquire(count, () -> killed)) {
                    continue;
                }
                for (int step = 0; step < 3; step++) {
                    cores.release();
                    DiskQueue disk = disks.get(random.nextInt(2));
                    DiskQueue.Phase phase = DiskQueue.Phase.values()[random.nextInt(DiskQueue.Phase.values().length)];
                    try (DiskQueue.Turn turn = disk.acquire(phase, () -> killed)) {
                        if (turn != null && random.nextInt(5) > 0) {
                            turn.moved(random.nextInt(1 << 20));
                        }
                        over.addAndGet(turn != null && turn.concurrent() > turn.permits() ? 1 : 0);
                    }
                    cores.acquire(count, () -> false);
                }
                tuner.leave(pass, random.nextInt(1 << 20), random.nextInt(1000));
            } catch (InterruptedException e) {
                // As in Spark, the task ends and the thread takes the next one.
            } finally {
                cores.release();
                if (pass != null) {
                    tuner.abandon(pass);
                }
            }
        }
    }

    private interface Condition {
        boolean holds();
    }

    /** Waits for another thread; fails only on a deadlock. */
    private static void until(Condition condition) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!condition.holds()) {
            assertTrue(System.nanoTime() < deadline, "condition never held");
            Thread.onSpinWait();
        }
    }

    private static void join(List<Thread> threads, long seed) throws InterruptedException {
        for (Thread thread : threads) {
            thread.join(60_000);
            if (thread.isAlive()) {
                fail("stuck, seed " + seed + ": " + List.of(thread.getStackTrace()));
            }
        }
    }
}
