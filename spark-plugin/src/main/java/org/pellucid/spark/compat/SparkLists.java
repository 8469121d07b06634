package org.pellucid.spark.compat;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.storage.RDDInfo;

/**
 * Reads Spark's lists. Seq is a different class in Scala 2.12 and 2.13, so methods that return one are looked
 * up by name.
 */
public final class SparkLists {
    private SparkLists() {}

    /** Returns the stage's data sets. */
    public static List<RDDInfo> rdds(StageInfo stage) throws ReflectiveOperationException {
        List<RDDInfo> rdds = new ArrayList<>();
        list(stage, "rddInfos").forEach(each -> rdds.add((RDDInfo) each));
        return rdds;
    }

    /** Calls a method without arguments that returns a Seq, and copies the result. */
    public static List<Object> list(Object of, String method) throws ReflectiveOperationException {
        List<Object> list = new ArrayList<>();
        Object found = of.getClass().getMethod(method).invoke(of);
        Object iterator = Class.forName("scala.collection.Iterable").getMethod("iterator").invoke(found);
        scala.collection.Iterator<?> each = (scala.collection.Iterator<?>) iterator;
        while (each.hasNext()) {
            list.add(each.next());
        }
        return list;
    }
}
