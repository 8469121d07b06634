package org.pellucid.spark.driver;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.cluster.ExecutorInfo;
import org.pellucid.spark.compat.CompatibilityCheck;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.compat.SchedulerSlots;
import org.pellucid.spark.core.BoundedMap;
import org.pellucid.spark.core.Memory;
import org.pellucid.spark.metrics.Accumulables;
import org.pellucid.spark.metrics.TaskMeter;
import org.pellucid.spark.settings.Settings;
import org.pellucid.spark.shuffle.StageShuffles;

/**
 * The driver's side of the plugin. Registers the accumulators, stores what stages found, and adjusts
 * the scheduler's slots to what each executor asks for.
 *
 * <p>While a barrier stage runs, every executor has at least its own slots, because the stage's tasks
 * start all at once or not at all. The same holds while a stage with a non-default resource profile runs:
 * a task that takes more cores than an executor has left would never be sent. While a job with the plugin
 * off runs, every executor has exactly its own slots.
 */
public final class PellucidDriver implements DriverPlugin {
    private static final String[] UNKNOWN = {};
    /** Maximum number of stages whose site is kept. */
    private static final int MAX_STAGES = 1000;

    private SparkContext context;
    private Settings settings;
    private Failsafe failsafe;
    private SchedulerSlots scheduler;
    private Boolean adjusts;
    /** Kept reachable, because Spark holds registered accumulators weakly. */
    private Accumulables accumulables;

    private final Memory memory = new Memory();
    private final Map<String, Executor> executors = new HashMap<>();
    /** Stages during which no executor may have fewer slots than its own. */
    private final Set<Long> fullSlotStages = new HashSet<>();
    private final DisabledJobs disabledJobs = new DisabledJobs();
    private final Map<Integer, StageSite> sites = new BoundedMap<>(MAX_STAGES);
    private final Statements statements = new Statements();
    private final StageShuffles shuffles = new StageShuffles();

    private static final class Executor {
        /** From the listener event, because an executor's own context does not name its host. */
        final String host;
        final int cores;
        /** Cores added to, or taken from, the executor's own in the scheduler. */
        int offset;
        int wantedOffset;

        Executor(ExecutorInfo info) {
            this.host = info.executorHost();
            this.cores = info.totalCores();
        }
    }

    /** Jobs that turned the plugin off for themselves. */
    static final class DisabledJobs {
        private final Set<Integer> running = new HashSet<>();
        private boolean lastDisabled;

        /** @param properties the job's local properties; may be null */
        void started(int job, Properties properties) {
            lastDisabled = properties != null && Settings.isOff(properties.getProperty(Settings.MODE));
            if (lastDisabled) {
                running.add(job);
            }
        }

        void ended(int job) {
            running.remove(job);
        }

        /** Returns true while such a job runs, and after one until another starts, since its session may run more. */
        boolean any() {
            return lastDisabled || !running.isEmpty();
        }
    }

    @Override
    public Map<String, String> init(SparkContext sparkContext, PluginContext plugin) {
        Map<String, String> forExecutors = new HashMap<>();
        failsafe = new Failsafe(Set.of(), () -> { });
        failsafe.guard("init", () -> {
            context = sparkContext;
            try {
                settings = Settings.of(plugin.conf());
            } catch (IllegalArgumentException e) {
                Failsafe.LOG.error("Pellucid is off: {}", e.getMessage());
                return;
            }
            if (settings.mode == Settings.Mode.OFF) {
                return;
            }
            if (!Settings.wholeCpus(plugin.conf())) {
                Failsafe.LOG.warn("Pellucid measures only: tasks with fractional cores ({}={}) cannot be gated",
                    Settings.TASK_CPUS, plugin.conf().get(Settings.TASK_CPUS));
            }
            if (!settings.unused.isEmpty()) {
                Failsafe.LOG.warn("Pellucid only measures: {} {} no effect without {}=adaptive or monotasks",
                    Settings.PREFIX + String.join(", " + Settings.PREFIX, settings.unused),
                    settings.unused.size() == 1 ? "has" : "have", Settings.MODE);
            }
            failsafe = new Failsafe(settings.faults, this::restore);
            failsafe.guard("driver.init", () -> begin(forExecutors));
        });
        return failsafe.isTripped() ? Map.of() : forExecutors;
    }

