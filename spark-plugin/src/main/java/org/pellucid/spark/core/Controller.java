package org.pellucid.spark.core;

/**
 * Decides how many tasks of one stage, or monotasks of one disk, run at once.
 *
 * <p>Climbs like self-adaptive executors (Middleware '19, §5.1 and §5.2): starts at the minimum concurrency;
 * an interval ends when as many have completed as run; doubles while that pays, else steps back and stays
 * there until {@link #restart}. The {@link Policy} decides what pays.
 *
 * <p>{@code THROUGHPUT} is careful about its comparisons. It ignores the first half of an interval, which
 * began under the previous concurrency. A completion counts only if as many ran as were allowed, since a lack
 * of work does not show whether more would pay. Bytes per second are the concurrency times bytes over service
 * time (Little's law), since tasks that start together end together. With less than 1 % of wait the stage is
 * not bound by I/O and gets the maximum at once.
 *
 * <p>{@code INDEX} decides as in the Rust {@code scheduler} crate; the cases of that policy in
 * crates/scheduler/tests/controller_cases.tsv test both. {@code THROUGHPUT} adds two rules to that crate's, for
 * tasks of a stage and for monotasks of a disk:
 *
 * <ul>
 * <li>The first tasks of a stage in a JVM load classes and compile, so anything after them would seem to pay,
 * and their share of wait would seem small. The first interval is repeated unless its tasks do not wait at all.
 * <li>Neighbouring tasks differ: read-ahead for one serves the next few, and caches are written back in
 * bursts. (One in six of a sort's reduce tasks on a spinning disk took three times as long.) So an interval
 * counts at least {@value #MIN_TASKS} tasks, or {@value #MIN_MONOTASKS} monotasks.
 * </ul>
 *
 * <p>It adds three rules for tasks only:
 *
 * <ul>
 * <li>Since neighbouring tasks differ, the first doubling that does not pay is not final until the next does not pay
 * either. Later ones are final: they cover more tasks, and too many at once cost most there.
 * <li>The output of a stage's first tasks stays in memory, so the minimum looks faster at first than it is
 * later. If neither of those doublings paid, the minimum is measured once more, by tasks that start then. If
 * one of the doublings beats that, the stage settles on the first of them, which lies between: a few tasks
 * show that the minimum is too low, but not how much more is best.
 * <li>A doubling is tried only if twice as many tasks have yet to start as would run. With fewer, the stage
 * would end before it is judged, and its last tasks would run at an untested concurrency. If every doubling
 * so far doubled bytes per second, as far as a few tasks show, it is taken anyway.
 * </ul>
 *
 * <p>Not thread-safe. Time comes from the caller.
 *
 * <p>Judges poorly if the tasks of a stage differ a hundredfold in size.
 */
public final class Controller {
    /** Below this share of wait in service time, a stage is not bound by I/O. */
    private static final double GUARD_WAIT_SHARE = 0.01;
    /** The same for a cold interval, most of whose computing is not the stage's work. */
    private static final double COLD_GUARD_WAIT_SHARE = GUARD_WAIT_SHARE / 10;
    /** Minimum number of tasks that an interval of a stage counts. */
    private static final int MIN_TASKS = 4;
    /** Minimum for a disk's monotasks: about as many as tasks run at once, since each task starts with short ones. */
    private static final int MIN_MONOTASKS = 16;
    /** Largest deviation from twofold growth of bytes per second for a doubling to count as full scaling. */
    private static final double DOUBLING_TOLERANCE = 0.5;
    private static final long NOT_STARTED = Long.MIN_VALUE;

    private final Policy policy;
    private final int min;
    private final double gain;
    private final boolean ofTasks;
    private final boolean startsCold;
    private final int minCounted;
    private int max;
    private int concurrency;
    private boolean settled;
    private Reason reason;
    private boolean cold;
    /** True if the first doubling from the minimum did not pay and awaits a second look. */
    private boolean deferred;
    /** The better score of those two doublings, while the minimum is measured again. */
    private double doubledScore;
    private boolean rechecking;

    /** The last interval that paid; {@code previousConcurrency} is 0 in the first. */
    private int previousConcurrency;
    private double previousScore;
    /** True while every doubling so far doubled the score. */
    private boolean scalesFully;

    /** Tasks of the stage expected on this executor, and those that started. */
    private int expected = Integer.MAX_VALUE;
    private int startedTasks;

    private long beginNs;
    private int completed;
    private int counted;
    private double bytes;
    private double waitNs;
    private double serviceNs;
    private long lastIndex;

    /** Creates a controller for the tasks of a stage, which start slowly and differ from each other. */
    static Controller ofTasks(Policy policy, int min, int max, double gain) {
        return new Controller(policy, min, max, gain, true);
    }

    /** Creates a controller for a disk's monotasks, which range from one byte to millions and mix reads and writes. */
    public static Controller ofMonotasks(Policy policy, int min, int max, double gain) {
        return new Controller(policy, min, max, gain, false);
    }

    /**
     * Starts at the minimum concurrency.
     *
     * @param gain growth of bytes per second for a doubling to pay, 0.07 for 7 %; {@code THROUGHPUT} only
     */
    private Controller(Policy policy, int min, int max, double gain, boolean ofTasks) {
        this.policy = policy;
        // INDEX stays as in the paper.
        this.startsCold = policy == Policy.THROUGHPUT;
        this.ofTasks = ofTasks && startsCold;
        this.minCounted = !startsCold ? 0 : ofTasks ? MIN_TASKS : MIN_MONOTASKS;
        this.min = Math.max(min, 1);
        this.max = Math.max(max, this.min);
        this.gain = gain;
        restart();
    }

    /** Returns how many may run at once. */
    int concurrency() {
        return concurrency;
    }

