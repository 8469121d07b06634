package org.pellucid.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.OptionalInt;
import org.apache.spark.storage.RDDInfo;
import org.junit.jupiter.api.Test;
import org.pellucid.spark.core.Memory;

/** Which stages are alike. */
class StageSiteTest {
    private static final String PLAN = "Scan parquet (1)\nOutput [2]: [id#%1$dL, v#%1$d]\n"
        + "Location: InMemoryFileIndex [file:/data/%2$s/2026-11-%1$02d]\nArguments: lambda$%1$d/0x00007f%1$02dc0@5f3a%1$02d\n";

    private static RDDInfo set(int id, String name, boolean barrier) {
        return new RDDInfo(id, name, 8, null, barrier, null, "", scala.Option.empty(), null);
    }

    private static StageSite site(String statement, RDDInfo... sets) {
        return new StageSite("collect at job.py:60", 240, List.of(sets), statement);
    }

    /** What a stage finds that the first has taught. */
    private static OptionalInt found(StageSite first, StageSite next) {
        Memory memory = new Memory();
        memory.learn(first.like(), "host", "0", 4);
        return memory.find(next.like(), "host", "0", false);
    }

    @Test
    void theOrderInWhichSparkListsDataSetsDoesNotMatter() {
        StageSite first = site("", set(7, "Exchange", false), set(3, "Scan", false), set(5, "Project", false));
        StageSite next = site("", set(23, "Scan", false), set(25, "Project", false), set(27, "Exchange", false));
        assertEquals(OptionalInt.of(4), found(first, next));
        StageSite turned = site("", set(23, "Exchange", false), set(25, "Project", false), set(27, "Scan", false));
        assertFalse(found(first, turned).isPresent());
    }

    @Test
    void aStatementOverAnotherTableIsAnother() {
        String visits = Statements.shape(String.format(PLAN, 1, "visits"));
        String later = Statements.shape(String.format(PLAN, 23, "visits"));
        String pages = Statements.shape(String.format(PLAN, 45, "pages"));
        assertEquals(visits, later);
        assertNotEquals(visits, pages);
        RDDInfo scan = set(1, "FileScanRDD", false);
        assertEquals(OptionalInt.of(4), found(site(visits, scan), site(later, scan)));
        assertFalse(found(site(visits, scan), site(pages, scan)).isPresent());
    }

    @Test
    void withoutAStatementTheNamesOfDataSetsTell() {
        StageSite visits = site("", set(1, "hdfs://visits/2026-11-20", false));
        assertTrue(found(visits, site("", set(9, "hdfs://visits/2026-11-21", false))).isPresent());
        assertFalse(found(visits, site("", set(9, "hdfs://pages/2026-11-21", false))).isPresent());
    }

    @Test
    void oneBarrierAmongItsDataSetsMakesABarrierStage() {
        assertTrue(site("", set(1, "a", false), set(2, "b", true)).isBarrier());
        assertFalse(site("", set(1, "a", false)).isBarrier());
    }
}
