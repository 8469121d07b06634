package org.pellucid.spark.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** The plugin's own rules for {@code THROUGHPUT}: those for tasks and monotasks alike, then those for tasks only. */
class ControllerTest {
    /** Returns controllers of tasks and of monotasks at 2, after the repeated first interval. */
    private static List<Controller> warm(int max, double gain) {
        List<Controller> both = List.of(
            Controller.ofTasks(Policy.THROUGHPUT, 2, max, gain), Controller.ofMonotasks(Policy.THROUGHPUT, 2, max, gain));
        for (Controller each : both) {
            each.started(0);
            assertEquals(2, interval(each, 1000));
        }
        return both;
    }

    /** Returns the same at 8 of 32; 2, 4 and 8 take 1 µs each. */
    private static List<Controller> warmAt8() {
        List<Controller> both = warm(32, 0.07);
        for (Controller each : both) {
            assertEquals(4, interval(each, 1000));
            assertEquals(8, interval(each, 1000));
        }
        return both;
    }

    /** Completes as many as run, all alike, until the interval ends; returns the concurrency. */
    private static int interval(Controller of, long serviceNs) {
        return interval(of, serviceNs, 1_000_000, Sample.ALL_WAIT);
    }

    private static int interval(Controller of, long serviceNs, long bytes, long waitNs) {
        Sample sample = new Sample(0, bytes, waitNs, of.concurrency());
        for (int left = 64; !of.completed(serviceNs, sample); left--) {
            assertTrue(left > 0, "the interval never ends");
        }
        return of.concurrency();
    }

    /** Completes several of 1 µs without an effect on the concurrency. */
    private static void without(Controller of, int times, long bytes, int running) {
        int before = of.concurrency();
        for (int i = 0; i < times; i++) {
            of.completed(1000, new Sample(0, bytes, Sample.ALL_WAIT, running));
            assertEquals(before, of.concurrency());
        }
    }

    @Test
    void doublingPaysIfBytesPerSecondGrowByGain() {
        // 8 take 1.85 µs where 4 take 1 µs: 8 % more bytes per second; at 1.89 µs, 6 %.
        for (Controller each : warmAt8()) {
            assertEquals(16, interval(each, 1850));
            assertEquals(Reason.DOUBLED, each.reason());
        }
        for (Controller each : warmAt8()) {
            assertEquals(4, interval(each, 1890));
            assertEquals(Reason.STEPPED_BACK, each.reason());
            assertTrue(each.settled());
        }
        for (Controller each : warm(32, 0.05)) {
            assertEquals(4, interval(each, 1000));
            assertEquals(8, interval(each, 1000));
            assertEquals(16, interval(each, 1890));
        }
    }

    @Test
    void doublingWithoutBytesPaysWhileItWaits() {
        for (Controller each : warm(32, 0.07)) {
            assertEquals(4, interval(each, 1000, 0, Sample.ALL_WAIT));
            assertEquals(8, interval(each, 1000, 0, Sample.ALL_WAIT));
        }
    }

    @Test
    void firstHalfOfIntervalIsIgnored() {
        for (Controller each : warmAt8()) {
            without(each, 4, 1, 8);
            assertEquals(16, interval(each, 1000), "slow ones do not harm");
        }
        for (Controller each : warmAt8()) {
            without(each, 4, 1_000_000_000, 8);
            assertEquals(4, interval(each, 2000), "fast ones do not help");
        }
    }

    @Test
    void lackOfWorkIsIgnored() {
        for (Controller each : warmAt8()) {
            without(each, 50, 1, 7);
            without(each, 6, 1_000_000, 8);
            without(each, 50, 1, 4);
            assertEquals(16, interval(each, 1000));
        }
    }

