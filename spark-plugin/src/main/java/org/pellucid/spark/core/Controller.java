package org.pellucid.spark.core;

/**
 * How many tasks of one stage, or monotasks of one disk, run at once.
 *
 * <p>The climb of self-adaptive executors (Middleware '19, §5.1 and §5.2): start at the least
 * concurrency; an interval ends when as many have completed as run; double while that pays,
 * else step back and stay until {@link #restart}. What pays is the {@link Policy}'s to say.
 *
 * <p>{@code THROUGHPUT} is careful about what it compares. The first half of an interval is
 * ignored, because it began under the concurrency before. A completion counts only when as many
 * ran as may: lack of work says nothing about whether more would pay. Bytes per second are the
 * concurrency times bytes over service time (Little's law), since tasks that start together end
 * together. Under 1 % of wait the stage is not bound by I/O and gets the maximum at once.
 *
 * <p>The decisions are those of the Rust {@code scheduler} crate: one table of cases tests both
 * (crates/scheduler/tests/controller_cases.tsv). What is new here is what {@code THROUGHPUT} does
 * where tasks of a stage complete, and not single requests:
 *
 * <ul>
 * <li>The first tasks of a stage in a JVM load classes and compile, so that whatever came after
 * them would seem to pay, and a wait would seem short. Unless they do not wait at all, their
 * interval is repeated.
 * <li>Tasks beside each other differ: what was read ahead for one serves the next few, and caches are
 * written back in bursts. (Of a sort's reduce tasks on a spinning disk one in six took three times
 * as long.) So an interval counts {@value #MIN_TASKS} tasks at least.
 * <li>For the same reason, the first doubling that does not pay is not believed until the next does
 * not pay either. Later ones are: they are about more tasks, and there too many at once cost most.
 * <li>What the first tasks of a stage write stays in memory, and the least looks faster than it is
 * from then on. So where neither of those doublings paid it is looked at once more, by tasks that begin
 * then. Where one of them does pay beside that it is the first of them that is settled on, which lies
 * between: a few tasks tell that the least is too little, not how much more is best.
 * <li>A doubling is tried only where twice as many tasks are yet to begin as would run: with fewer the stage would be
 * over before it is judged, and its last tasks would run at a number that nothing speaks for. Where each doubling
 * before did double bytes per second, as well as a few tasks tell, it is taken all the same.
 * </ul>
 *
 * <p>Not thread-safe; it has no clock of its own.
 *
 * <p>It judges poorly where the tasks of a stage differ a hundredfold in size.
 */
public final class Controller {
    /** Below this share of wait in service time a stage is not bound by I/O. */
    private static final double GUARD_WAIT_SHARE = 0.01;
    /** The same for an interval that starts cold: what it computes is mostly not the stage's work. */
    private static final double COLD_GUARD_WAIT_SHARE = GUARD_WAIT_SHARE / 10;
    /** Tasks that an interval of a stage counts at least. */
    private static final int MIN_TASKS = 4;
    /** Monotasks that one of a disk does: about as many as tasks run beside each other, of which each begins with short ones. */
    private static final int MIN_MONOTASKS = 16;
    /** How far from twice the bytes per second may be that a doubling brings where nothing is near its limit. */
    private static final double TWICE_WITHIN = 0.5;
    private static final long NOT_BEGUN = Long.MIN_VALUE;

    private final Policy policy;
    private final int min;
    private final double gain;
    private final boolean ofTasks;
    private final boolean startsCold;
    private final int least;
    private int max;
    private int concurrency;
    private boolean settled;
    private Reason reason;
    private boolean cold;
    /** Whether the doubling from the least did not pay, and was not believed. */
    private boolean doubted;
    /** What the better of those two doublings was worth, while the least is looked at again. */
    private double doubledWorth;
    private boolean again;

    /** Of the interval that paid last; {@code beforeConcurrency} is 0 in the first. */
    private int beforeConcurrency;
    private double beforeWorth;
    /** Whether each doubling yet did double. */
    private boolean unlimited;

    /** Tasks of its stage that will come here, as far as is known, and that came. */
    private int expected = Integer.MAX_VALUE;
    private int begun;

    private long beginNs;
    private int completed;
    private int counted;
    private double bytes;
    private double waitNs;
    private double serviceNs;
    private long lastIndex;

    /** Of requests, all alike and as fast at first as later: what the shared table of cases is of. Nothing of the plugin's is so. */
    static Controller ofRequests(Policy policy, int min, int max, double gain) {
        return new Controller(policy, min, max, gain, false, 0);
    }

    /** Of tasks of a stage: slow at first, and unlike each other. */
    public static Controller ofTasks(Policy policy, int min, int max, double gain) {
        return new Controller(policy, min, max, gain, true, MIN_TASKS);
    }

    /** Of a disk's monotasks: of one byte or of millions, reads and writes, and at first of tasks that all begin. */
    public static Controller ofMonotasks(Policy policy, int min, int max, double gain) {
        return new Controller(policy, min, max, gain, false, MIN_MONOTASKS);
    }

