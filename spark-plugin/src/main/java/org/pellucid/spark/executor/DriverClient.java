package org.pellucid.spark.executor;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.apache.spark.api.plugin.PluginContext;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.settings.Settings;

/**
 * An executor's client for the plugin's driver side. Reports the executor's cores and wanted slots, and
 * fetches what similar stages found. All messages are sent from one background thread, so no task ever
 * waits for the driver. Messages are arrays of strings, which any class loader can read.
 *
 * <p>The gate works without the driver. If messages are lost, Spark only sends tasks that then wait here.
 */
final class DriverClient {
    /** The driver may learn of executors and stages slightly after they start, so requests are retried. */
    private static final long RETRY_DELAY_MS = 50;
    private static final int MAX_RETRIES = 200;

    private final PluginContext spark;
    private final ScheduledExecutorService background;
    private final Failsafe failsafe;
    private final AtomicBoolean pending = new AtomicBoolean();
    private final AtomicBoolean warned = new AtomicBoolean();
    private final AtomicBoolean restored = new AtomicBoolean();
    private volatile boolean slotsAdjustable;
    private ExecutorMode mode;
    private volatile boolean runsTasks;
    /** A fraction if {@code spark.task.cpus} is one; nothing is gated then ({@link Settings#of}). */
    private volatile double cpusOfTask;
    private volatile int slots;
    private volatile int cores;
    private int sentCores;

    DriverClient(PluginContext spark, ScheduledExecutorService background, Failsafe failsafe) {
        this.spark = spark;
        this.background = background;
        this.failsafe = failsafe;
        this.cpusOfTask = Double.parseDouble(spark.conf().get(Settings.TASK_CPUS, "1"));
    }

    void begin(ExecutorMode mode) {
        this.mode = mode;
        requestCores(MAX_RETRIES);
    }

    /** Records the cores of a starting task. With rare exceptions all tasks of an executor take the same number. */
    void taskStarts(int cpus) {
        if (!runsTasks) {
            runsTasks = true;
            requestCores(MAX_RETRIES);
        }
        if (cpus != Math.ceil(cpusOfTask)) { // Spark rounds up
            cpusOfTask = cpus;
            inBackground(() -> {
                if (cores > 0) {
                    mode.setOwnSlots(ownSlots());
                }
            });
        }
    }

    /** Returns the slots that the scheduler was last told of, or the executor's own; 0 if not known yet. */
    int slots() {
        return slots;
    }

    /** Returns the executor's slots without the plugin; 0 if not known yet. */
    int ownSlots() {
        return (int) (cores / cpusOfTask + 1e-9);
    }

    private void requestCores(int retries) {
        inBackground(() -> {
            if (cores > 0) {
                return; // already known
            }
            String[] answer =
                (String[]) spark.ask(new String[] {"executor", spark.executorID(), Boolean.toString(runsTasks)});
            if (answer.length < 2) {
                retry(() -> requestCores(retries - 1), retries);
                return;
            }
            cores = Integer.parseInt(answer[0]);
            slots = ownSlots();
            sentCores = cores;
            slotsAdjustable = Boolean.parseBoolean(answer[1]) && mode.adjustsSlots();
            mode.coresKnown(cores);
            mode.setOwnSlots(slots); // triggers slotsChanged, after the gates are in place
        });
    }

    /** Tells Spark the slots that the mode now wants. */
    void slotsChanged() {
        if (slotsAdjustable && pending.compareAndSet(false, true)) {
            inBackground(() -> {
                pending.set(false);
                sendCores(mode.slotsWanted(ownSlots()));
            });
        }
    }

    /**
     * Restores the executor's own slots in Spark for good, after the plugin failed in this process. Bypasses
     * the failsafe, which blocks all other messages by then.
     */
    void restoreSlots() {
        if (!restored.compareAndSet(false, true)) {
            return;
        }
        try {
            background.execute(() -> {
                try {
                    sendCores(ownSlots());
                } catch (Exception | LinkageError e) {
                    Failsafe.LOG.warn("Pellucid cannot restore the executor's slots in Spark", e);
                }
            });
        } catch (RejectedExecutionException e) {
            // The executor is shutting down.
        }
    }

    private void sendCores(int wanted) throws Exception {
        int wantedCores = wanted == ownSlots() ? cores : (int) (wanted * cpusOfTask);
        if (slotsAdjustable && wantedCores != sentCores) {
            spark.send(new String[] {
                "cores", spark.executorID(), Integer.toString(wantedCores)});
            sentCores = wantedCores;
            slots = wanted;
        }
    }

    /** Requests the tasks of a stage to expect here, and what a similar stage found; passes on an empty array if unknown. */
    void stage(long stage, Consumer<String[]> answered) {
        ask(MAX_RETRIES, answered, "stage", stageId(stage), spark.executorID());
    }

    /** Requests the shuffles that a stage reads; completes with an empty array if unknown. */
    CompletableFuture<String[]> shuffles(long stage) {
        CompletableFuture<String[]> answer = new CompletableFuture<>();
        ask(MAX_RETRIES, answer::complete, "shuffles", stageId(stage));
        return answer;
    }

    /** Asks the driver until it knows the answer; passes on an empty array after the last attempt. */
    private void ask(int retries, Consumer<String[]> answered, String... message) {
        inBackground(() -> {
            String[] answer = (String[]) spark.ask(message);
            if (answer.length == 0 && retries > 0) {
                retry(() -> ask(retries - 1, answered, message), retries);
            } else {
                answered.accept(answer);
            }
        });
    }

    /** Reports what a stage settled at. */
    void settled(long stage, int concurrency) {
        String found = Integer.toString(concurrency);
        inBackground(() -> spark.send(new String[] {"settled", stageId(stage), spark.executorID(), found}));
    }

    /** Returns the stage's id without its attempt. */
    private static String stageId(long stage) {
        return Long.toString(stage >> 32);
    }

    private void retry(Runnable ask, int retries) {
        if (retries > 0) {
            background.schedule(ask, RETRY_DELAY_MS, TimeUnit.MILLISECONDS); // runs inside inBackground(), which handles a rejection
        }
    }

    /** Runs a message in the background. An unreachable driver does not trip the failsafe: Spark will end the executor. */
    private void inBackground(Failsafe.Part part) {
        try {
            background.execute(() -> failsafe.guard("message", () -> {
                try {
                    part.run();
                } catch (Exception e) {
                    if (!background.isShutdown() && warned.compareAndSet(false, true)) {
                        Failsafe.LOG.warn("Pellucid cannot reach its driver part; the executor goes on without it", e);
                    }
                }
            }));
        } catch (RejectedExecutionException e) {
            // The executor is shutting down.
        }
    }
}
