package org.pellucid.spark.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.OptionalInt;
import org.apache.spark.storage.RDDInfo;
import org.junit.jupiter.api.Test;
import org.pellucid.spark.core.Memory;

/** The similarity of stages. */
class StageSiteTest {
    private static final String PLAN = "Scan parquet (1)\nOutput [2]: [id#%1$dL, v#%1$d]\n"
        + "Location: InMemoryFileIndex [file:/data/%2$s/2026-11-%1$02d]\nArguments: lambda$%1$d/0x00007f%1$02dc0@5f3a%1$02d\n";

    private static RDDInfo rdd(int id, String name, boolean barrier) {
        return new RDDInfo(id, name, 8, null, barrier, null, "", scala.Option.empty(), null);
    }

    private static StageSite site(String statement, RDDInfo... rdds) {
        return new StageSite("collect at job.py:60", 240, List.of(rdds), statement);
    }

    /** Returns what {@code next} finds in a memory that learned from {@code first} only. */
    private static OptionalInt found(StageSite first, StageSite next) {
        Memory memory = new Memory();
        memory.learn(first.key(), "host", "0", 4);
        return memory.find(next.key(), "host", "0", false);
    }

    @Test
    void similarityIgnoresOrderOfDataSets() {
        StageSite first = site("", rdd(7, "Exchange", false), rdd(3, "Scan", false), rdd(5, "Project", false));
        StageSite next = site("", rdd(23, "Scan", false), rdd(25, "Project", false), rdd(27, "Exchange", false));
        assertEquals(OptionalInt.of(4), found(first, next));
        StageSite reversed = site("", rdd(23, "Exchange", false), rdd(25, "Project", false), rdd(27, "Scan", false));
        assertFalse(found(first, reversed).isPresent());
    }

    @Test
    void statementsOverDifferentTablesDiffer() {
        String visits = Statements.shape(String.format(PLAN, 1, "visits"));
        String later = Statements.shape(String.format(PLAN, 23, "visits"));
        String pages = Statements.shape(String.format(PLAN, 45, "pages"));
        assertEquals(visits, later);
        assertNotEquals(visits, pages);
        RDDInfo scan = rdd(1, "FileScanRDD", false);
        assertEquals(OptionalInt.of(4), found(site(visits, scan), site(later, scan)));
        assertFalse(found(site(visits, scan), site(pages, scan)).isPresent());
    }

    @Test
    void dataSetNamesTellStagesApartWithoutStatement() {
        StageSite visits = site("", rdd(1, "hdfs://visits/2026-11-20", false));
        assertTrue(found(visits, site("", rdd(9, "hdfs://visits/2026-11-21", false))).isPresent());
        assertFalse(found(visits, site("", rdd(9, "hdfs://pages/2026-11-21", false))).isPresent());
    }

    @Test
    void oneBarrierDataSetMakesBarrierStage() {
        assertTrue(site("", rdd(1, "a", false), rdd(2, "b", true)).isBarrier());
        assertFalse(site("", rdd(1, "a", false)).isBarrier());
    }
}