    @Test
    void maximumNeedNotBeDouble() {
        for (Controller each : warm(6, 0.07)) {
            assertEquals(4, interval(each, 1000));
            assertEquals(6, interval(each, 1000));
            assertEquals(6, interval(each, 1000));
            assertEquals(Reason.AT_MAXIMUM, each.reason());
            without(each, 50, 1, 6);
        }
        for (Controller each : warm(6, 0.07)) {
            assertEquals(4, interval(each, 1000));
            assertEquals(6, interval(each, 1000));
            assertEquals(4, interval(each, 1500));
        }
        Controller fixed = Controller.ofTasks(Policy.THROUGHPUT, 4, 2, 0.07);
        fixed.started(0);
        without(fixed, 50, 1, 4);
        assertEquals(Reason.FIXED, fixed.reason());
    }

    @Test
    void restartClimbsFromMinimumAtNextStart() {
        for (Controller each : warmAt8()) {
            each.restart();
            assertEquals(2, each.concurrency());
            without(each, 50, 1_000_000, 8);
            each.started(0);
            assertEquals(2, interval(each, 1000), "the first interval is repeated again");
            assertEquals(4, interval(each, 1000));
        }
    }

    @Test
    void stageThatHardlyWaitsGetsMaximum() {
        for (long waitNs : new long[] {9, 11}) {
            Controller atMin = warm(32, 0.07).get(0);
            assertEquals(waitNs < 10 ? 32 : 4, interval(atMin, 1000, 5, waitNs));
            Controller later = warm(32, 0.07).get(0);
            assertEquals(4, interval(later, 1000, 5, 500));
            assertEquals(waitNs < 10 ? 32 : 8, interval(later, 1000, 5, waitNs));
            assertEquals(waitNs < 10 ? Reason.NOT_BOUND_BY_IO : Reason.DOUBLED, later.reason());
        }
        // Those of the ignored first half waited, the others did not.
        Controller half = warm(32, 0.07).get(0);
        without(half, 1, 5, 2);
        assertEquals(32, interval(half, 1000, 5, 0));
    }

    @Test
    void reasonAndIndexReflectLastInterval() {
        Controller stage = Controller.ofTasks(Policy.THROUGHPUT, 2, 8, 0.07);
        assertEquals(Reason.START, stage.reason());
        assertEquals(-1, stage.lastIndex());
        stage.started(0);
        assertEquals(2, tasks(stage, 2, 2, 0, 1000, 500));
        // One task counts, the other is in the ignored first half: 500 ns of wait × 1000 ns ÷ 1 MB.
        assertEquals(500_000, stage.lastIndex());
        assertEquals(4, tasks(stage, 5, 2, 1000, 1000, 900));
        assertEquals(Reason.DOUBLED, stage.reason());
        // Four count: 3600 ns of wait × 1000 ns ÷ 4 MB.
        assertEquals(900_000, stage.lastIndex());
        stage.restart();
        assertEquals(-1, stage.lastIndex());
        stage.remember(100);
        assertEquals(8, stage.concurrency());
        assertEquals(Reason.REMEMBERED, stage.reason());
    }

    @Test
    void coldIntervalIsRepeated() {
        // The first tasks take ten times as long as later ones, on a disk that gains nothing from concurrency.
        Controller cold = Controller.ofTasks(Policy.THROUGHPUT, 2, 4, 0.07);
        cold.started(0);
        assertEquals(2, tasks(cold, 2, 2, 0, 10_000, 9000));
        assertEquals(4, tasks(cold, 5, 2, 10_000, 1000, 900));
        assertEquals(2, tasks(cold, 6, 4, 20_000, 2000, 1900));
        assertEquals(Reason.STEPPED_BACK, cold.reason());
        Controller computing = Controller.ofTasks(Policy.THROUGHPUT, 2, 8, 0.07);
        computing.started(0);
        assertEquals(8, tasks(computing, 2, 2, 0, 10_000, 0));
        assertEquals(Reason.NOT_BOUND_BY_IO, computing.reason());
        Controller loading = Controller.ofTasks(Policy.THROUGHPUT, 2, 8, 0.07);
        loading.started(0);
        assertEquals(2, tasks(loading, 2, 2, 0, 10_000, 50));
        assertEquals(8, tasks(loading, 5, 2, 10_000, 10_000, 50));
        Controller paper = Controller.ofTasks(Policy.INDEX, 2, 8, 0.07);
        paper.started(0);
        assertEquals(4, tasks(paper, 2, 2, 0, 10_000, 9000));
    }

