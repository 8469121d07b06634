package org.pellucid.spark.metrics;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** The times between two snapshots of a thread, with and without some of its counters. */
class ThreadClockTest {
    private static final ThreadClock BEGIN = new ThreadClock(1000, 100, 10, 20, 5);

    @Test
    void blockedTimeIsRestOfElapsedTime() {
        ThreadClock end = new ThreadClock(2000, 400, 60, 220, 105);
        assertEquals(200, end.runQueueSince(BEGIN));
        assertEquals(100, end.blockDelaySince(BEGIN));
        // 1000 minus 300 computing and 200 in the run queue; the thread may also have waited during the collection.
        assertEquals(500, end.offCoreSince(BEGIN));
        assertEquals(450, end.blockedSince(BEGIN));
    }

    @Test
    void unknownCountersAreNotSubtracted() {
        assertEquals(700, new ThreadClock(2000, 400, 10, -1, -1).offCoreSince(BEGIN));
        assertEquals(-1, new ThreadClock(2000, 400, 10, -1, -1).runQueueSince(BEGIN));
        assertEquals(-1, new ThreadClock(2000, 400, 10, -1, -1).blockDelaySince(BEGIN));
        assertEquals(-1, new ThreadClock(2000, -1, 10, 20, 5).offCoreSince(BEGIN));
        assertEquals(-1, new ThreadClock(2000, -1, 10, 20, 5).blockedSince(BEGIN));
    }

    @Test
    void countersBeyondElapsedTimeGiveZero() {
        ThreadClock end = new ThreadClock(2000, 1200, 60, 20, 900_000_000);
        assertEquals(0, end.offCoreSince(BEGIN));
        assertEquals(0, end.blockedSince(BEGIN));
        // A thread's first wait may be counted from the machine's start.
        assertEquals(-1, end.blockDelaySince(BEGIN));
    }
}
