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
 * What a stage is, by what its description tells: where it is called from, its operators, the shapes
 * of its SQL statement and of its data sets' names, whether its tasks wait for each other.
 *
 * <p>Call sites of SQL are all one line of Spark's or of a notebook's; the operators and the
 * statement tell them apart. Spark lists a stage's data sets in the order of a hash set, another
 * one each time; their numbers are in the order in which they were made.
 *
 * <p>The one class that reads lists of Spark's: their Seq is another class in Scala 2.12 than in
 * 2.13, so methods that give one are looked up by name.
 */
final class StageSite {
    private final Memory.Like like;
    private final boolean barrier;
    private final int tasks;

    /**
     * @param statement the shape of its SQL statement; empty where it is of none
     */
    static StageSite of(StageInfo stage, String statement) throws ReflectiveOperationException {
        return new StageSite(stage.name(), stage.numTasks(), sets(stage), statement);
    }

    /** Its data sets. */
    static List<RDDInfo> sets(StageInfo stage) throws ReflectiveOperationException {
        List<RDDInfo> sets = new ArrayList<>();
        list(stage, "rddInfos").forEach(each -> sets.add((RDDInfo) each));
        return sets;
    }

    /** What a method without arguments gives that gives a Seq. */
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

    /** As {@link #of}, from its parts; the data sets in any order. */
    StageSite(String name, int tasks, List<RDDInfo> sets, String statement) {
        List<RDDInfo> made = new ArrayList<>(sets);
        made.sort(Comparator.comparingInt(RDDInfo::id));
        Set<String> operators = new LinkedHashSet<>();
        StringBuilder names = new StringBuilder();
        boolean together = false;
        for (RDDInfo set : made) {
            together |= set.isBarrier();
            if (set.scope().isDefined()) {
                operators.add(set.scope().get().name());
            }
            names.append(set.name()).append('\n'); // of a text file: its path
        }
        String shape = statement + "-" + Statements.shape(names.toString());
        this.like = new Memory.Like(name + " | " + String.join(", ", operators) + " | " + shape, tasks);
        this.barrier = together;
        this.tasks = tasks;
    }

    Memory.Like like() {
        return like;
    }

    boolean isBarrier() {
        return barrier;
    }

    int tasks() {
        return tasks;
    }
}
