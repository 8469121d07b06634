package org.pellucid.spark.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/**
 * Runs the cases of {@code INDEX} in the table that the Rust scheduler's controller passes, too. Its cases of
 * {@code THROUGHPUT} are about uniform requests; {@link ControllerTest} tests the plugin's rules for that policy.
 */
class ControllerCasesTest {
    private static final Path CASES = Path.of("..", "crates", "scheduler", "tests", "controller_cases.tsv");

    private interface Made {
        Controller of(Policy policy, int min, int max, double gain);
    }

    @Test
    void indexPolicyPassesSharedTableOfCases() throws IOException {
        assertTrue(cases(Controller::ofTasks) >= 9, "cases read");
        assertTrue(cases(Controller::ofMonotasks) >= 9, "cases read");
    }

    /** Runs all cases of the policy and returns their number. */
    private static int cases(Made made) throws IOException {
        Controller controller = null;
        int cases = 0;
        for (String line : Files.readAllLines(CASES)) {
            String[] row = line.split("\t");
            if (row[0].equals("case")) {
                boolean index = row[2].equals("index");
                controller = index ? made.of(Policy.INDEX, Integer.parseInt(row[3]), Integer.parseInt(row[4]), 0) : null;
                cases += index ? 1 : 0;
            } else if (controller != null && !line.isEmpty() && !line.startsWith("#")) {
                apply(row, controller, line);
                assertEquals(Integer.parseInt(row[row.length - 1]), controller.concurrency(), line);
            }
        }
        return cases;
    }

    private static void apply(String[] row, Controller controller, String line) {
        switch (row[0]) {
            case "start":
                controller.started(Long.parseLong(row[1]));
                break;
            case "restart":
                controller.restart();
                break;
            case "done":
                long waitNs = row[5].equals("-") ? Sample.ALL_WAIT : Long.parseLong(row[5]);
                Sample sample = new Sample(
                    Long.parseLong(row[3]), Long.parseLong(row[4]), waitNs, Integer.parseInt(row[6]));
                int before = controller.concurrency();
                for (int left = Integer.parseInt(row[1]) - 1; left >= 0; left--) {
                    controller.completed(Long.parseLong(row[2]), sample);
                    assertTrue(left == 0 || controller.concurrency() == before, line + ", with " + left + " to come");
                }
                break;
            default:
                throw new AssertionError("unknown row: " + line);
        }
    }
}
