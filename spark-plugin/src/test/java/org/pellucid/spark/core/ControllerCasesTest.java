package org.pellucid.spark.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

/**
 * Runs the table of cases shared with the Rust scheduler's controller on the plugin's controllers.
 *
 * <p>For {@code INDEX} they must match the table at every completion. For {@code THROUGHPUT} the table is about
 * requests. Tasks and monotasks need more completions for the same decision: the first interval is repeated, and
 * an interval counts at least 4 or 16. So when an interval of the table ends, theirs is filled up with copies of
 * the completion that ended it; then they must agree. Tasks also judge the first doubling twice:
 * {@link #JUDGED_TWICE}.
 */
class ControllerCasesTest {
    private static final Path CASES = Path.of("..", "crates", "scheduler", "tests", "controller_cases.tsv");

    /** Cases in which the doubling from the minimum does not pay. Tasks of a stage try the next one all the same. */
    private static final Set<String> JUDGED_TWICE = Set.of("saturated_disk_steps_back", "six_percent_does_not_pay",
        "first_half_cannot_help_either", "restart_climbs_again");

    private interface Made {
        Controller of(Policy policy, int min, int max, double gain);
    }

    /** A controller, and the intervals it has ended since its last restart. */
    private static final class Driven {
        final Controller controller;
        /** Intervals until the first decision. */
        final int first;
        int ended;

        Driven(Controller controller, int first) {
            this.controller = controller;
            this.first = first;
        }

        void completed(long nowNs, Sample sample) {
            ended += controller.completed(nowNs, sample) ? 1 : 0;
        }

        /** Repeats the completion until {@code intervals} intervals have ended. */
        void fillUp(long nowNs, Sample sample, int intervals, String where) {
            for (int left = 64; !controller.settled() && ended < intervals; left--) {
                assertTrue(left > 0, where + ": the interval never ends");
                completed(nowNs, sample);
            }
        }
    }

    @Test
    void controllersMatchSharedTableOfCases() throws IOException {
        List<String> failed = new ArrayList<>();
        assertTrue(cases(Controller::ofRequests, false, failed) > 25, "cases read");
        assertEquals(List.of(), failed, "of requests");
        cases(Controller::ofMonotasks, true, failed);
        assertEquals(List.of(), failed, "of monotasks");
        cases(Controller::ofTasks, true, failed);
        assertEquals(JUDGED_TWICE, Set.copyOf(failed), "of tasks");
    }

    /** Runs all cases, adds the names of failed ones to {@code failed}, and returns the number of cases. */
    private static int cases(Made made, boolean careful, List<String> failed) throws IOException {
        List<String> lines = Files.readAllLines(CASES);
        Driven table = null;
        Driven driven = null;
        String name = "";
        int cases = 0;
        for (int number = 1; number <= lines.size(); number++) {
            String line = lines.get(number - 1);
            String[] row = line.split("\t");
            if (line.isEmpty() || line.startsWith("#")) {
                continue;
            }
            if (row[0].equals("case")) {
                name = row[1];
                Policy policy = row[2].equals("index") ? Policy.INDEX : Policy.THROUGHPUT;
                double gain = row[5].equals("-") ? 0 : Double.parseDouble(row[5]);
                int min = Integer.parseInt(row[3]);
                int max = Integer.parseInt(row[4]);
                boolean repeated = careful && policy == Policy.THROUGHPUT;
                table = new Driven(Controller.ofRequests(policy, min, max, gain), 1);
                driven = new Driven(made.of(policy, min, max, gain), repeated ? 2 : 1);
                cases++;
            } else if (!failed.contains(name)) {
                String where = name + ", line " + number + ": " + line;
                apply(row, table, driven, where);
                int expect = Integer.parseInt(row[row.length - 1]);
                if (driven.controller.concurrency() != expect) {
                    failed.add(name);
                }
            }
        }
        return cases;
    }

    private static void apply(String[] row, Driven table, Driven driven, String where) {
        switch (row[0]) {
            case "start":
                table.controller.started(Long.parseLong(row[1]));
                driven.controller.started(Long.parseLong(row[1]));
                break;
            case "restart":
                for (Driven each : new Driven[] {table, driven}) {
                    each.controller.restart();
                    each.ended = 0;
                }
                break;
            case "done":
                long now = Long.parseLong(row[2]);
                long waitNs = row[5].equals("-") ? Sample.ALL_WAIT : Long.parseLong(row[5]);
                Sample sample = new Sample(
                    Long.parseLong(row[3]), Long.parseLong(row[4]), waitNs, Integer.parseInt(row[6]));
                int before = driven.controller.concurrency();
                for (int left = Integer.parseInt(row[1]) - 1; left >= 0; left--) {
                    table.completed(now, sample);
                    driven.completed(now, sample);
                    assertTrue(left == 0 || driven.controller.concurrency() == before, where + ", with " + left + " to come");
                }
                if (table.ended > 0) {
                    driven.fillUp(now, sample, table.ended + driven.first - 1, where);
                }
                break;
            default:
                throw new AssertionError("unknown row: " + where);
        }
    }

    @Test
    void reasonAndIndexReflectLastStep() {
        Controller climbing = Controller.ofRequests(Policy.THROUGHPUT, 2, 8, 0.07);
        assertEquals(Reason.START, climbing.reason());
        assertEquals(-1, climbing.lastIndex());
        climbing.started(0);
        Sample half = new Sample(0, 1_000_000, 500, 2);
        climbing.completed(1000, half);
        climbing.completed(1000, half);
        assertEquals(Reason.DOUBLED, climbing.reason());
        // One sample counts, the other is in the ignored first half: 500 ns of wait × 1000 ns ÷ 1 MB.
        assertEquals(500_000, climbing.lastIndex());
        for (int i = 0; i < 4; i++) {
            climbing.completed(9000, new Sample(1000, 1_000_000, 500, 4));
        }
        assertEquals(Reason.STEPPED_BACK, climbing.reason());
        climbing.restart();
        climbing.remember(100);
        assertEquals(8, climbing.concurrency());
        assertEquals(Reason.REMEMBERED, climbing.reason());
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
