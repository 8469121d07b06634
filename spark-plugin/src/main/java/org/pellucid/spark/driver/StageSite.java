package org.pellucid.spark.driver;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.storage.RDDInfo;
import org.pellucid.spark.compat.SparkLists;
import org.pellucid.spark.core.Memory;

/**
 * The identity of a stage, from its description: its call site, its operators, the shapes of its SQL
 * statement and of its data sets' names, and whether it is a barrier stage.
 *
 * <p>The call sites of SQL stages are all the same line of Spark or of a notebook, so operators and
 * statement tell them apart. Spark lists a stage's data sets in the changing order of a hash set; their ids
 * are in order of creation.
 */
final class StageSite {
    private final Memory.StageKey key;
    private final boolean barrier;
    private final int tasks;

    /**
     * @param statement the shape of the stage's SQL statement; empty if it has none
     */
    static StageSite of(StageInfo stage, String statement) throws ReflectiveOperationException {
        return new StageSite(stage.name(), stage.numTasks(), SparkLists.rdds(stage), statement);
    }

    /** Like {@link #of}, from the parts of a description; the data sets may be in any order. */
    StageSite(String name, int tasks, List<RDDInfo> rdds, String statement) {
        List<RDDInfo> inOrder = new ArrayList<>(rdds);
        inOrder.sort(Comparator.comparingInt(RDDInfo::id));
        Set<String> operators = new LinkedHashSet<>();
        StringBuilder names = new StringBuilder();
        boolean anyBarrier = false;
        for (RDDInfo rdd : inOrder) {
            anyBarrier |= rdd.isBarrier();
            if (rdd.scope().isDefined()) {
                operators.add(rdd.scope().get().name());
            }
            names.append(rdd.name()).append('\n'); // for a text file, its path
        }
        String shape = statement + "-" + Statements.shape(names.toString());
        this.key = new Memory.StageKey(name + " | " + String.join(", ", operators) + " | " + shape, tasks);
        this.barrier = anyBarrier;
        this.tasks = tasks;
    }

    Memory.StageKey key() {
        return key;
    }

    boolean isBarrier() {
        return barrier;
    }

    int tasks() {
        return tasks;
    }
}