    /**
     * A controller at its least concurrency.
     *
     * @param gain by how much bytes per second must grow for a doubling to pay, 0.07 for 7 %;
     *             only of {@code THROUGHPUT}
     * @param least that an interval counts at least; more than 0: the first of all is repeated
     */
    private Controller(Policy policy, int min, int max, double gain, boolean ofTasks, int least) {
        this.policy = policy;
        // The other is the paper's.
        this.ofTasks = ofTasks && policy == Policy.THROUGHPUT;
        this.startsCold = least > 0 && policy == Policy.THROUGHPUT;
        this.least = startsCold ? least : 0;
        this.min = Math.max(min, 1);
        this.max = Math.max(max, this.min);
        this.gain = gain;
        restart();
    }

    /** How many may run at once now. */
    public int concurrency() {
        return concurrency;
    }

    /** Why. */
    public Reason reason() {
        return reason;
    }

    /** Whether it stays as it is until a restart. */
    public boolean settled() {
        return settled;
    }

    /** ζ of the last interval that ended, in ns² a megabyte; -1 before, and where nothing moved. */
    public long lastIndex() {
        return lastIndex;
    }

    /** Climbs again from the least. */
    public void restart() {
        concurrency = min;
        beforeConcurrency = 0;
        settled = min == max;
        reason = settled ? Reason.FIXED : Reason.START;
        lastIndex = -1;
        cold = startsCold;
        doubted = false;
        again = false;
        unlimited = true;
        clear(NOT_BEGUN);
    }

    /** Stays at what a like stage found before, within what there is. */
    public void remember(int found) {
        concurrency = Math.min(Math.max(found, 1), max);
        settled = true;
        reason = Reason.REMEMBERED;
    }

    /** The most became known, or changed. A controller that was at the top stays at the top. */
    public void setMax(int most) {
        int before = max;
        max = Math.max(most, min);
        if (concurrency > max || (concurrency == before && reason == Reason.NOT_BOUND_BY_IO)) {
            concurrency = max;
        }
    }

    /** So many tasks of its stage will start here, all in all. */
    public void expect(int tasks) {
        expected = tasks;
    }

    /** One starts. */
    public void started(long nowNs) {
        begun++;
        if (beginNs == NOT_BEGUN) {
            beginNs = nowNs;
        }
    }

    /**
     * One ended well; may change the concurrency. One that failed or was cut short moved an
     * unknown part of its bytes and is not reported.
     *
     * @return whether an interval ended
     */
    public boolean completed(long nowNs, Sample sample) {
        if (settled || beginNs == NOT_BEGUN || !intervalEnds(nowNs, sample)) {
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
                if (again) {
                    lookedAgain(rate);
                } else {
                    step(rate, beforeConcurrency == 0 || rate >= beforeWorth * (1 + gain));
                }
            }
        } else {
            step(-index, beforeConcurrency == 0 || -index >= beforeWorth);
        }
        cold = false;
        // The others still run in the next interval; without any it begins with the next start.
        clear(sample.running > 1 ? nowNs : NOT_BEGUN);
        return true;
    }

    /** Adds the sample; true when as many have completed as run. */
    private boolean intervalEnds(long nowNs, Sample sample) {
        if (policy == Policy.THROUGHPUT) {
            if (sample.running < concurrency || again && sample.startNs < beginNs) {
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
        return completed >= concurrency && (cold && ofTasks || counted >= least);
    }

    private void step(double worth, boolean pays) {
        boolean first = beforeConcurrency == 0;
        unlimited &= first || Math.abs(worth / beforeWorth - 2) <= TWICE_WITHIN;
        if (pays) {
            beforeConcurrency = concurrency;
            beforeWorth = worth;
        } else if (mayDoubt()) {
            doubted = true;
            doubledWorth = worth;
        } else if (doubted && beforeConcurrency == min) {
            doubledWorth = Math.max(doubledWorth, worth);
            again = true;
            concurrency = min;
            reason = Reason.STEPPED_BACK;
            return;
        } else {
            stepBack();
            return;
        }
        if (concurrency == max) {
            settled = true;
            reason = Reason.AT_THE_MOST;
            return;
        }
        boolean judged = nextCanBeJudged();
        settled = !judged && !first;
        if (judged || unlimited) {
            concurrency = (int) Math.min(2L * concurrency, max);
            reason = Reason.DOUBLED;
        }
    }

    /** The least, as it is now: whether what was tried since does pay. */
    private void lookedAgain(double worth) {
        if (doubledWorth >= worth * (1 + gain)) {
            beforeConcurrency = (int) Math.min(2L * min, max);
        }
        stepBack();
    }

    private void stepBack() {
        concurrency = beforeConcurrency;
        settled = true;
        reason = Reason.STEPPED_BACK;
    }

    private boolean mayDoubt() {
        return ofTasks && !doubted && beforeConcurrency == min && concurrency < max && nextCanBeJudged();
    }

    private boolean nextCanBeJudged() {
        return !ofTasks || expected - begun >= 2 * Math.min(2L * concurrency, max);
    }

    /** ζ in ns² a byte: 0 without wait, endless where there was wait and not one byte. */
    private double index(long nowNs) {
        if (waitNs == 0) {
            return 0;
        }
        return waitNs * Math.max(nowNs - beginNs, 1) / bytes;
    }

    private void clear(long begin) {
        beginNs = begin;
        completed = 0;
        counted = 0;
        bytes = 0;
        waitNs = 0;
        serviceNs = 0;
    }
}