    private void begin(Map<String, String> forExecutors) throws IOException {
        String shuffle = context.conf().get("spark.shuffle.manager", "sort");
        String plugins = context.conf().get("spark.plugins", "");
        CompatibilityCheck.of(context.version(), shuffle, plugins).forEach(Failsafe.LOG::warn);
        context.addSparkListener(settings.mode == Settings.Mode.MEASURE ? new ExecutorListener() : new StageListener());
        accumulables = Accumulables.register(context);
        forExecutors.put(Accumulables.KEY, accumulables.serialised());
        if (settings.memory != null) {
            try {
                memory.load(Path.of(settings.memory));
            } catch (IOException e) {
                Failsafe.LOG.warn("Pellucid cannot load spark.pellucid.memory and starts without it: {}", e.getMessage());
                settings = settings.withoutMemory();
            }
        }
    }

    private class ExecutorListener extends SparkListener {
        @Override
        public void onExecutorAdded(SparkListenerExecutorAdded event) {
            guarded("driver.listener", () ->
                executors.put(event.executorId(), new Executor(event.executorInfo())));
        }

        @Override
        public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
            guarded("driver.listener", () -> executors.remove(event.executorId()));
        }
    }

    /** Also follows jobs and stages, which {@code measure} does not need. */
    private final class StageListener extends ExecutorListener {
        @Override
        public void onJobStart(SparkListenerJobStart event) {
            guarded("driver.listener", () -> {
                shuffles.jobStarted(event);
                disabledJobs.started(event.jobId(), event.properties());
                applyOffsets();
            });
        }

        @Override
        public void onJobEnd(SparkListenerJobEnd event) {
            guarded("driver.listener", () -> {
                disabledJobs.ended(event.jobId());
                applyOffsets();
            });
        }

        @Override
        public void onStageSubmitted(SparkListenerStageSubmitted event) {
            guarded("driver.listener", () -> {
                shuffles.stageSubmitted(event.stageInfo());
                StageSite site = StageSite.of(event.stageInfo(), statements.of(event.properties()));
                sites.put(event.stageInfo().stageId(), site);
                if (site.isBarrier() || event.stageInfo().resourceProfileId() != ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID()) {
                    fullSlotStages.add(stageKey(event.stageInfo()));
                    applyOffsets();
                }
            });
        }

        @Override
        public void onOtherEvent(SparkListenerEvent event) {
            guarded("driver.listener", () -> statements.note(event));
        }

        @Override
        public void onStageCompleted(SparkListenerStageCompleted event) {
            guarded("driver.listener", () -> {
                if (fullSlotStages.remove(stageKey(event.stageInfo()))) {
                    applyOffsets();
                }
            });
        }
    }

    private static long stageKey(org.apache.spark.scheduler.StageInfo stage) {
        return TaskMeter.stageKey(stage.stageId(), stage.attemptNumber());
    }

    private void guarded(String name, Failsafe.Part part) {
        failsafe.guard(name, () -> {
            synchronized (this) {
                part.run();
            }
        });
    }

    @Override
    public Object receive(Object message) {
        String[][] answer = {UNKNOWN};
        guarded("driver.receive", () -> answer[0] = answer((String[]) message));
        return answer[0];
    }

    /** Returns the answer to a message; null for a one-way message, since Spark logs any other answer to it. */
    private String[] answer(String[] words) throws Exception {
        switch (words[0]) {
            case "executor":
                return executorAnswer(words[1], Boolean.parseBoolean(words[2]));
            case "cores":
                setWantedCores(words[1], Integer.parseInt(words[2]));
                return null;
            case "stage":
                return stageAnswer(words);
            case "shuffles":
                String[] found = shuffles.of(Integer.parseInt(words[1]));
                return found == null ? UNKNOWN : found;
            case "settled":
                learn(words);
                return null;
            default:
                throw new IllegalArgumentException("unknown message: " + words[0]);
        }
    }

    /** Returns UNKNOWN until Spark sends the executor tasks, since slot changes before that are lost. */
    private String[] executorAnswer(String id, boolean runsTasks) throws ReflectiveOperationException {
        Executor executor = executors.get(id);
        if (executor == null || adjustsSlots() && !runsTasks && !scheduler.hasFreeCores(id)) {
            return UNKNOWN;
        }
        return new String[] {Integer.toString(executor.cores), Boolean.toString(adjustsSlots())};
    }

    private void learn(String[] words) {
        StageSite site = sites.get(Integer.parseInt(words[1]));
        Executor executor = executors.get(words[2]);
        if (site != null && executor != null) {
            memory.learn(site.key(), executor.host, words[2], Integer.parseInt(words[3]));
            save();
        }
    }

    /** Returns the expected tasks of a stage per executor, followed by what a similar stage found, if any. */
    private String[] stageAnswer(String[] words) {
        StageSite site = sites.get(Integer.parseInt(words[1]));
        Executor executor = executors.get(words[2]);
        if (site == null || executor == null) {
            return UNKNOWN;
        }
        int each = site.tasks() / Math.max(executors.size(), 1);
        // Tuning takes at least a cold interval, another at the minimum, and one at its double.
        boolean isShort = each < 4L * settings.tuning.min;
        OptionalInt found = memory.find(site.key(), executor.host, words[2], isShort);
        String tasks = Integer.toString(each);
        return found.isPresent() ? new String[] {tasks, Integer.toString(found.getAsInt())} : new String[] {tasks};
    }

    private void save() {
        if (settings.memory != null) {
            try {
                memory.save(Path.of(settings.memory));
            } catch (IOException e) {
                Failsafe.LOG.warn("Pellucid cannot write spark.pellucid.memory and stops saving it: {}", e.toString());
                settings = settings.withoutMemory();
            }
        }
    }

    private boolean adjustsSlots() {
        if (adjusts == null) {
            try {
                if (settings.faults.contains("slots")) {
                    throw new ClassNotFoundException("fault requested by spark.pellucid.fault");
                }
                adjusts = settings.mode != Settings.Mode.MEASURE && SchedulerSlots.sendsTasks(context);
                scheduler = adjusts ? new SchedulerSlots(context) : null;
            } catch (ReflectiveOperationException | LinkageError e) {
                adjusts = false;
                Failsafe.LOG.warn("Pellucid cannot change this Spark's slots; tasks wait in the executors instead", e);
            }
        }
        return adjusts;
    }

    private void setWantedCores(String id, int cores) throws ReflectiveOperationException {
        Executor executor = executors.get(id);
        if (executor != null && adjustsSlots()) {
            executor.wantedOffset = cores - executor.cores;
            applyOffset(id, executor);
        }
    }

    private void applyOffsets() throws ReflectiveOperationException {
        for (Map.Entry<String, Executor> entry : executors.entrySet()) {
            applyOffset(entry.getKey(), entry.getValue());
        }
    }

    private void applyOffset(String id, Executor executor) throws ReflectiveOperationException {
        int offset = offset(executor.wantedOffset, disabledJobs.any(), !fullSlotStages.isEmpty());
        if (scheduler != null && offset != executor.offset) {
            scheduler.addFreeCores(id, offset - executor.offset);
            executor.offset = offset;
        }
    }

    static int offset(int wanted, boolean off, boolean fullSlots) {
        if (off) {
            return 0;
        }
        // More slots than its own, as in monotasks mode, do not harm such a stage.
        return fullSlots ? Math.max(wanted, 0) : wanted;
    }

    /** Gives every executor its own slots. */
    private synchronized void restore() {
        try {
            for (Map.Entry<String, Executor> entry : executors.entrySet()) {
                entry.getValue().wantedOffset = 0;
                applyOffset(entry.getKey(), entry.getValue());
            }
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