    @Test
    void firstDoublingOfStageIsJudgedTwice() {
        // The tasks at 4 happen to be slow; 8 shows that more concurrency pays, 16 that it no longer does.
        Controller unlucky = warm();
        assertEquals(4, tasks(unlucky, 4, 2, 10_000, 1000, 900));
        assertEquals(8, tasks(unlucky, 6, 4, 20_000, 2000, 1900));
        assertEquals(Reason.DOUBLED, unlucky.reason());
        assertEquals(16, tasks(unlucky, 8, 8, 30_000, 2000, 1900));
        assertEquals(8, tasks(unlucky, 16, 16, 40_000, 4000, 3900));
        // Neither 4 nor 8 pays: back to 2, which is as fast as before. Tasks that started earlier do not count.
        Controller saturated = doubtful();
        assertEquals(2, tasks(saturated, 6, 2, 30_000, 9000, 8900));
        assertFalse(saturated.settled());
        assertEquals(2, tasks(saturated, 5, 2, 40_000, 1000, 900));
        assertTrue(saturated.settled());
        assertEquals(Reason.STEPPED_BACK, saturated.reason());
        assertEquals(2, tasks(saturated, 20, 2, 50_000, 9000, 8900));
        // 4 pays and 8 does not: that is final at once.
        Controller four = warm();
        assertEquals(4, tasks(four, 4, 2, 10_000, 1000, 900));
        assertEquals(8, tasks(four, 6, 4, 20_000, 1000, 900));
        assertEquals(4, tasks(four, 8, 8, 30_000, 2000, 1900));
    }

    @Test
    void minimumIsMeasuredAgainBeforeSettling() {
        // 2 was fast only while its output stayed in memory; 4 is faster than 2 is now.
        Controller four = doubtful();
        assertEquals(4, tasks(four, 5, 2, 40_000, 1200, 1100));
        assertTrue(four.settled());
        // Only 8 is faster than 2 now: settle on 4, which lies between.
        Controller eight = warm();
        assertEquals(4, tasks(eight, 4, 2, 10_000, 1000, 900));
        assertEquals(8, tasks(eight, 6, 4, 20_000, 2050, 1900));
        assertEquals(2, tasks(eight, 8, 8, 30_000, 3800, 3700));
        assertEquals(4, tasks(eight, 5, 2, 40_000, 1020, 1000));
        assertTrue(eight.settled());
    }

    @Test
    void unjudgedDoublingIsTakenOnlyAfterPerfectScaling() {
        // Judging 16 takes 16 completions with 16 running, and those that come before 16 run.
        Controller enough = at8(1000, 1700, 32);
        assertEquals(16, enough.concurrency());
        assertFalse(enough.settled());
        Controller few = at8(1000, 1700, 31);
        assertEquals(8, few.concurrency());
        assertTrue(few.settled());
        assertEquals(Reason.DOUBLED, few.reason());
        assertEquals(8, tasks(few, 20, 8, 40_000, 9000, 8900));
        // Bytes per second double from 2 to 4, and grow by half, or slightly less, from 4 to 8.
        Controller unlimited = at8(1000, 1330, 31);
        assertEquals(16, unlimited.concurrency());
        assertTrue(unlimited.settled());
        assertEquals(8, at8(1000, 1340, 31).concurrency());
        // Bytes per second grow by a fifth from 2 to 4, or implausibly much: the next doubling is not predictable.
        assertEquals(8, at8(1660, 1330, 31).concurrency());
        assertEquals(16, at8(810, 810, 31).concurrency());
        assertEquals(8, at8(790, 790, 31).concurrency());
        // A first doubling that did not pay gets no second look without enough tasks left.
        for (int left : new int[] {15, 16}) {
            Controller doubted = warm();
            doubted.expect(1 + left);
            assertEquals(4, tasks(doubted, 4, 2, 10_000, 1000, 900));
            assertEquals(left < 16 ? 2 : 8, tasks(doubted, 6, 4, 20_000, 2000, 1900));
            assertEquals(left < 16, doubted.settled());
        }
        // The first doubling of a stage is always taken, and an unjudged one does not settle the stage.
        Controller first = warm();
        first.expect(1);
        assertEquals(4, tasks(first, 4, 2, 10_000, 1000, 900));
        assertFalse(first.settled());
        // The paper's policy goes on regardless of the tasks left.
        Controller paper = Controller.ofTasks(Policy.INDEX, 2, 8, 0.07);
        paper.started(0);
        paper.expect(1);
        assertEquals(4, tasks(paper, 2, 2, 0, 1000, 900));
        assertEquals(8, tasks(paper, 4, 4, 2000, 1000, 400));
    }

