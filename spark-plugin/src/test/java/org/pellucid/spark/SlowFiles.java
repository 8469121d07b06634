package org.pellucid.spark;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.SparkConf;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * A simulated disk beneath Hadoop's {@code file:}, and so beneath the plugin's queues. It counts the threads that
 * read and write at once, independently of the plugin. Name it after the plugin in {@code spark.plugins}.
 *
 * <p>Each access to a file below {@code spark.slowfiles.folder} takes {@code spark.slowfiles.ms} longer. While the
 * folder {@code spark.slowfiles.hold} contains a folder {@code read} or {@code write}, each such access creates a file
 * in it and waits until that folder is deleted. As on a disk, an interrupt does not end an access.
 */
public final class SlowFiles implements SparkPlugin {
    private static final URI ROOT = URI.create("file:///");
    private static final AtomicInteger INSIDE = new AtomicInteger();
    private static final AtomicInteger PEAK = new AtomicInteger();
    private static final AtomicInteger ACCESSES = new AtomicInteger();
    private static volatile String folder;
    private static volatile String hold;
    private static volatile long ms;

    @Override
    public DriverPlugin driverPlugin() {
        return null;
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorPlugin() {
            @Override
            public void init(PluginContext context, Map<String, String> fromDriver) {
                SparkConf conf = context.conf();
                folder = conf.get("spark.slowfiles.folder");
                hold = conf.get("spark.slowfiles.hold", "");
                ms = Long.parseLong(conf.get("spark.slowfiles.ms", "0"));
                try {
                    install();
                } catch (IOException | ReflectiveOperationException e) {
                    throw new IllegalStateException(e);
                }
            }
        };
    }

    /** Returns the most threads in accesses at once and the number of accesses, both since the last call. */
    public static String counted() {
        return PEAK.getAndSet(0) + " " + ACCESSES.getAndSet(0);
    }

    /** Replaces the lowest file system by reflection, since Hadoop has no setting for it. */
    private static void install() throws IOException, ReflectiveOperationException {
        Field beneath = FilterFileSystem.class.getDeclaredField("fs");
        beneath.setAccessible(true);
        FileSystem lowest = FileSystem.get(ROOT, new Configuration());
        while (beneath.get(lowest) instanceof FilterFileSystem) {
            lowest = (FileSystem) beneath.get(lowest);
        }
        Raw raw = new Raw();
        raw.initialize(ROOT, lowest.getConf());
        beneath.set(lowest, raw);
    }

    private interface Access<T> {
        T run() throws IOException;
    }

    private static <T> T access(String kind, Access<T> access) throws IOException {
        PEAK.accumulateAndGet(INSIDE.incrementAndGet(), Math::max);
        ACCESSES.incrementAndGet();
        try {
            sleep(ms);
            hold(kind);
            return access.run();
        } finally {
            INSIDE.decrementAndGet();
        }
    }

    private static void hold(String kind) throws IOException {
        if (hold.isEmpty()) {
            return;
        }
        java.nio.file.Path place = java.nio.file.Path.of(hold, kind);
        try {
            Files.createTempFile(place, "", "");
        } catch (NoSuchFileException e) {
            return;
        }
        while (Files.exists(place)) {
            sleep(20);
        }
    }

    private static void sleep(long ms) {
        long until = System.nanoTime() + ms * 1_000_000L;
        boolean interrupted = false;
        for (long left = ms; left > 0; left = (until - System.nanoTime()) / 1_000_000L) {
            try {
                Thread.sleep(left);
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static final class Raw extends RawLocalFileSystem {
        private boolean slow(Path path) {
            return pathToFile(path).getPath().startsWith(folder);
        }

        @Override
        public FSDataInputStream open(Path path, int bufferSize) throws IOException {
            FSDataInputStream in = super.open(path, bufferSize);
            return slow(path) ? new FSDataInputStream(new Input(in)) : in;
        }

        @Override
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
                throws IOException {
            OutputStream out = super.createOutputStreamWithMode(path, append, permission);
            return slow(path) ? new Output(out) : out;
        }
    }

    private static final class Input extends FSInputStream {
        private final FSDataInputStream in;

        Input(FSDataInputStream in) {
            this.in = in;
        }

        @Override
        public int read() throws IOException {
            return access("read", in::read);
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            return access("read", () -> in.read(bytes, offset, length));
        }

        @Override
        public int read(long position, byte[] bytes, int offset, int length) throws IOException {
            return access("read", () -> in.read(position, bytes, offset, length));
        }

        @Override
        public void seek(long position) throws IOException {
            in.seek(position);
        }

        @Override
        public long getPos() throws IOException {
            return in.getPos();
        }

        @Override
        public boolean seekToNewSource(long target) {
            return false;
        }

        @Override
        public void close() throws IOException {
            in.close();
        }
    }

    private static final class Output extends FilterOutputStream {
        Output(OutputStream out) {
            super(out);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            access("write", () -> {
                out.write(bytes, offset, length);
                return null;
            });
        }
    }
}
