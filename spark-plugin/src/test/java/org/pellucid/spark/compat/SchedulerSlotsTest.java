package org.pellucid.spark.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import scala.math.BigDecimal;

/** The number of cores in the message to Spark's scheduler. */
class SchedulerSlotsTest {
    @Test
    void coresValueMatchesEachSparkVersion() throws ReflectiveOperationException {
        assertEquals(-6, SchedulerSlots.coresValue(int.class, -6));
        assertEquals(-6, ((BigDecimal) SchedulerSlots.coresValue(BigDecimal.class, -6)).toInt());
    }
}
