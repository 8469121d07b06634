package org.pellucid.spark.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** The tuner on virtual time, with disks with and without seek cost. */
class TunerTest {
    private static final double MB = 1e6;
    // MB/s at 1, 2, 4, 8, 16 and 32 streams, measured on emulated disks.
    private static final double[] SEEKS = {146 * MB, 82 * MB, 82 * MB, 71 * MB, 69 * MB, 31 * MB};
    private static final double[] NO_SEEKS = {50 * MB, 50 * MB, 50 * MB, 50 * MB, 50 * MB, 50 * MB};
    private static final double[] CLIMBS = {40 * MB, 60 * MB, 75 * MB, 85 * MB, 60 * MB, 40 * MB};
    private static final double[] STORE = {20 * MB, 40 * MB, 80 * MB, 160 * MB, 320 * MB, 640 * MB};

    private final List<String> events = new ArrayList<>();
    private long now;

    private final Tuner.Listener listener = new Tuner.Listener() {
        @Override
        public void slotsChanged() {}

        @Override
        public void stageStarted(long stage) {
            events.add("started " + stage);
        }

        @Override
        public void stageSettled(long stage, int concurrency, Reason reason) {
            events.add("settled " + stage + " " + concurrency + " " + reason);
        }
    };

    private static Tuning tuning(Policy policy, int min) {
        Tuning standard = Tuning.standard();
        return new Tuning(policy, min, Integer.MAX_VALUE, standard.gain, standard.patienceNs);
    }

    /** Returns a stage's final concurrency on 32 slots, and its time relative to 32 fixed. */
    private double[] stage(double[] rates, Policy policy, double cores, double computeNs, long seed) {
        return stage(rates, policy, cores, computeNs, seed, 200);
    }

    private double[] stage(double[] rates, Policy policy, double cores, double computeNs, long seed, int tasks) {
        double[] result = new double[2];
        for (int run = 0; run < 2; run++) {
            SimulatedDisk disk = new SimulatedDisk(rates, cores, seed);
            Tuner tuner = new Tuner(tuning(policy, run == 0 ? 2 : 32), disk::now, listener);
            tuner.setMax(32);
            double tookNs = disk.run(tuner, 7, tasks, 32, 16 * MB, computeNs);
            assertEquals(0, tuner.running());
            if (run == 0) {
                result[0] = tuner.concurrency(7);
                result[1] = tookNs;
            } else {
                result[1] /= tookNs;
            }
        }
        return result;
    }

    @Test
    void stageSettlesNearBestConcurrency() {
        for (long seed = 0; seed < 20; seed++) {
            double[] seeks = stage(SEEKS, Policy.THROUGHPUT, 32, 1e6, seed);
            assertTrue(seeks[0] <= 4, "seeks, seed " + seed + ": " + seeks[0]);
            assertTrue(seeks[1] < 0.75, "seeks, seed " + seed + ": " + seeks[1] + " of the time at 32");
            double[] paced = stage(NO_SEEKS, Policy.THROUGHPUT, 32, 1e6, seed);
            assertTrue(paced[1] < 1.02, "no seeks, seed " + seed + ": " + paced[1] + " of the time at 32");
            double[] store = stage(STORE, Policy.THROUGHPUT, 32, 1e6, seed);
            assertEquals(32, store[0], "store, seed " + seed);
        }
    }

    @Test
    void shortStageEndsAtJudgedConcurrency() {
        for (long seed = 0; seed < 20; seed++) {
            double[] seeks = stage(SEEKS, Policy.THROUGHPUT, 32, 1e6, seed, 40);
            assertTrue(seeks[0] <= 4, "seeks, seed " + seed + ": " + seeks[0]);
            double[] climbs = stage(CLIMBS, Policy.THROUGHPUT, 32, 1e6, seed, 40);
            assertTrue(climbs[0] <= 8, "climbs, seed " + seed + ": " + climbs[0]);
            double[] store = stage(STORE, Policy.THROUGHPUT, 32, 1e6, seed, 40);
            assertTrue(store[0] >= 16, "store, seed " + seed + ": " + store[0]);
        }
    }

    @Test
    void indexSettlesLowOnDiskWithSeeks() {
        for (long seed = 0; seed < 20; seed++) {
            double[] seeks = stage(SEEKS, Policy.INDEX, 32, 1e6, seed);
            assertTrue(seeks[0] <= 4, "seed " + seed + ": " + seeks[0]);
        }
    }

    @Test
    void computingStageGetsAllSlotsAfterOneInterval() {
        SimulatedDisk disk = new SimulatedDisk(STORE, 32, 1);
        Tuner tuner = new Tuner(tuning(Policy.THROUGHPUT, 2), disk::now, listener);
        tuner.setMax(32);
        disk.run(tuner, 1, 3, 32, 1, 1e9);
        assertEquals(32, tuner.concurrency(1));
        assertEquals(Reason.NOT_BOUND_BY_IO, tuner.reason(1));
        assertEquals(List.of("started 1", "settled 1 32 NOT_BOUND_BY_IO"), events);
    }

