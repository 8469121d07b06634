package org.pellucid.spark;

import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.storage.RDDInfo;
import org.pellucid.spark.core.Memory;

/**
 * What a stage is, by what its description tells: where it is called from, its operators, whether
 * its tasks wait for each other.
 *
 * <p>The one class that reads a stage's data sets: their Seq is another class in Scala 2.12 than in
 * 2.13, so the method is looked up by name.
 */
final class StageSite {
    private final Memory.Like like;
    private final boolean barrier;
    private final int tasks;

    StageSite(StageInfo stage) throws ReflectiveOperationException {
        Set<String> operators = new LinkedHashSet<>();
        boolean together = false;
        Object sets = StageInfo.class.getMethod("rddInfos").invoke(stage);
        Object iterator = Class.forName("scala.collection.Iterable").getMethod("iterator").invoke(sets);
        scala.collection.Iterator<?> each = (scala.collection.Iterator<?>) iterator;
        while (each.hasNext()) {
            RDDInfo set = (RDDInfo) each.next();
            together |= set.isBarrier();
            operators.add(set.scope().isDefined() ? set.scope().get().name() : set.name());
        }
        // Call sites of SQL are all one line of Spark's; the operators tell them apart.
        like = new Memory.Like(stage.name() + " | " + String.join(", ", operators), stage.numTasks());
        barrier = together;
        tasks = stage.numTasks();
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
