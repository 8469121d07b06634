package org.pellucid.spark;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.scheduler.SparkListenerEvent;

/**
 * The SQL statements that ran, each by the shape of its plan, so that the stages of unlike statements are
 * not taken for like ones.
 *
 * <p>Spark's SQL is a module of its own that an application may do without; what it tells listeners is
 * read by name. Where it tells nothing of the kind a stage is of no statement. Not thread-safe.
 */
final class Statements {
    private static final String BEGINS = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart";
    private static final String EXECUTION = "spark.sql.execution.id";
    /** Statements that are kept: more than run at once. */
    private static final int MOST = 1000;

    private final Map<String, String> shapes = new LinkedHashMap<>();

    /** Keeps the plan of a statement that begins; of other events nothing. */
    void note(SparkListenerEvent event) throws ReflectiveOperationException {
        if (!event.getClass().getName().equals(BEGINS)) {
            return;
        }
        String execution = event.getClass().getMethod("executionId").invoke(event).toString();
        shapes.put(execution, shape((String) event.getClass().getMethod("physicalPlanDescription").invoke(event)));
        if (shapes.size() > MOST) {
            shapes.remove(shapes.keySet().iterator().next());
        }
    }

    /**
     * The shape of the statement to which a stage belongs; empty where it belongs to none.
     *
     * @param properties of the stage's job; may be null
     */
    String of(Properties properties) {
        String execution = properties == null ? null : properties.getProperty(EXECUTION);
        return execution == null ? "" : shapes.getOrDefault(execution, "");
    }

    /**
     * The same for texts that differ in numbers alone: those that Spark gives to columns and objects, dates
     * in paths, constants.
     */
    static String shape(String text) {
        String without = text.replaceAll("@[0-9a-f]+|0x[0-9a-f]+|[0-9]+", "0");
        return Integer.toHexString(without.hashCode());
    }
}
