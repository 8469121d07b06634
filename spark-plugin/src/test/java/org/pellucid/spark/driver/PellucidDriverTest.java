package org.pellucid.spark.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.pellucid.spark.settings.Settings;

/** The slots that the driver gives executors while jobs are off or stages need all slots. */
class PellucidDriverTest {
    @Test
    void driverKeepsOwnSlotsWhileJobIsOff() {
        Properties off = new Properties();
        off.setProperty(Settings.MODE, "OFF");
        PellucidDriver.DisabledJobs jobs = new PellucidDriver.DisabledJobs();
        jobs.started(1, null);
        assertFalse(jobs.any());
        jobs.started(2, off);
        assertTrue(jobs.any());
        jobs.started(3, new Properties());
        assertTrue(jobs.any(), "one of two jobs is off");
        jobs.ended(2);
        assertFalse(jobs.any());
        jobs.started(4, off);
        jobs.ended(4);
        assertTrue(jobs.any(), "its session may start another soon");
        jobs.started(5, new Properties());
        assertFalse(jobs.any());
        assertEquals(0, PellucidDriver.offset(9, true, false));
        assertEquals(0, PellucidDriver.offset(-6, true, true));
        assertEquals(9, PellucidDriver.offset(9, false, true));
        assertEquals(0, PellucidDriver.offset(-6, false, true));
        assertEquals(-6, PellucidDriver.offset(-6, false, false));
    }
}
