package org.pellucid.spark;

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
import org.pellucid.spark.core.Memory;

/**
 * On the driver: makes the accumulators, remembers what stages found, and lets the scheduler's
 * slots follow what each executor asks for.
 *
 * <p>While a barrier stage is there, every executor has all of its slots: its tasks start at once
 * or not at all. So while one is there whose resource profile is not the default: a task that takes more
 * cores than an executor was left would never be sent. While a job is there that switched the plugin
 * off, every executor has its own, no more and no fewer.
 */
final class PellucidDriver implements DriverPlugin {
    /** What the executors are given; without it they do nothing. */
    static final String ACCUMULABLES = "accumulables";
    private static final String[] UNKNOWN = {};
    /** Stages whose site is kept. */
    private static final int MAX_STAGES = 1000;

    private SparkContext context;
    private Settings settings;
    private Failsafe fuse;
    private SchedulerSlots scheduler;
    private Boolean follows;
    /** Held so that Spark does not collect them. */
    private Accumulables accumulables;

    private final Memory memory = new Memory();
    private final Map<String, Executor> executors = new HashMap<>();
    /** Stages for which no executor has fewer slots than its own. */
    private final Set<Long> whole = new HashSet<>();
    private final OffJobs offJobs = new OffJobs();
    private final Map<Integer, StageSite> sites = new BoundedMap<>(MAX_STAGES);
    private final Statements statements = new Statements();
    private final StageShuffles shuffles = new StageShuffles();

    private static final class Executor {
        /** From here, since an executor's own context has no address and so no name of its host. */
        final String host;
        final int cores;
        /** Cores that the scheduler was told to reckon with beyond, or short of, its own. */
        int offset;
        int wantedOffset;

        Executor(ExecutorInfo info) {
            this.host = info.executorHost();
            this.cores = info.totalCores();
        }
    }

    /** Jobs that switched the plugin off for themselves. */
    static final class OffJobs {
        private final Set<Integer> running = new HashSet<>();
        private boolean latest;

        /** @param properties local ones, as its tasks have them; null where there are none */
        void begins(int job, Properties properties) {
            latest = properties != null && Settings.isOff(properties.getProperty(Settings.MODE));
            if (latest) {
                running.add(job);
            }
        }

        void ends(int job) {
            running.remove(job);
        }

        /** Whether any runs, or the job that began last was one: the next of its session comes soon. */
        boolean any() {
            return latest || !running.isEmpty();
        }
    }

