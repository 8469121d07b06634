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
 * A disk's place beneath Hadoop's {@code file:}, and so beneath the plugin's queues: what threads really read and
 * write at once, whatever the plugin says of it. To be named after it in {@code spark.plugins}.
 *
 * <p>Of files below {@code spark.slowfiles.folder} each access takes {@code spark.slowfiles.ms} longer. While there is a
 * folder {@code read} or {@code write} in {@code spark.slowfiles.hold}, each such access makes a file there and stays
 * until the folder is gone. As on a disk, an interrupt ends none of it.
 */
public final class SlowFiles implements SparkPlugin {
    private static final URI ROOT = URI.create("file:///");
    private static final AtomicInteger INSIDE = new AtomicInteger();
    private static final AtomicInteger MOST = new AtomicInteger();
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

    /** The most threads that were in accesses at once in this executor since this was asked last, and how many accesses. */
    public static String counted() {
        return MOST.getAndSet(0) + " " + ACCESSES.getAndSet(0);
    }

    /** Hadoop has no setting for what lies beneath. */
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
        MOST.accumulateAndGet(INSIDE.incrementAndGet(), Math::max);
        ACCESSES.incrementAndGet();
        try {
            sleep(ms);
            stay(kind);
            return access.run();
        } finally {
            INSIDE.decrementAndGet();
        }
    }

    private static void stay(String kind) throws IOException {
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
