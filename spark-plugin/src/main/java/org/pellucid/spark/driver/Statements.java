package org.pellucid.spark.driver;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.scheduler.SparkListenerEvent;

/**
 * The SQL statements that ran, each with the shape of its plan, so that stages of different statements do
 * not count as similar.
 *
 * <p>Spark SQL is a separate module that an application may lack, so its events are recognised by class
 * name. Without such an event a stage belongs to no statement. Not thread-safe.
 */
final class Statements {
    private static final String STARTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart";
    private static final String EXECUTION = "spark.sql.execution.id";
    /** Maximum number of statements kept, more than run at once. */
    private static final int MAX_STATEMENTS = 1000;

    private final Map<String, String> shapes = new LinkedHashMap<>();

    /** Records the plan of a statement that starts; ignores other events. */
    void note(SparkListenerEvent event) throws ReflectiveOperationException {
        if (!event.getClass().getName().equals(STARTED)) {
            return;
        }
        String execution = event.getClass().getMethod("executionId").invoke(event).toString();
        shapes.put(execution, shape((String) event.getClass().getMethod("physicalPlanDescription").invoke(event)));
        if (shapes.size() > MAX_STATEMENTS) {
            shapes.remove(shapes.keySet().iterator().next());
        }
    }

    /**
     * Returns the shape of the statement that a stage belongs to; empty if it belongs to none.
     *
     * @param properties properties of the stage's job; may be null
     */
    String of(Properties properties) {
        String execution = properties == null ? null : properties.getProperty(EXECUTION);
        return execution == null ? "" : shapes.getOrDefault(execution, "");
    }

    /**
     * Returns a hash that is equal for texts that differ in numbers only: Spark's numbers of columns and
     * objects, dates in paths, constants.
     */
    static String shape(String text) {
        String without = text.replaceAll("@[0-9a-f]+|0x[0-9a-f]+|[0-9]+", "0");
        return Integer.toHexString(without.hashCode());
    }
}