    @Override
    public Map<String, String> init(SparkContext sparkContext, PluginContext plugin) {
        Map<String, String> forExecutors = new HashMap<>();
        fuse = new Failsafe(Set.of(), () -> { });
        fuse.guard("init", () -> {
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
                Failsafe.LOG.warn("Pellucid measures, and leaves tasks and files alone: tasks take parts of a core ({}={})",
                    Settings.TASK_CPUS, plugin.conf().get(Settings.TASK_CPUS));
            }
            if (!settings.unused.isEmpty()) {
                Failsafe.LOG.warn("Pellucid only measures: {} {} no effect without {}=adaptive or monotasks",
                    Settings.PREFIX + String.join(", " + Settings.PREFIX, settings.unused),
                    settings.unused.size() == 1 ? "has" : "have", Settings.MODE);
            }
            fuse = new Failsafe(settings.faults, this::restore);
            fuse.guard("driver.init", () -> begin(forExecutors));
        });
        return fuse.isBlown() ? Map.of() : forExecutors;
    }

    private void begin(Map<String, String> forExecutors) throws IOException {
        String shuffle = context.conf().get("spark.shuffle.manager", "sort");
        String plugins = context.conf().get("spark.plugins", "");
        CompatibilityCheck.of(context.version(), shuffle, plugins).forEach(Failsafe.LOG::warn);
        context.addSparkListener(settings.mode == Settings.Mode.MEASURE ? new Watch() : new StageWatch());
        accumulables = Accumulables.register(context);
        forExecutors.put(ACCUMULABLES, accumulables.serialised());
        if (settings.memory != null) {
            try {
                memory.load(Path.of(settings.memory));
            } catch (IOException e) {
                Failsafe.LOG.warn("Pellucid remembers nothing of earlier applications: {}", e.getMessage());
                settings = settings.withoutMemory();
            }
        }
    }

    private class Watch extends SparkListener {
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

    /** Jobs and stages too, of which nothing needs to be known where all is only measured. */
    private final class StageWatch extends Watch {
        @Override
        public void onJobStart(SparkListenerJobStart event) {
            guarded("driver.listener", () -> {
                shuffles.begins(event);
                offJobs.begins(event.jobId(), event.properties());
                followAll();
            });
        }

        @Override
        public void onJobEnd(SparkListenerJobEnd event) {
            guarded("driver.listener", () -> {
                offJobs.ends(event.jobId());
                followAll();
            });
        }

        @Override
        public void onStageSubmitted(SparkListenerStageSubmitted event) {
            guarded("driver.listener", () -> {
                shuffles.submitted(event.stageInfo());
                StageSite site = StageSite.of(event.stageInfo(), statements.of(event.properties()));
                sites.put(event.stageInfo().stageId(), site);
                if (site.isBarrier() || event.stageInfo().resourceProfileId() != ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID()) {
                    whole.add(attempt(event.stageInfo()));
                    followAll();
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
                if (whole.remove(attempt(event.stageInfo()))) {
                    followAll();
                }
            });
        }
    }

    private static long attempt(org.apache.spark.scheduler.StageInfo stage) {
        return TaskMeter.stageKey(stage.stageId(), stage.attemptNumber());
    }

    private void guarded(String name, Failsafe.Part part) {
        fuse.guard(name, () -> {
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

    /** Null to what asks nothing: Spark logs every other answer to such a message. */
    private String[] answer(String[] words) throws Exception {
        switch (words[0]) {
            case "executor":
                return coresOf(words[1], Boolean.parseBoolean(words[2]));
            case "cores":
                want(words[1], Integer.parseInt(words[2]));
                return null;
            case "stage":
                return found(words);
            case "shuffles":
                String[] said = shuffles.of(Integer.parseInt(words[1]));
                return said == null ? UNKNOWN : said;
            case "settled":
                learn(words);
                return null;
            default:
                throw new IllegalArgumentException("no such message: " + words[0]);
        }
    }

    /** Once Spark sends it tasks: before, what the scheduler is told of it is lost. */
    private String[] coresOf(String id, boolean runsTasks) throws ReflectiveOperationException {
        Executor executor = executors.get(id);
        if (executor == null || schedulerFollows() && !runsTasks && !scheduler.hasFreeCores(id)) {
            return UNKNOWN;
        }
        return new String[] {Integer.toString(executor.cores), Boolean.toString(schedulerFollows())};
    }

    private void learn(String[] words) {
        StageSite site = sites.get(Integer.parseInt(words[1]));
        Executor executor = executors.get(words[2]);
        if (site != null && executor != null) {
            memory.learn(site.like(), executor.host, words[2], Integer.parseInt(words[3]));
            save();
        }
    }

    /** How many tasks of a stage an executor will have, as far as is known; and what a like one found, where one did. */
    private String[] found(String[] words) {
        StageSite site = sites.get(Integer.parseInt(words[1]));
        Executor executor = executors.get(words[2]);
        if (site == null || executor == null) {
            return UNKNOWN;
        }
        int each = site.tasks() / Math.max(executors.size(), 1);
        // Too short to tune: on each executor two intervals at the least, of which one is cold, and one at its double.
        boolean isShort = each < 4L * settings.tuning.min;
        OptionalInt found = memory.find(site.like(), executor.host, words[2], isShort);
        String tasks = Integer.toString(each);
        return found.isPresent() ? new String[] {tasks, Integer.toString(found.getAsInt())} : new String[] {tasks};
    }

    private void save() {
        if (settings.memory != null) {
            try {
                memory.save(Path.of(settings.memory));
            } catch (IOException e) {
                Failsafe.LOG.warn("Pellucid could not write spark.pellucid.memory: {}", e.toString());
                settings = settings.withoutMemory();
            }
        }
    }

    private boolean schedulerFollows() {
        if (follows == null) {
            try {
                if (settings.faults.contains("slots")) {
                    throw new ClassNotFoundException("a fault asked for by spark.pellucid.fault");
                }
                follows = settings.mode != Settings.Mode.MEASURE && SchedulerSlots.has(context);
                scheduler = follows ? new SchedulerSlots(context) : null;
            } catch (ReflectiveOperationException | LinkageError e) {
                follows = false;
                Failsafe.LOG.warn("Pellucid cannot change this Spark's slots; tasks wait in the executors", e);
            }
        }
        return follows;
    }

    private void want(String id, int cores) throws ReflectiveOperationException {
        Executor executor = executors.get(id);
        if (executor != null && schedulerFollows()) {
            executor.wantedOffset = cores - executor.cores;
            follow(id, executor);
        }
    }

    private void followAll() throws ReflectiveOperationException {
        for (Map.Entry<String, Executor> entry : executors.entrySet()) {
            follow(entry.getKey(), entry.getValue());
        }
    }

    private void follow(String id, Executor executor) throws ReflectiveOperationException {
        int offset = offset(executor.wantedOffset, offJobs.any(), !whole.isEmpty());
        if (scheduler != null && offset != executor.offset) {
            scheduler.free(id, offset - executor.offset);
            executor.offset = offset;
        }
    }

    static int offset(int wanted, boolean off, boolean whole) {
        if (off) {
            return 0;
        }
        // More than all, of the monotasks mode, does such a stage no harm.
        return whole ? Math.max(wanted, 0) : wanted;
    }

    /** Every executor has its own slots again. */
    private synchronized void restore() {
        try {
            for (Map.Entry<String, Executor> entry : executors.entrySet()) {
                entry.getValue().wantedOffset = 0;
                follow(entry.getKey(), entry.getValue());
            }
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
