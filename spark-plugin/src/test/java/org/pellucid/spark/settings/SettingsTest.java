package org.pellucid.spark.settings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.pellucid.spark.core.Policy;

/** Parsing and validation of settings. */
class SettingsTest {
    private static String rejection(String key, String value) {
        return rejection(Map.of(key, value));
    }

    private static String rejection(Map<String, String> conf) {
        return assertThrows(IllegalArgumentException.class, () -> new Settings(conf)).getMessage();
    }

    @Test
    void invalidSettingListsValidValues() {
        assertEquals("invalid spark.pellucid.mode=fast: expected one of [adaptive, monotasks, measure, off]", rejection("mode", "fast"));
        assertEquals("invalid spark.pellucid.concurrency.min=0: expected a whole number of at least 1", rejection("concurrency.min", "0"));
        assertEquals("invalid spark.pellucid.gain=7%: expected a fraction such as 0.07", rejection("gain", "7%"));
        assertEquals("invalid spark.pellucid.patience=5: expected a time such as 30s, 5m or 1h", rejection("patience", "5"));
        assertEquals("invalid spark.pellucid.patience=5 y: expected a time such as 30s, 5m or 1h", rejection("patience", "5 y"));
        assertEquals("invalid spark.pellucid.concurrency.min=2: greater than spark.pellucid.concurrency.max=1",
            rejection(Map.of("concurrency.min", "2", "concurrency.max", "1")));
        assertEquals("invalid spark.pellucid.disk.concurrency.min=4: greater than spark.pellucid.disk.concurrency.max=2",
            rejection(Map.of("disk.concurrency.min", "4", "disk.concurrency.max", "2")));
        assertEquals("unknown setting spark.pellucid.moed; valid settings: mode, policy, gain, concurrency.min, concurrency.max, "
            + "patience, memory, disks, disk.concurrency.min, disk.concurrency.max, fault", rejection("moed", "off"));
    }

    @Test
    void maximumBelowDefaultMinimumLowersMinimum() {
        Settings settings = new Settings(Map.of("concurrency.max", "1"));
        assertEquals(1, settings.tuning.min);
        assertEquals(1, settings.tuning.max);
    }

    @Test
    void fractionalTaskCpusTurnGatingOff() {
        for (String cpus : List.of("1", "2", "0.5", "1.5")) {
            SparkConf conf = new MapConf(Map.of("spark.task.cpus", cpus, "spark.pellucid.mode", "adaptive"));
            boolean whole = !cpus.contains(".");
            assertEquals(whole ? Settings.Mode.ADAPTIVE : Settings.Mode.MEASURE, Settings.of(conf).mode, cpus);
        }
        SparkConf off = new MapConf(Map.of("spark.task.cpus", "0.5", "spark.pellucid.mode", "off"));
        assertEquals(Settings.Mode.OFF, Settings.of(off).mode);
    }

    @Test
    void defaultModeIsMeasure() {
        assertEquals(Settings.Mode.MEASURE, new Settings(Map.of()).mode);
        assertEquals(Settings.Mode.MEASURE, Settings.of(new MapConf(Map.of())).mode);
    }

    @Test
    void unusedSettingsAreListedInMeasureMode() {
        assertEquals(Set.of("memory", "policy"), new Settings(Map.of("memory", "/m", "policy", "index", "fault", "")).unused);
        assertEquals(Set.of(), new Settings(Map.of("memory", "/m", "mode", "adaptive")).unused);
    }

    @Test
    void patienceAcceptsSparkTimeUnits() {
        Map<String, Long> seconds = Map.of("300s", 300L, "5m", 300L, "5min", 300L, "5 M", 300L, "2h", 7200L, "1d", 86_400L, "3000ms", 3L,
            "7000000us", 7L);
        seconds.forEach((text, s) -> assertEquals(
            TimeUnit.SECONDS.toNanos(s), new Settings(Map.of("patience", text)).tuning.patienceNs, text));
    }

    @Test
    void offAndMeasureTurnGatingOffForJob() {
        for (String mode : List.of("off", "measure", "Measure")) {
            assertTrue(Settings.isOff(mode), mode);
        }
        assertFalse(Settings.isOff("adaptive"));
        assertFalse(Settings.isOff(null));
    }

    @Test
    void allSettingsAreParsed() {
        Settings settings = new Settings(Map.of("mode", "Monotasks", "policy", "index", "gain", "0.1", "patience", "30 s",
            "concurrency.min", "3", "concurrency.max", "12", "memory", "/m", "disks", "/a, /b/", "fault", "read,write"));
        assertEquals(Settings.Mode.MONOTASKS, settings.mode);
        assertEquals(Policy.INDEX, settings.tuning.policy);
        assertEquals(0.1, settings.tuning.gain);
        assertEquals(TimeUnit.SECONDS.toNanos(30), settings.tuning.patienceNs);
        assertEquals(3, settings.tuning.min);
        assertEquals(12, settings.tuning.max);
        assertEquals("/m", settings.memory);
        assertEquals(null, settings.withoutMemory().memory);
        assertEquals(List.of("/a", "/b/"), settings.disks);
        assertEquals(Set.of("read", "write"), settings.faults);
        assertEquals(1, settings.diskMin);
        assertEquals(4, settings.diskMax);
    }
}
