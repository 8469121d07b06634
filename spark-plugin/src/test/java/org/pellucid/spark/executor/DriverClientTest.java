package org.pellucid.spark.executor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.spark.api.plugin.PluginContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.core.Reason;
import org.pellucid.spark.core.Tuner;
import org.pellucid.spark.core.Tuning;
import org.pellucid.spark.settings.MapConf;

/** The driver's answers about a stage, and their effect on the executor's tuner. On virtual time. */
class DriverClientTest {
    private static final long STAGE = 7L << 32;
    private static final int TASKS = 20;
    private static final long SERVICE_NS = 1_000_000_000;

    private final ScheduledExecutorService background = Executors.newSingleThreadScheduledExecutor();
    private Tuner tuner;
    private volatile long now;

    @AfterEach
    void end() {
        background.shutdownNow();
    }

    /** Runs a stage whose bytes per second grow 1.3 times with each doubling; returns the final concurrency. */
    private int stage(String... answer) throws Exception {
        PluginContext driver = (PluginContext) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {PluginContext.class}, (self, method, arguments) -> {
                switch (method.getName()) {
                    case "conf":
                        return new MapConf(Map.of());
                    case "executorID":
                        return "1";
                    case "ask":
                        String[] question = (String[]) arguments[0];
                        return question[0].equals("stage") && question[1].equals("7") ? answer : new String[0];
                    case "send":
                        return null;
                    default:
                        throw new AssertionError(method);
                }
            });
        DriverClient client = new DriverClient(driver, background, new Failsafe(Set.of(), () -> { }));
        Adaptive mode = new Adaptive(Tuning.standard(), () -> now, client);
        mode.setOwnSlots(32);
        client.begin(mode);
        tuner = mode.tuner();
        Deque<Tuner.Pass> running = new ArrayDeque<>();
        int left = TASKS;
        while (left > 0 || !running.isEmpty()) {
            Tuner.Pass pass = left > 0 ? tuner.tryEnter(STAGE) : null;
            if (pass != null) {
                running.add(pass);
                left--;
                background.submit(() -> { }).get(); // wait for the driver's answer
                continue;
            }
            now += SERVICE_NS / running.size();
            double doublings = Math.log(running.size()) / Math.log(2);
            tuner.leave(running.poll(), (long) (1e6 * Math.pow(1.3, doublings) / running.size()), SERVICE_NS);
        }
        return tuner.concurrency(STAGE);
    }

    @Test
    void concurrencyGrowsFurtherWhenMoreTasksAreExpected() throws Exception {
        int few = stage(Integer.toString(TASKS));
        int many = stage("1000");
        assertTrue(few < many, few + " and " + many);
    }

    @Test
    void stageStaysAtConcurrencyOfSimilarStage() throws Exception {
        assertEquals(16, stage(Integer.toString(TASKS), "16"));
        assertEquals(Reason.REMEMBERED, tuner.reason(STAGE));
    }
}
