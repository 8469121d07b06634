package org.pellucid.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.storage.RDDInfo;

/**
 * Which shuffles each stage reads whose tasks read one partition each, their own: for the
 * {@link ShuffleReads} of the executors. Kept by the driver.
 *
 * <p>That is told of a stage only where it is sure: it has as many tasks as partitions (which a
 * {@code take} has not, and the executors compare with the files), no adaptive reader stands before
 * its shuffles (which joins, splits or transposes their partitions), and nothing in it is kept
 * (it might be read instead of the shuffle).
 */
final class StageShuffles {
    /** Spark's name for the operator by which adaptive execution reads a shuffle. */
    private static final String ADAPTIVE = "AQEShuffleRead";
    private static final int MAX_STAGES = 10_000;

    /** Of each stage that writes one. */
    private final Map<Integer, Integer> written = new LinkedHashMap<>();
    private final Map<Integer, String[]> said = new HashMap<>();

    /** All stages of a job are told as it starts, those whose shuffle is there already too. */
    void begins(SparkListenerJobStart job) throws ReflectiveOperationException {
        for (Object each : StageSite.list(job, "stageInfos")) {
            StageInfo stage = (StageInfo) each;
            if (stage.shuffleDepId().isDefined()) {
                written.put(stage.stageId(), (Integer) stage.shuffleDepId().get());
            }
        }
        while (written.size() > MAX_STAGES) {
            written.remove(written.keySet().iterator().next());
        }
    }

    /** A stage is there. */
    void submitted(StageInfo stage) throws ReflectiveOperationException {
        List<Integer> parents = new ArrayList<>();
        for (Object parent : StageSite.list(stage, "parentIds")) {
            parents.add(written.get((Integer) parent));
        }
        List<RDDInfo> sets = StageSite.sets(stage);
        if (said.size() > MAX_STAGES) {
            said.clear();
        }
        said.put(stage.stageId(), answer(stage.numTasks(), parents, sets));
    }

    /** For its executors; null of a stage that was not heard of yet. */
    String[] of(int stage) {
        return said.get(stage);
    }

    /**
     * How many tasks it has, and the shuffles that they read.
     *
     * @param parents shuffles that its parent stages write; null of one that is not known
     */
    static String[] answer(int tasks, List<Integer> parents, List<RDDInfo> sets) {
        List<String> words = new ArrayList<>();
        words.add(Integer.toString(tasks));
        boolean plain = parents.stream().allMatch(Objects::nonNull);
        for (RDDInfo set : sets) {
            plain &= !set.storageLevel().isValid();
            plain &= set.scope().isEmpty() || !set.scope().get().name().equals(ADAPTIVE);
        }
        if (plain) {
            parents.forEach(parent -> words.add(parent.toString()));
        }
        return words.toArray(new String[0]);
    }
}