    /** Returns the reason for the concurrency. */
    Reason reason() {
        return reason;
    }

    /** Returns true if the concurrency stays as it is until a restart. */
    boolean settled() {
        return settled;
    }

    /** Returns ζ of the last interval that ended, in ns² per megabyte; -1 before, and if nothing moved. */
    long lastIndex() {
        return lastIndex;
    }

    /** Climbs again from the minimum. */
    void restart() {
        concurrency = min;
        previousConcurrency = 0;
        settled = min == max;
        reason = settled ? Reason.FIXED : Reason.START;
        lastIndex = -1;
        cold = startsCold;
        deferred = false;
        rechecking = false;
        scalesFully = true;
        resetInterval(NOT_STARTED);
    }

    /** Settles on what a similar stage found, at most the maximum. */
    void remember(int found) {
        concurrency = Math.min(Math.max(found, 1), max);
        settled = true;
        reason = Reason.REMEMBERED;
    }

    /** Sets the maximum. A controller that is not bound by I/O and was at the old maximum moves to the new one. */
    void setMax(int limit) {
        int oldMax = max;
        max = Math.max(limit, min);
        if (concurrency > max || (concurrency == oldMax && reason == Reason.NOT_BOUND_BY_IO)) {
            concurrency = max;
        }
    }

    /** Sets how many tasks of the stage will start here in total. */
    void expect(int tasks) {
        expected = tasks;
    }

    /** Records a start. */
    void started(long nowNs) {
        startedTasks++;
        if (beginNs == NOT_STARTED) {
            beginNs = nowNs;
        }
    }

    /**
     * Records a success; may change the concurrency. A failed or interrupted task moved an unknown part of its
     * bytes and must not be reported.
     *
     * @return true if an interval ended
     */
    boolean completed(long nowNs, Sample sample) {
        if (settled || beginNs == NOT_STARTED || !intervalEnds(nowNs, sample)) {
            return false;
        }
        double index = index(nowNs);
        lastIndex = bytes == 0 ? -1 : (long) Math.min(index * 1e6, 9e18);
        if (policy == Policy.THROUGHPUT) {
            double service = Math.max(serviceNs, 1);
            if (waitNs < (cold ? COLD_GUARD_WAIT_SHARE : GUARD_WAIT_SHARE) * service) {
                concurrency = max;
                settled = true;
                reason = Reason.NOT_BOUND_BY_IO;
            } else if (!cold) {
                double rate = concurrency * bytes / service;
                if (rechecking) {
                    recheckMin(rate);
                } else {
                    step(rate, previousConcurrency == 0 || rate >= previousScore * (1 + gain));
                }
            }
        } else {
            step(-index, previousConcurrency == 0 || -index >= previousScore);
        }
        cold = false;
        // With others still running the next interval begins now; without, it begins with the next start.
        resetInterval(sample.running > 1 ? nowNs : NOT_STARTED);
        return true;
    }

    /** Adds the sample; returns true once as many have completed as run. */
    private boolean intervalEnds(long nowNs, Sample sample) {
        if (policy == Policy.THROUGHPUT) {
            if (sample.running < concurrency || rechecking && sample.startNs < beginNs) {
                return false;
            }
            if (completed < concurrency / 2) {
                completed++;
                return false;
            }
        }
        long service = Math.max(nowNs - sample.startNs, 0);
        completed++;
        counted++;
        bytes += sample.bytes;
        serviceNs += service;
        waitNs += sample.waitNs == Sample.ALL_WAIT ? service : sample.waitNs;
        return completed >= concurrency && (cold && ofTasks || counted >= minCounted);
    }

    private void step(double score, boolean pays) {
        boolean first = previousConcurrency == 0;
        scalesFully &= first || Math.abs(score / previousScore - 2) <= DOUBLING_TOLERANCE;
        if (pays) {
            previousConcurrency = concurrency;
            previousScore = score;
        } else if (mayDefer()) {
            deferred = true;
            doubledScore = score;
        } else if (deferred && previousConcurrency == min) {
            doubledScore = Math.max(doubledScore, score);
            rechecking = true;
            concurrency = min;
            reason = Reason.STEPPED_BACK;
            return;
        } else {
            stepBack();
            return;
        }
        if (concurrency == max) {
            settled = true;
            reason = Reason.AT_MAXIMUM;
            return;
        }
        boolean judged = nextCanBeJudged();
        settled = !judged && !first;
        if (judged || scalesFully) {
            concurrency = (int) Math.min(2L * concurrency, max);
            reason = Reason.DOUBLED;
        }
    }

    /** Settles after measuring the minimum again: on the first doubling if either beat it. */
    private void recheckMin(double score) {
        if (doubledScore >= score * (1 + gain)) {
            previousConcurrency = (int) Math.min(2L * min, max);
        }
        stepBack();
    }

    private void stepBack() {
        concurrency = previousConcurrency;
        settled = true;
        reason = Reason.STEPPED_BACK;
    }

    private boolean mayDefer() {
        return ofTasks && !deferred && previousConcurrency == min && concurrency < max && nextCanBeJudged();
    }

    private boolean nextCanBeJudged() {
        return !ofTasks || expected - startedTasks >= 2 * Math.min(2L * concurrency, max);
    }

    /** Returns ζ in ns² per byte: 0 without wait, infinite with wait but no bytes. */
    private double index(long nowNs) {
        if (waitNs == 0) {
            return 0;
        }
        return waitNs * Math.max(nowNs - beginNs, 1) / bytes;
    }

    private void resetInterval(long begin) {
        beginNs = begin;
        completed = 0;
        counted = 0;
        bytes = 0;
        waitNs = 0;
        serviceNs = 0;
    }
}
