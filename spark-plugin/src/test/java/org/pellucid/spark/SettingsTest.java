package org.pellucid.spark;

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

class SettingsTest {
    private static String refused(String key, String value) {
        return refused(Map.of(key, value));
    }

    private static String refused(Map<String, String> conf) {
        return assertThrows(IllegalArgumentException.class, () -> new Settings(conf)).getMessage();
    }

    @Test
    void saysWhatAValueMayBe() {
        assertEquals("spark.pellucid.mode=fast: it is one of [adaptive, monotasks, measure, off]", refused("mode", "fast"));
        assertEquals("spark.pellucid.concurrency.min=0: it is a whole number from 1", refused("concurrency.min", "0"));
        assertEquals("spark.pellucid.gain=7%: it is a part of one, as 0.07", refused("gain", "7%"));
        assertEquals("spark.pellucid.patience=5: it is a time, as 30s, 5m or 1h", refused("patience", "5"));
        assertEquals("spark.pellucid.patience=5 y: it is a time, as 30s, 5m or 1h", refused("patience", "5 y"));
        assertEquals("spark.pellucid.concurrency.min=2 is more than spark.pellucid.concurrency.max=1",
            refused(Map.of("concurrency.min", "2", "concurrency.max", "1")));
        assertEquals("spark.pellucid.disk.concurrency.min=4 is more than spark.pellucid.disk.concurrency.max=2",
            refused(Map.of("disk.concurrency.min", "4", "disk.concurrency.max", "2")));
        assertEquals("spark.pellucid.moed is no setting; there are mode, policy, gain, concurrency.min, concurrency.max, "
            + "patience, memory, disks, disk.concurrency.min, disk.concurrency.max, fault", refused("moed", "off"));
    }

    @Test
    void theMostIsAMostOfTheLeastToo() {
        Settings settings = new Settings(Map.of("concurrency.max", "1"));
        assertEquals(1, settings.tuning.min);
        assertEquals(1, settings.tuning.max);
    }

    @Test
    void whereTasksTakePartsOfACoreNothingIsGated() {
        for (String cpus : List.of("1", "2", "0.5", "1.5")) {
            SparkConf conf = new PellucidExecutorTest.SparkSettings(Map.of("spark.task.cpus", cpus, "spark.pellucid.mode", "adaptive"));
            boolean whole = !cpus.contains(".");
            assertEquals(whole ? Settings.Mode.ADAPTIVE : Settings.Mode.MEASURE, Settings.of(conf).mode, cpus);
        }
        SparkConf off = new PellucidExecutorTest.SparkSettings(Map.of("spark.task.cpus", "0.5", "spark.pellucid.mode", "off"));
        assertEquals(Settings.Mode.OFF, Settings.of(off).mode);
    }

    @Test
    void withoutAModeAllIsOnlyMeasured() {
        assertEquals(Settings.Mode.MEASURE, new Settings(Map.of()).mode);
        assertEquals(Settings.Mode.MEASURE, Settings.of(new PellucidExecutorTest.SparkSettings(Map.of())).mode);
    }

    @Test
    void settingsWithoutEffectAreNamed() {
        assertEquals(Set.of("memory", "policy"), new Settings(Map.of("memory", "/m", "policy", "index", "fault", "")).unused);
        assertEquals(Set.of(), new Settings(Map.of("memory", "/m", "mode", "adaptive")).unused);
    }

    @Test
    void timesAreSparks() {
        Map<String, Long> seconds = Map.of("300s", 300L, "5m", 300L, "5min", 300L, "5 M", 300L, "2h", 7200L, "1d", 86_400L, "3000ms", 3L,
            "7000000us", 7L);
        seconds.forEach((text, s) -> assertEquals(
            TimeUnit.SECONDS.toNanos(s), new Settings(Map.of("patience", text)).tuning.patienceNs, text));
    }

    @Test
    void aJobIsLeftAloneByEitherOfTwoModes() {
        for (String mode : List.of("off", "measure", "Measure")) {
            assertTrue(Settings.isOff(mode), mode);
        }
        assertFalse(Settings.isOff("adaptive"));
        assertFalse(Settings.isOff(null));
    }

    @Test
    void readsAllOfThem() {
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
