package org.pellucid.spark;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.apache.spark.api.plugin.PluginContext;
import org.pellucid.spark.core.Memory;
import org.pellucid.spark.core.Reason;
import org.pellucid.spark.core.Tuner;

/**
 * An executor's line to the driver's part: how many cores it has, how many tasks it wants, what
 * like stages found. All on one thread of its own, so that no task ever waits for the driver. The
 * messages are arrays of strings, which any class loader can read.
 *
 * <p>The gate holds whether or not a message arrives; without the driver Spark only sends tasks
 * that then wait here.
 */
final class DriverClient implements Tuner.Listener {
    /** The driver hears of executors and stages a little later than they begin. */
    private static final long AGAIN_MS = 50;
    private static final int TIMES = 200;

    private final PluginContext spark;
    private final ScheduledExecutorService background;
    private final AtomicBoolean pending = new AtomicBoolean();
    private final AtomicBoolean said = new AtomicBoolean();
    private final AtomicBoolean gaveUp = new AtomicBoolean();
    private Tuner tuner;
    private Failsafe fuse;
    private volatile boolean driverFollows;
    private PellucidExecutor executor;
    private Settings.Mode mode;
    private volatile boolean runsTasks;
    /** A part of one where Spark was told so: then nothing is gated ({@link Settings#of}). */
    private volatile double cpusOfTask;
    private volatile int slots;
    private volatile int cores;
    private int toldCores;

    DriverClient(PluginContext spark, ScheduledExecutorService background) {
        this.spark = spark;
        this.background = background;
        this.cpusOfTask = Double.parseDouble(spark.conf().get(Settings.TASK_CPUS, "1"));
    }

    void begin(PellucidExecutor executor, Tuner tuner, Failsafe fuse, Settings.Mode mode) {
        this.tuner = tuner;
        this.fuse = fuse;
        this.executor = executor;
        this.mode = mode;
        askCores(TIMES);
    }

    /** A task began that takes so many cores: all of one executor's do, as good as always. */
    void taskBegins(int cpus) {
        if (!runsTasks) {
            runsTasks = true;
            askCores(TIMES);
        }
        if (cpus != Math.ceil(cpusOfTask)) { // Spark rounds up
            cpusOfTask = cpus;
            later(() -> {
                if (cores > 0) {
                    tuner.setMax(ownSlots());
                }
            });
        }
    }

    /** What the scheduler was told last, or how many there are; 0: not known yet. */
    int slots() {
        return slots;
    }

    /** That the executor has without the plugin; 0: not known yet. */
    int ownSlots() {
        return (int) (cores / cpusOfTask + 1e-9);
    }

    private void askCores(int times) {
        later(() -> {
            if (cores > 0) {
                return; // known meanwhile
            }
            String[] answer =
                (String[]) spark.ask(new String[] {"executor", spark.executorID(), Boolean.toString(runsTasks)});
            if (answer.length < 2) {
                again(() -> askCores(times - 1), times);
                return;
            }
            cores = Integer.parseInt(answer[0]);
            slots = ownSlots();
            toldCores = cores;
            driverFollows = Boolean.parseBoolean(answer[1]) && mode != Settings.Mode.MEASURE;
            executor.coresKnown(cores);
            tuner.setMax(slots); // slots change: the driver is told, once tasks are gated
        });
    }

    @Override
    public void slotsChanged() {
        if (driverFollows && pending.compareAndSet(false, true)) {
            later(() -> {
                pending.set(false);
                tell(executor.slotsWanted(ownSlots()));
            });
        }
    }

    /**
     * The plugin failed in this process: Spark is told of the executor's own slots, for good. Past the fuse,
     * which lets no other message through any more.
     */
    void giveUp() {
        if (!gaveUp.compareAndSet(false, true)) {
            return;
        }
        try {
            background.execute(() -> {
                try {
                    tell(ownSlots());
                } catch (Exception | LinkageError e) {
                    Failsafe.LOG.warn("Pellucid could not give the executor's slots back", e);
                }
            });
        } catch (RejectedExecutionException e) {
            // The executor ends.
        }
    }

    private void tell(int wanted) throws Exception {
        int wantedCores = wanted == ownSlots() ? cores : (int) (wanted * cpusOfTask);
        if (driverFollows && wantedCores != toldCores) {
            spark.send(new String[] {
                "cores", spark.executorID(), Integer.toString(wantedCores)});
            toldCores = wantedCores;
            slots = wanted;
        }
    }

    @Override
    public void began(long stage) {
        ask(TIMES, answer -> {
            if (answer.length > 0) {
                tuner.expect(stage, Integer.parseInt(answer[0]));
            }
            if (answer.length > 1) {
                tuner.remember(stage, Integer.parseInt(answer[1]));
            }
        }, "stage", number(stage), spark.executorID());
    }

    /** What the driver knows of a stage's shuffles, when it comes ({@link StageShuffles}); empty: nothing. */
    CompletableFuture<String[]> shuffles(long stage) {
        CompletableFuture<String[]> answer = new CompletableFuture<>();
        ask(TIMES, answer::complete, "shuffles", number(stage));
        return answer;
    }

    /** Asks the driver until it knows; what it says in the end is empty if it never did. */
    private void ask(int times, Consumer<String[]> answered, String... message) {
        later(() -> {
            String[] answer = (String[]) spark.ask(message);
            if (answer.length == 0 && times > 0) {
                again(() -> ask(times - 1, answered, message), times);
            } else {
                answered.accept(answer);
            }
        });
    }

    @Override
    public void settled(long stage, int concurrency, Reason reason) {
        if (reason == Reason.REMEMBERED || reason == Reason.FIXED) {
            return;
        }
        boolean all = reason == Reason.NOT_BOUND_BY_IO || reason == Reason.AT_THE_MOST;
        String found = Integer.toString(all ? Memory.ALL : concurrency);
        later(() -> spark.send(new String[] {"settled", number(stage), spark.executorID(), found}));
    }

    /** Of the stage, whatever its attempt. */
    private static String number(long stage) {
        return Long.toString(stage >> 32);
    }

    private void again(Runnable ask, int times) {
        if (times > 0) {
            background.schedule(ask, AGAIN_MS, TimeUnit.MILLISECONDS); // from later(), so it can be refused
        }
    }

    /** An unreachable driver is no failure of ours: Spark itself will end the executor. */
    private void later(Failsafe.Part part) {
        try {
            background.execute(() -> fuse.guard("message", () -> {
                try {
                    part.run();
                } catch (Exception e) {
                    if (!background.isShutdown() && said.compareAndSet(false, true)) {
                        Failsafe.LOG.warn("Pellucid's part in the driver did not answer", e);
                    }
                }
            }));
        } catch (RejectedExecutionException e) {
            // The executor ends.
        }
    }
}