    /** Returns a controller after 8 ran. Tasks took 1 µs at 2; {@code left} tasks have yet to start. */
    private static Controller at8(long at4Ns, long at8Ns, int left) {
        Controller controller = warm();
        controller.expect(1 + left); // one has started
        assertEquals(4, tasks(controller, 4, 2, 10_000, 1000, 900));
        assertEquals(8, tasks(controller, 6, 4, 20_000, at4Ns, at4Ns - 100));
        tasks(controller, 8, 8, 30_000, at8Ns, at8Ns - 100);
        return controller;
    }

    /** Returns a controller that measures 2 again, since neither 4 nor 8 was faster; 34 µs into a stage. */
    private static Controller doubtful() {
        Controller controller = warm();
        assertEquals(4, tasks(controller, 4, 2, 10_000, 1000, 900));
        assertEquals(8, tasks(controller, 6, 4, 20_000, 2000, 1900));
        assertEquals(2, tasks(controller, 8, 8, 30_000, 4000, 3900));
        return controller;
    }

    /** Returns a controller at 2 of 32, after the first interval of a stage and the first half of the second. */
    private static Controller warm() {
        Controller controller = Controller.ofTasks(Policy.THROUGHPUT, 2, 32, 0.07);
        controller.started(0);
        assertEquals(2, tasks(controller, 3, 2, 0, 1000, 900));
        return controller;
    }

    /** Completes uniform tasks, of which only the last may change the concurrency, and returns the concurrency. */
    private static int tasks(Controller of, int tasks, int running, long startNs, long serviceNs, long waitNs) {
        for (int i = 0; i < tasks; i++) {
            assertTrue(i == 0 || of.concurrency() == running, of.concurrency() + " after " + i);
            of.completed(startNs + serviceNs, new Sample(startNs, 1_000_000, waitNs, running));
        }
        return of.concurrency();
    }

    @Test
    void monotasksOfTwoSizesDoNotLookLikeFasterDisk() {
        // A disk of 150 MB/s and 6 ms per seek; each task's first monotask is short, its second is long.
        Controller disk = Controller.ofMonotasks(Policy.THROUGHPUT, 1, 4, 0.07);
        for (int i = 0; i < 16; i++) {
            disk.started(0);
            disk.completed(13_000_000, new Sample(0, 1_000_000, Sample.ALL_WAIT, 1));
        }
        for (int i = 0; i < 16; i++) {
            assertEquals(1, disk.concurrency());
            disk.started(0);
            disk.completed(46_000_000, new Sample(0, 6_000_000, Sample.ALL_WAIT, 1));
        }
        assertEquals(2, disk.concurrency());
        for (int i = 0; i < 17; i++) {
            assertEquals(2, disk.concurrency());
            disk.started(0);
            disk.completed(146_000_000, new Sample(0, 6_000_000, Sample.ALL_WAIT, 2));
        }
        assertEquals(1, disk.concurrency());
        assertEquals(Reason.STEPPED_BACK, disk.reason());
    }

    @Test
    void stageNotBoundByIoFollowsLaterMaximum() {
        Controller early = Controller.ofTasks(Policy.THROUGHPUT, 2, Integer.MAX_VALUE, 0.07);
        early.started(0);
        early.completed(1000, new Sample(0, 5, 0, 2));
        early.completed(1000, new Sample(0, 5, 0, 2));
        early.setMax(32);
        assertEquals(32, early.concurrency());
        early.setMax(64);
        assertEquals(64, early.concurrency());
    }
}
