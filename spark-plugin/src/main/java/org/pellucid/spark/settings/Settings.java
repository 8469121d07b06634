package org.pellucid.spark.settings;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.pellucid.spark.core.Policy;
import org.pellucid.spark.core.Tuning;

/** The settings under {@code spark.pellucid.}, parsed and validated. */
public final class Settings {
    public static final String PREFIX = "spark.pellucid.";
    /** Also a local property of a job, where {@code off} or {@code measure} turns gating off for its tasks. */
    public static final String MODE = PREFIX + "mode";
    /** Spark's own setting: cores per task. Since 4.3 it may be a fraction. */
    public static final String TASK_CPUS = "spark.task.cpus";

    /** The values of {@link #MODE}. */
    public enum Mode { ADAPTIVE, MONOTASKS, MEASURE, OFF }

    public final Mode mode;
    public final Tuning tuning;
    /** File that keeps results between applications; null for none. */
    public final String memory;
    /** Folders, one per disk; empty to use the mounted file systems. */
    public final List<String> disks;
    public final int diskMin;
    public final int diskMax;
    /** Guarded parts that must throw, for tests. */
    public final Set<String> faults;
    /** Keys that have no effect because the mode is {@code measure}. */
    public final Set<String> unused;

    private static final List<String> KEYS = List.of("mode", "policy", "gain", "concurrency.min",
        "concurrency.max", "patience", "memory", "disks", "disk.concurrency.min", "disk.concurrency.max", "fault");
    /** Spark's time units. A unit is required, since Spark's settings differ in their default unit. */
    private static final Map<String, TimeUnit> UNITS = Map.of("us", TimeUnit.MICROSECONDS, "ms", TimeUnit.MILLISECONDS,
        "s", TimeUnit.SECONDS, "m", TimeUnit.MINUTES, "min", TimeUnit.MINUTES, "h", TimeUnit.HOURS, "d", TimeUnit.DAYS);

    /** Returns true if a job's local {@link #MODE} turns gating and queueing off. Its tasks are still measured. */
    public static boolean isOff(String mode) {
        return Mode.OFF.name().equalsIgnoreCase(mode) || Mode.MEASURE.name().equalsIgnoreCase(mode);
    }

    /** Returns true if tasks take whole cores, the unit in which gates count. */
    public static boolean wholeCpus(SparkConf conf) {
        double cpus = Double.parseDouble(conf.get(TASK_CPUS, "1"));
        return cpus == Math.rint(cpus);
    }

    /** Parses an application's settings; throws like {@link #Settings(Map)}. Tasks with fractional cores are only measured. */
    public static Settings of(SparkConf conf) {
        Map<String, String> entries = new TreeMap<>();
        for (scala.Tuple2<String, String> entry : conf.getAllWithPrefix(PREFIX)) {
            entries.put(entry._1(), entry._2());
        }
        Settings settings = new Settings(entries);
        boolean gates = settings.mode == Mode.ADAPTIVE || settings.mode == Mode.MONOTASKS;
        return gates && !wholeCpus(conf) ? new Settings(settings, Mode.MEASURE, settings.memory) : settings;
    }

    /**
     * @param conf the settings, by their keys without the prefix
     * @throws IllegalArgumentException with the key, its value and the valid values
     */
    Settings(Map<String, String> conf) {
        for (String key : conf.keySet()) {
            if (!KEYS.contains(key)) {
                throw new IllegalArgumentException(
                    "unknown setting " + PREFIX + key + "; valid settings: " + String.join(", ", KEYS));
            }
        }
        mode = enumValue(conf, "mode", Mode.class, Mode.MEASURE);
        Tuning standard = Tuning.standard();
        Policy policy = enumValue(conf, "policy", Policy.class, standard.policy);
        int max = positiveInt(conf, "concurrency.max", standard.max);
        int min = positiveInt(conf, "concurrency.min", Math.min(standard.min, max));
        checkRange("concurrency", min, max);
        double gain = gain(conf, standard.gain);
        tuning = new Tuning(policy, min, max, gain, patienceNs(conf, standard.patienceNs));
        memory = conf.get("memory");
        disks = list(conf, "disks");
        diskMin = positiveInt(conf, "disk.concurrency.min", 1);
        diskMax = positiveInt(conf, "disk.concurrency.max", Math.max(diskMin, 4));
        checkRange("disk.concurrency", diskMin, diskMax);
        faults = new TreeSet<>(list(conf, "fault"));
        unused = new TreeSet<>(mode == Mode.MEASURE ? conf.keySet() : Set.of());
        unused.removeAll(Set.of("mode", "fault"));
    }

    private Settings(Settings other, Mode mode, String memory) {
        this.mode = mode;
        tuning = other.tuning;
        this.memory = memory;
        disks = other.disks;
        diskMin = other.diskMin;
        diskMax = other.diskMax;
        faults = other.faults;
        unused = other.unused;
    }

    /** Returns these settings without a memory file. */
    public Settings withoutMemory() {
        return new Settings(this, mode, null);
    }

    private static void checkRange(String key, int min, int max) {
        if (min > max) {
            throw new IllegalArgumentException("invalid " + PREFIX + key + ".min=" + min
                + ": greater than " + PREFIX + key + ".max=" + max);
        }
    }

    private static List<String> list(Map<String, String> conf, String key) {
        List<String> words = new ArrayList<>(Arrays.asList(conf.getOrDefault(key, "").split(",")));
        words.replaceAll(String::trim);
        words.removeIf(String::isEmpty);
        return words;
    }

    private static <E extends Enum<E>> E enumValue(Map<String, String> conf, String key, Class<E> type, E fallback) {
        String value = conf.getOrDefault(key, fallback.name());
        for (E constant : type.getEnumConstants()) {
            if (constant.name().equalsIgnoreCase(value.trim())) {
                return constant;
            }
        }
        String all = Arrays.toString(type.getEnumConstants()).toLowerCase(Locale.ROOT);
        throw invalid(key, value, "expected one of " + all);
    }

    private static int positiveInt(Map<String, String> conf, String key, int fallback) {
        String value = conf.getOrDefault(key, Integer.toString(fallback));
        try {
            int count = Integer.parseInt(value.trim());
            if (count >= 1) {
                return count;
            }
        } catch (NumberFormatException e) {
            // Reported below.
        }
        throw invalid(key, value, "expected a whole number of at least 1");
    }

    private static double gain(Map<String, String> conf, double fallback) {
        String value = conf.getOrDefault("gain", Double.toString(fallback));
        try {
            double gain = Double.parseDouble(value.trim());
            if (gain >= 0 && gain < 1) {
                return gain;
            }
        } catch (NumberFormatException e) {
            // Reported below.
        }
        throw invalid("gain", value, "expected a fraction such as 0.07");
    }

    private static long patienceNs(Map<String, String> conf, long fallback) {
        String value = conf.get("patience");
        if (value == null) {
            return fallback;
        }
        Matcher time = Pattern.compile("(\\d{1,9})\\s*([a-z]+)").matcher(value.trim().toLowerCase(Locale.ROOT));
        TimeUnit unit = time.matches() ? UNITS.get(time.group(2)) : null;
        if (unit == null) {
            throw invalid("patience", value, "expected a time such as 30s, 5m or 1h");
        }
        return unit.toNanos(Long.parseLong(time.group(1)));
    }

    private static IllegalArgumentException invalid(String key, String value, String expected) {
        return new IllegalArgumentException("invalid " + PREFIX + key + "=" + value + ": " + expected);
    }
}
