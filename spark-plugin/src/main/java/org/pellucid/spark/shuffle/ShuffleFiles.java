package org.pellucid.spark.shuffle;

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
import java.util.function.LongFunction;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.DiskBlockManager;
import org.pellucid.spark.core.BoundedMap;
import org.pellucid.spark.io.FileIo;
import org.pellucid.spark.metrics.TaskMeter;

/**
 * The shuffle blocks on this executor's disks that tasks read, in {@code monotasks} mode. Spark reads
 * them without Hadoop's file systems, so {@link ShuffleReads} brings them into the page cache first.
 *
 * <p>Relies on the names and locations of Spark's own files. With another ShuffleManager or an external
 * shuffle service it finds no files and does nothing.
 */
public final class ShuffleFiles {
    /** Time that the first tasks of a stage wait for the driver's answer. */
    private static final long ANSWER_TIMEOUT_NS = TimeUnit.MILLISECONDS.toNanos(500);
    /** Stages to remember; a block's offset takes eight bytes. A stage that returns is read again. */
    private static final int MAX_STAGES = 4;

    private final FileIo io;
    private final LongFunction<CompletableFuture<String[]>> driver;
    private final IntSupplier slots;
    private final Map<Long, Stage> stages = Collections.synchronizedMap(new BoundedMap<>(MAX_STAGES));

    private static final class Stage {
        final CompletableFuture<String[]> answer;
        final long deadlineNs = System.nanoTime() + ANSWER_TIMEOUT_NS;
        private List<ShuffleReads> reads;

        Stage(CompletableFuture<String[]> answer) {
            this.answer = answer;
        }
    }

    /**
     * @param driver returns the driver's answer about a stage; empty if unknown ({@link StageShuffles#of})
     * @param slots the number of tasks that run at once
     */
    public ShuffleFiles(FileIo io, LongFunction<CompletableFuture<String[]>> driver, IntSupplier slots) {
        this.io = io;
        this.driver = driver;
        this.slots = slots;
    }

    /** Reads the task's local shuffle blocks into the page cache. Called on the task's thread before it takes a core. */
    public List<ShuffleReads> fetch(TaskMeter task) throws InterruptedException {
        Stage stage = stages.computeIfAbsent(task.stage, key -> new Stage(driver.apply(key)));
        List<ShuffleReads> all = reads(stage);
        for (ShuffleReads reads : all) {
            reads.fetch(task.context.partitionId(), task::killed);
        }
        return all;
    }

    private List<ShuffleReads> reads(Stage stage) throws InterruptedException {
        String[] words;
        try {
            words = stage.answer.get(Math.max(stage.deadlineNs - System.nanoTime(), 0), TimeUnit.NANOSECONDS);
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

    /** Returns the data files of the shuffle's map tasks that ran here, each with its index file. */
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
