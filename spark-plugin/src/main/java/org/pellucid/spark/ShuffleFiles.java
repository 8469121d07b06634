package org.pellucid.spark;

import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.IntSupplier;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.DiskBlockManager;

/**
 * What tasks read of shuffles on this executor's disks, in the {@code monotasks} mode: Spark reads it
 * past Hadoop, so it is brought into the page cache before ({@link ShuffleReads}).
 *
 * <p>Goes by the names and places of Spark's own files: of another ShuffleManager, or of files that
 * another service keeps, nothing is found and nothing done.
 */
final class ShuffleFiles {
    /** How long a stage's first tasks wait for what the driver says of it. */
    private static final long PATIENCE_NS = TimeUnit.MILLISECONDS.toNanos(500);
    /** That are kept: where each block lies takes eight bytes. Of one that comes back it is read again. */
    private static final int MAX_STAGES = 4;

    private final FileIo io;
    private final DriverClient driver;
    /** Tasks that run at once. */
    private final IntSupplier slots;
    private final Map<Long, Stage> stages = Collections.synchronizedMap(new BoundedMap<>(MAX_STAGES));

    private static final class Stage {
        final CompletableFuture<String[]> said;
        final long untilNs = System.nanoTime() + PATIENCE_NS;
        private List<ShuffleReads> reads;

        Stage(CompletableFuture<String[]> said) {
            this.said = said;
        }
    }

    ShuffleFiles(FileIo io, DriverClient driver, IntSupplier slots) {
        this.io = io;
        this.driver = driver;
        this.slots = slots;
    }

    /** On a task's thread, before it has a core: what it will read is read, as far as it is here. */
    List<ShuffleReads> fetch(TaskMeter task) throws InterruptedException {
        Stage stage = stages.computeIfAbsent(task.stage, key -> new Stage(driver.shuffles(key)));
        List<ShuffleReads> all = reads(stage);
        for (ShuffleReads reads : all) {
            reads.fetch(task.context.partitionId(), task::killed);
        }
        return all;
    }

    private List<ShuffleReads> reads(Stage stage) throws InterruptedException {
        String[] words;
        try {
            words = stage.said.get(Math.max(stage.untilNs - System.nanoTime(), 0), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException e) {
            return List.of();
        }
        synchronized (stage) {
            if (stage.reads == null) {
                stage.reads = new ArrayList<>();
                for (int i = 1; i < words.length; i++) {
                    Map<File, File> files = files(Integer.parseInt(words[i]));
                    int partitions = Integer.parseInt(words[0]);
                    stage.reads.add(new ShuffleReads(io, files, partitions, slots.getAsInt(), System::nanoTime));
                }
            }
            return stage.reads;
        }
    }

    /** The data files of a shuffle's map tasks that ran here, and the index of each. */
    private static Map<File, File> files(int shuffle) {
        Map<File, File> found = new LinkedHashMap<>();
        DiskBlockManager disks = SparkEnv.get().blockManager().diskBlockManager();
        for (File folder : disks.localDirs()) {
            for (File below : list(folder)) {
                for (File file : list(below)) {
                    String name = file.getName();
                    if (name.startsWith("shuffle_" + shuffle + "_") && name.endsWith(".data")) {
                        found.put(file, disks.getFile(name.replace(".data", ".index")));
                    }
                }
            }
        }
        return found;
    }

    private static File[] list(File folder) {
        File[] files = folder.listFiles();
        return files == null ? new File[0] : files;
    }
}
