package org.pellucid.spark;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.storage.RDDInfo;
import org.pellucid.spark.core.Memory;

/**
 * The identity of a stage, from its description: its call site, its operators, the shapes of its SQL
 * statement and of its data sets' names, and whether it is a barrier stage.
 *
 * <p>The call sites of SQL stages are all the same line of Spark or of a notebook, so operators and
 * statement tell them apart. Spark lists a stage's data sets in the changing order of a hash set; their ids
 * are in order of creation.
 *
 * <p>This is the only class that reads Spark's lists. Seq is a different class in Scala 2.12 and 2.13, so
 * methods that return one are looked up by name.
 */
final class StageSite {
    private final Memory.StageKey key;
    private final boolean barrier;
    private final int tasks;

    /**
     * @param statement the shape of the stage's SQL statement; empty if it has none
     */
    static StageSite of(StageInfo stage, String statement) throws ReflectiveOperationException {
        return new StageSite(stage.name(), stage.numTasks(), rdds(stage), statement);
    }

    /** Returns the stage's data sets. */
    static List<RDDInfo> rdds(StageInfo stage) throws ReflectiveOperationException {
        List<RDDInfo> rdds = new ArrayList<>();
        list(stage, "rddInfos").forEach(each -> rdds.add((RDDInfo) each));
        return rdds;
    }

    /** Calls a method without arguments that returns a Seq, and copies the result. */
    static List<Object> list(Object of, String method) throws ReflectiveOperationException {
        List<Object> list = new ArrayList<>();
        Object found = of.getClass().getMethod(method).invoke(of);
        Object iterator = Class.forName("scala.collection.Iterable").getMethod("iterator").invoke(found);
        scala.collection.Iterator<?> each = (scala.collection.Iterator<?>) iterator;
        while (each.hasNext()) {
            list.add(each.next());
        }
        return list;
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
