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
 * What stages found, for the next like them: the knowledge of the loop, kept by the driver.
 *
 * <p>A stage is like another when it is called from the same place, runs the same operators of a
 * statement of the same shape and has about as many tasks (the same power of two). It is looked
 * for on the same executor first, then on its host: executors of one host may still have disks of
 * their own. A stage too short to tune also takes what one of another size found.
 *
 * <p>The oldest of {@value #MOST} entries goes first. Thread-safe.
 */
public final class Memory {
    /** So many stages, executors and sizes are kept. */
    public static final int MOST = 4096;
    /** "All there is", on an executor of any size. */
    public static final int ALL = 0;

    private final Map<String, Integer> found = new LinkedHashMap<>();

    /** Where and how large a stage was. */
    public static final class Like {
        private final String site;
        private final int tasks;

        /**
         * @param site call site, operators and shape, in any words
         * @param tasks of the stage
         */
        public Like(String site, int tasks) {
            this.site = site.replaceAll("[\\t\\n\\r]+", " ");
            this.tasks = tasks;
        }

        private String key(String where, boolean sized) {
            int size = sized ? 32 - Integer.numberOfLeadingZeros(Math.max(tasks, 1)) : 0;
            return where + '\t' + size + '\t' + site;
        }
    }

    /** What a like stage found; {@link #ALL} is a value too. */
    public synchronized OptionalInt find(Like like, String host, String executor, boolean isShort) {
        List<String> keys = new ArrayList<>();
        for (boolean sized : isShort ? new boolean[] {true, false} : new boolean[] {true}) {
            keys.add(like.key(host + '/' + executor, sized));
            keys.add(like.key(host, sized));
        }
        for (String key : keys) {
            Integer value = found.get(key);
            if (value != null) {
                return OptionalInt.of(value);
            }
        }
        return OptionalInt.empty();
    }

    /** A stage settled. */
    public synchronized void learn(Like like, String host, String executor, int concurrency) {
        for (String where : new String[] {host + '/' + executor, host}) {
            for (boolean sized : new boolean[] {true, false}) {
                String key = like.key(where, sized);
                found.remove(key);
                found.put(key, concurrency);
            }
        }
        while (found.size() > MOST) {
            found.remove(found.keySet().iterator().next());
        }
    }

    /**
     * Adds what a file holds, one "concurrency, where, size, site" a line; nothing if there is no file.
     *
     * @throws IOException where it cannot be read, or a line is none of ours
     */
    public synchronized void load(Path file) throws IOException {
        if (!Files.exists(file)) {
            return;
        }
        Map<String, Integer> told = new LinkedHashMap<>();
        int number = 0;
        for (String line : Files.readAllLines(file)) {
            number++;
            int tab = line.indexOf('\t');
            try {
                int concurrency = Integer.parseInt(line.substring(0, Math.max(tab, 0)));
                told.put(line.substring(tab + 1), Math.max(concurrency, ALL));
            } catch (NumberFormatException e) {
                throw new IOException(file + ", line " + number + ": not a line of spark.pellucid.memory; "
                        + "delete the file or name another", e);
            }
        }
        found.putAll(told);
    }

    /** Writes all of it; the file is the old one or the new one, never half, whoever else writes it. */
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
