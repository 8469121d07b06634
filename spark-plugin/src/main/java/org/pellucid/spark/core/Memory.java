package org.pellucid.spark.core;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.UUID;

/**
 * The concurrency that stages settled at, for later stages like them: the knowledge of the loop, kept by
 * the driver.
 *
 * <p>Two stages are similar if they have the same call site, the same operators of a statement of the same
 * shape, and about the same number of tasks (the same power of two). A lookup tries the same executor first,
 * then its host: executors of one host may have different disks. A stage too short to tune also takes the
 * result of a stage of another size.
 *
 * <p>Holds at most {@value #MAX_ENTRIES} entries and evicts the oldest. Thread-safe.
 */
public final class Memory {
    /** Maximum number of entries, each for a stage, a place and a size. */
    static final int MAX_ENTRIES = 4096;
    /** Stands for all slots, on an executor of any size. */
    public static final int ALL = 0;

    private final Map<String, Integer> found = new LinkedHashMap<>();

    /** The identity of a stage: its site, and how large it is. */
    public static final class StageKey {
        private final String site;
        private final int tasks;

        /**
         * @param site call site, operators and shape, as any text
         * @param tasks number of tasks of the stage
         */
        public StageKey(String site, int tasks) {
            this.site = site.replaceAll("[\\t\\n\\r]+", " ");
            this.tasks = tasks;
        }

        private String key(String where, boolean sized) {
            int size = sized ? 32 - Integer.numberOfLeadingZeros(Math.max(tasks, 1)) : 0;
            return where + '\t' + size + '\t' + site;
        }
    }

    /** Returns what a similar stage found, possibly {@link #ALL}. */
    public synchronized OptionalInt find(StageKey stage, String host, String executor, boolean isShort) {
        List<String> keys = new ArrayList<>();
        for (boolean sized : isShort ? new boolean[] {true, false} : new boolean[] {true}) {
            keys.add(stage.key(host + '/' + executor, sized));
            keys.add(stage.key(host, sized));
        }
        for (String key : keys) {
            Integer value = found.get(key);
            if (value != null) {
                return OptionalInt.of(value);
            }
        }
        return OptionalInt.empty();
    }

    /** Records what a stage settled at. */
    public synchronized void learn(StageKey stage, String host, String executor, int concurrency) {
        for (String where : new String[] {host + '/' + executor, host}) {
            for (boolean sized : new boolean[] {true, false}) {
                String key = stage.key(where, sized);
                found.remove(key);
                found.put(key, concurrency);
            }
        }
        while (found.size() > MAX_ENTRIES) {
            found.remove(found.keySet().iterator().next());
        }
    }

    /**
     * Adds the entries of a file, one line each of concurrency, place, size and site. Does nothing if there is
     * no file.
     *
     * @throws IOException if the file cannot be read or a line is invalid
     */
    public synchronized void load(Path file) throws IOException {
        if (!Files.exists(file)) {
            return;
        }
        Map<String, Integer> loaded = new LinkedHashMap<>();
        int number = 0;
        for (String line : Files.readAllLines(file)) {
            number++;
            int tab = line.indexOf('\t');
            try {
                int concurrency = Integer.parseInt(line.substring(0, Math.max(tab, 0)));
                loaded.put(line.substring(tab + 1), Math.max(concurrency, ALL));
            } catch (NumberFormatException e) {
                throw new IOException("cannot load " + file + ", line " + number + ": not a line of spark.pellucid.memory; "
                        + "delete the file or name another", e);
            }
        }
        found.putAll(loaded);
    }

    /** Writes all entries. Replaces the file atomically, also under concurrent writers. */
    public synchronized void save(Path file) throws IOException {
        List<String> lines = new ArrayList<>(found.size());
        found.forEach((key, concurrency) -> lines.add(concurrency + "\t" + key));
        Path whole = file.toAbsolutePath();
        Path part = whole.resolveSibling(whole.getFileName() + "." + UUID.randomUUID() + ".part");
        try {
            Files.write(part, lines);
            Files.move(part, whole, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(part);
        }
    }
}
