package org.pellucid.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.SparkEnv;

/**
 * Waits as disks let wait, inside a real executor, for checks that need no disk: SQL calls these
 * with {@code java_method}.
 */
public final class SlowDisk {
    private static final Object HEAD = new Object();

    private SlowDisk() {}

    /** On executor 1 one at a time is served, as by one head; on the others all at once. */
    public static String read(int ms) throws InterruptedException {
        if (SparkEnv.get().executorId().equals("1")) {
            synchronized (HEAD) {
                Thread.sleep(ms);
            }
        } else {
            Thread.sleep(ms);
        }
        return "read";
    }

    /** The first executor that calls it with this path dies on the spot; later it is as {@link #read}. */
    public static String dieOnce(String mark, int ms) throws IOException, InterruptedException {
        try {
            Files.createFile(Path.of(mark));
        } catch (java.nio.file.FileAlreadyExistsException e) {
            return read(ms);
        }
        Runtime.getRuntime().halt(1);
        return "dead";
    }

    /** Computes for so long. */
    public static String compute(int ms) {
        long until = System.nanoTime() + ms * 1_000_000L;
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
        return "computed";
    }
}
