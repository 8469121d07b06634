package org.pellucid.spark.shuffle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.storage.RDDInfo;
import org.pellucid.spark.compat.SparkLists;

/**
 * The shuffles that stages read, for the executors' {@link ShuffleReads}. Only stages whose tasks read one
 * partition each are listed. Kept by the driver.
 *
 * <p>A stage's shuffles are reported only if all of this holds: it has as many tasks as partitions (a
 * {@code take} has not; the executors compare with the files), its shuffles have no adaptive reader (which
 * coalesces, splits or transposes partitions), and none of its data sets is persisted (it might be read
 * instead of the shuffle).
 */
public final class StageShuffles {
    /** Spark's name for the operator with which adaptive execution reads a shuffle. */
    private static final String ADAPTIVE = "AQEShuffleRead";
    private static final int MAX_STAGES = 10_000;

    /** The shuffle that each stage writes, for stages that write one. */
    private final Map<Integer, Integer> shuffleOf = new LinkedHashMap<>();
    private final Map<Integer, String[]> answers = new HashMap<>();

    /** Records a job's stages, including those whose shuffle already exists. */
    public void jobStarted(SparkListenerJobStart job) throws ReflectiveOperationException {
        for (Object each : SparkLists.list(job, "stageInfos")) {
            StageInfo stage = (StageInfo) each;
            if (stage.shuffleDepId().isDefined()) {
                shuffleOf.put(stage.stageId(), (Integer) stage.shuffleDepId().get());
            }
        }
        while (shuffleOf.size() > MAX_STAGES) {
            shuffleOf.remove(shuffleOf.keySet().iterator().next());
        }
    }

    /** Records a submitted stage. */
    public void stageSubmitted(StageInfo stage) throws ReflectiveOperationException {
        List<Integer> parents = new ArrayList<>();
        for (Object parent : SparkLists.list(stage, "parentIds")) {
            parents.add(shuffleOf.get((Integer) parent));
        }
        List<RDDInfo> rdds = SparkLists.rdds(stage);
        if (answers.size() > MAX_STAGES) {
            answers.clear();
        }
        answers.put(stage.stageId(), answer(stage.numTasks(), parents, rdds));
    }

    /** Returns the answer for a stage's executors; null if the stage is not known yet. */
    public String[] of(int stage) {
        return answers.get(stage);
    }

    /**
     * Returns the number of tasks, followed by the shuffles that they read.
     *
     * @param parents shuffles that the parent stages write; null for an unknown one
     */
    static String[] answer(int tasks, List<Integer> parents, List<RDDInfo> rdds) {
        List<String> words = new ArrayList<>();
        words.add(Integer.toString(tasks));
        boolean simple = parents.stream().allMatch(Objects::nonNull);
        for (RDDInfo rdd : rdds) {
            simple &= !rdd.storageLevel().isValid();
            simple &= rdd.scope().isEmpty() || !rdd.scope().get().name().equals(ADAPTIVE);
        }
        if (simple) {
            parents.forEach(parent -> words.add(parent.toString()));
        }
        return words.toArray(new String[0]);
    }
}
