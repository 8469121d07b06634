package org.pellucid.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import scala.math.BigDecimal;

class SchedulerSlotsTest {
    @Test
    void coresAreAsEachSparkHasThem() throws ReflectiveOperationException {
        assertEquals(-6, SchedulerSlots.amount(int.class, -6));
        assertEquals(-6, ((BigDecimal) SchedulerSlots.amount(BigDecimal.class, -6)).toInt());
    }
}