    @Test
    void slotsAreSumOverStagesWithTasks() {
        Tuner tuner = new Tuner(Tuning.standard(), () -> now, listener);
        tuner.setMax(16);
        assertEquals(2, tuner.slots());
        Tuner.Pass first = tuner.tryEnter(1);
        Tuner.Pass second = tuner.tryEnter(1);
        assertNull(tuner.tryEnter(1), "a third task of a stage limited to two");
        Tuner.Pass other = tuner.tryEnter(2);
        assertNotNull(other);
        assertEquals(4, tuner.slots());
        Tuner.Pass free = tuner.enterUngated(3);
        assertEquals(16, tuner.slots());
        tuner.leave(free, 0, 0);
        tuner.abandon(other);
        tuner.abandon(other);
        assertEquals(2, tuner.slots());
        tuner.leave(first, 0, 0);
        tuner.abandon(second);
        assertEquals(0, tuner.running());
    }

    @Test
    void rememberedConcurrencyAppliesUntilStageSettles() {
        Tuner tuner = new Tuner(Tuning.standard(), () -> now, listener);
        tuner.setMax(16);
        Tuner.Pass pass = tuner.tryEnter(1);
        tuner.remember(1, 8);
        assertEquals(8, tuner.concurrency(1));
        assertEquals(Reason.REMEMBERED, tuner.reason(1));
        tuner.leave(pass, 1, 1);
        tuner.remember(1, 4);
        assertEquals(8, tuner.concurrency(1));
        tuner.tryEnter(2);
        tuner.remember(2, Memory.ALL);
        assertEquals(16, tuner.concurrency(2));
        tuner.remember(99, 4);
        assertEquals(0, tuner.concurrency(99));
        // On a busy driver the answer may come after the stage has started to climb.
        for (int i = 0; i < 7; i++) {
            Tuner.Pass one = tuner.tryEnter(3);
            Tuner.Pass other = tuner.tryEnter(3);
            now += 1000;
            tuner.leave(one, 1, 1000);
            tuner.leave(other, 1, 1000);
        }
        assertEquals(Reason.DOUBLED, tuner.reason(3));
        tuner.remember(3, 2);
        assertEquals(2, tuner.concurrency(3));
        assertEquals(Reason.REMEMBERED, tuner.reason(3));
    }

    @Test
    void tasksEnterInOrderOfArrival() throws InterruptedException {
        Tuner tuner = new Tuner(Tuning.standard(), System::nanoTime, listener);
        tuner.setMax(8);
        List<Tuner.Pass> inside = new ArrayList<>(List.of(tuner.tryEnter(1), tuner.tryEnter(1)));
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            int own = number;
            threads.add(new Thread(() -> {
                try {
                    Tuner.Pass pass = tuner.enter(1, () -> false);
                    order.add(own);
                    tuner.abandon(pass);
                } catch (InterruptedException e) {
                    order.add(-1);
                }
            }));
            threads.get(own).start();
            while (tuner.waiting() <= own) {
                Thread.onSpinWait();
            }
            assertNull(tuner.tryEnter(1), "a later task while others wait");
        }
        tuner.abandon(inside.remove(0));
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(List.of(0, 1, 2, 3, 4, 5), order);
        tuner.abandon(inside.remove(0));
        assertEquals(0, tuner.running() + tuner.waiting());
    }

    @Test
    void openAdmitsEveryTask() {
        Tuner tuner = new Tuner(Tuning.standard(), () -> now, listener);
        tuner.setMax(8);
        tuner.tryEnter(1);
        tuner.tryEnter(1);
        assertNull(tuner.tryEnter(1));
        tuner.open();
        assertNotNull(tuner.tryEnter(1));
        assertEquals(8, tuner.slots());
    }

    @Test
    void ungatedTaskRaisesSlotsAboveStageMaximum() {
        Tuning standard = Tuning.standard();
        Tuner tuner = new Tuner(new Tuning(standard.policy, 2, 3, standard.gain, standard.patienceNs), () -> now, listener);
        tuner.setMax(8);
        Tuner.Pass free = tuner.enterUngated(1);
        assertEquals(8, tuner.slots());
        tuner.abandon(free);
        assertEquals(2, tuner.slots());
        tuner.open();
        assertEquals(8, tuner.slots());
    }

    @Test
    void gateOpensWhenNoTaskCompletesWithinPatience() throws InterruptedException {
        Tuner tuner = new Tuner(Tuning.standard(), () -> now += 60_000_000_000L, listener);
        tuner.setMax(8);
        for (int task = 0; task < 8; task++) {
            assertNotNull(tuner.enter(1, () -> false), "task " + task);
        }
    }

    @Test
    void idleTimeDoesNotCountTowardsPatience() throws InterruptedException {
        Tuner tuner = new Tuner(Tuning.standard(), () -> now, listener);
        tuner.setMax(8);
        tuner.leave(tuner.tryEnter(1), 1, 1);
        now += 2 * Tuning.standard().patienceNs; // other stages had all slots
        assertNotNull(tuner.tryEnter(1));
        assertNotNull(tuner.tryEnter(1));
        AtomicInteger looks = new AtomicInteger();
        assertNull(tuner.enter(1, () -> looks.incrementAndGet() > 3));
        assertEquals(2, tuner.concurrency(1));
    }

    @Test
    void stagesWithoutTasksAreEvicted() {
        Tuner tuner = new Tuner(Tuning.standard(), () -> now, listener);
        Tuner.Pass kept = tuner.tryEnter(0);
        for (long stage = 1; stage < 500; stage++) {
            tuner.leave(tuner.tryEnter(stage), 1, 1);
        }
        assertEquals(0, tuner.concurrency(1));
        assertEquals(2, tuner.concurrency(499));
        assertEquals(2, tuner.concurrency(0));
        tuner.leave(kept, 1, 1);
    }
}
