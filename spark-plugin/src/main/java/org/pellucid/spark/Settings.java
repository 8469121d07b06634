package org.pellucid.spark;

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

/** What the user set, of the keys under {@code spark.pellucid.} */
final class Settings {
    static final String PREFIX = "spark.pellucid.";
    /** Also a local property of a job, where {@code off} or {@code measure} leaves its tasks alone. */
    static final String MODE = PREFIX + "mode";
    /** Spark's: cores that a task takes. From 4.3 on it may be a part of one. */
    static final String TASK_CPUS = "spark.task.cpus";

    enum Mode { ADAPTIVE, MONOTASKS, MEASURE, OFF }

    final Mode mode;
    final Tuning tuning;
    /** Where what a job learnt is kept between applications; null: nowhere. */
    final String memory;
    /** Folders, one a disk; empty: as the file systems say. */
    final List<String> disks;
    final int diskMin;
    final int diskMax;
    /** Callbacks that shall throw, for tests. */
    final Set<String> faults;
    /** Keys that are set and have no effect, since the mode is {@code measure}. */
    final Set<String> unused;

    private static final List<String> KEYS = List.of("mode", "policy", "gain", "concurrency.min",
        "concurrency.max", "patience", "memory", "disks", "disk.concurrency.min", "disk.concurrency.max", "fault");
    /** As Spark reads times; one without a unit means another in each of Spark's settings. */
    private static final Map<String, TimeUnit> UNITS = Map.of("us", TimeUnit.MICROSECONDS, "ms", TimeUnit.MILLISECONDS,
        "s", TimeUnit.SECONDS, "m", TimeUnit.MINUTES, "min", TimeUnit.MINUTES, "h", TimeUnit.HOURS, "d", TimeUnit.DAYS);

    /** Whether a job's local property of {@link #MODE} leaves its tasks alone: they are measured, and neither gated nor queued. */
    static boolean isOff(String mode) {
        return Mode.OFF.name().equalsIgnoreCase(mode) || Mode.MEASURE.name().equalsIgnoreCase(mode);
    }

    /** Whether tasks take whole cores: what is gated is counted in those. */
    static boolean wholeCpus(SparkConf conf) {
        double cpus = Double.parseDouble(conf.get(TASK_CPUS, "1"));
        return cpus == Math.rint(cpus);
    }

    /** Of an application; throws as {@link #Settings(Map)}. Where tasks take parts of a core, nothing is gated. */
    static Settings of(SparkConf conf) {
        Map<String, String> ours = new TreeMap<>();
        for (scala.Tuple2<String, String> entry : conf.getAllWithPrefix(PREFIX)) {
            ours.put(entry._1(), entry._2());
        }
        Settings settings = new Settings(ours);
        boolean gates = settings.mode == Mode.ADAPTIVE || settings.mode == Mode.MONOTASKS;
        return gates && !wholeCpus(conf) ? new Settings(settings, Mode.MEASURE, settings.memory) : settings;
    }

    /**
     * @param conf what is set, by the keys without their prefix
     * @throws IllegalArgumentException naming the key, its value and what it may be
     */
    Settings(Map<String, String> conf) {
        for (String key : conf.keySet()) {
            if (!KEYS.contains(key)) {
                throw new IllegalArgumentException(
                    PREFIX + key + " is no setting; there are " + String.join(", ", KEYS));
            }
        }
        mode = oneOf(conf, "mode", Mode.class, Mode.MEASURE);
        Tuning standard = Tuning.standard();
        Policy policy = oneOf(conf, "policy", Policy.class, standard.policy);
        int max = count(conf, "concurrency.max", standard.max);
        int min = count(conf, "concurrency.min", Math.min(standard.min, max));
        atMost("concurrency", min, max);
        double gain = gain(conf, standard.gain);
        tuning = new Tuning(policy, min, max, gain, patienceNs(conf, standard.patienceNs));
        memory = conf.get("memory");
        disks = words(conf, "disks");
        diskMin = count(conf, "disk.concurrency.min", 1);
        diskMax = count(conf, "disk.concurrency.max", Math.max(diskMin, 4));
        atMost("disk.concurrency", diskMin, diskMax);
        faults = new TreeSet<>(words(conf, "fault"));
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

    /** The same, but nothing is kept. */
    Settings withoutMemory() {
        return new Settings(this, mode, null);
    }

    private static void atMost(String key, int min, int max) {
        if (min > max) {
            throw new IllegalArgumentException(
                PREFIX + key + ".min=" + min + " is more than " + PREFIX + key + ".max=" + max);
        }
    }

    private static List<String> words(Map<String, String> conf, String key) {
        List<String> words = new ArrayList<>(Arrays.asList(conf.getOrDefault(key, "").split(",")));
        words.replaceAll(String::trim);
        words.removeIf(String::isEmpty);
        return words;
    }

    private static <E extends Enum<E>> E oneOf(Map<String, String> conf, String key, Class<E> type, E otherwise) {
        String value = conf.getOrDefault(key, otherwise.name());
        for (E constant : type.getEnumConstants()) {
            if (constant.name().equalsIgnoreCase(value.trim())) {
                return constant;
            }
        }
        String all = Arrays.toString(type.getEnumConstants()).toLowerCase(Locale.ROOT);
        throw new IllegalArgumentException(PREFIX + key + "=" + value + ": it is one of " + all);
    }

    private static int count(Map<String, String> conf, String key, int otherwise) {
        String value = conf.getOrDefault(key, Integer.toString(otherwise));
        try {
            int count = Integer.parseInt(value.trim());
            if (count >= 1) {
                return count;
            }
        } catch (NumberFormatException e) {
            // Said below.
        }
        throw new IllegalArgumentException(PREFIX + key + "=" + value + ": it is a whole number from 1");
    }

    private static double gain(Map<String, String> conf, double otherwise) {
        String value = conf.getOrDefault("gain", Double.toString(otherwise));
        try {
            double gain = Double.parseDouble(value.trim());
            if (gain >= 0 && gain < 1) {
                return gain;
            }
        } catch (NumberFormatException e) {
            // Said below.
        }
        throw new IllegalArgumentException(PREFIX + "gain=" + value + ": it is a part of one, as 0.07");
    }

    private static long patienceNs(Map<String, String> conf, long otherwise) {
        String value = conf.get("patience");
        if (value == null) {
            return otherwise;
        }
        Matcher time = Pattern.compile("(\\d{1,9})\\s*([a-z]+)").matcher(value.trim().toLowerCase(Locale.ROOT));
        TimeUnit unit = time.matches() ? UNITS.get(time.group(2)) : null;
        if (unit == null) {
            throw new IllegalArgumentException(PREFIX + "patience=" + value + ": it is a time, as 30s, 5m or 1h");
        }
        return unit.toNanos(Long.parseLong(time.group(1)));
    }
}
