package org.pellucid.spark.compat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Checks an application for Spark versions, shuffles and plugins that were not tested, for warnings at startup. */
public final class CompatibilityCheck {
    private static final String PLUGIN = "org.pellucid.spark.PellucidPlugin";
    private static final List<String> SORT_SHUFFLES =
        List.of("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager");

    private CompatibilityCheck() {}

    /**
     * Returns one warning per difference; none if everything was tested.
     *
     * @param version Spark's version
     * @param shuffle {@code spark.shuffle.manager}
     * @param plugins {@code spark.plugins}
     */
    public static List<String> of(String version, String shuffle, String plugins) {
        List<String> lines = new ArrayList<>();
        if (!version.matches("(3\\.5|4\\.[03])\\..*")) {
            lines.add("Pellucid was tested with Spark 3.5, 4.0 and 4.3, not with " + version);
        }
        if (!SORT_SHUFFLES.contains(shuffle.trim())) {
            lines.add("Pellucid was tested with Spark's own ShuffleManager, not with spark.shuffle.manager=" + shuffle
                + ": the waits of its shuffles are only part of io_wait_ns");
        }
        if (!Arrays.stream(plugins.split(",")).map(String::trim).allMatch(PLUGIN::equals)) {
            lines.add("Pellucid is not the only one of spark.plugins=" + plugins
                + ": what other plugins do to a task before or after it counts as the task's");
        }
        return lines;
    }
}
