package org.pellucid.spark;

import java.io.IOException;
import java.net.URI;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;
import org.apache.spark.SparkConf;
import org.pellucid.spark.core.DiskQueue;

/**
 * Hadoop's {@code file:} with every stream measured, and queued in the {@code monotasks} mode.
 * Checksums and all else are its own: callers cast {@code file:} to {@link LocalFileSystem}.
 *
 * <p>It takes the place of the stock one in Hadoop's cache of file systems and nowhere else. A
 * configuration key would reach processes that do not have this class. So it sees what goes
 * through {@link FileSystem} in an executor: inputs and outputs of tasks, not shuffle files,
 * spills or cached blocks, which Spark writes past Hadoop.
 */
public final class LocalFiles extends LocalFileSystem {
    private static final URI ROOT = URI.create("file:///");
    /**
     * Hive's wrapper for its {@code pfile:}, which passes all on to the stock one. It announces itself
     * for {@code file:} too, and the order of the jars decides which of the two Hadoop takes.
     */
    private static final String HIVE = "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem";

    /**
     * How much of a file's checksums is read at once: by default so little that the head moves to them and
     * back several times while one monotask reads the file. This is as much as belongs to 8 MiB.
     */
    private static final String SUMS_BUFFER = "file.stream-buffer-size";
    private static final int SUMS_BUFFER_BYTES = (8 << 20) / 512 * 4;

    /**
     * Puts it into the cache of this process and user.
     *
     * @param gated whether its streams will queue
     * @return null, or why it does not fit here
     */
    static String install(SparkConf spark, boolean gated) throws IOException {
        Configuration conf = new Configuration();
        for (scala.Tuple2<String, String> entry : spark.getAllWithPrefix("spark.hadoop.")) {
            conf.set(entry._1(), entry._2());
        }
        Class<? extends FileSystem> stock = FileSystem.getFileSystemClass(ROOT.getScheme(), conf);
        if (stock != LocalFileSystem.class && !stock.getName().equals(HIVE)) {
            return "fs.file.impl is " + stock.getName();
        }
        if (conf.getBoolean("fs.file.impl.disable.cache", false)) {
            return "fs.file.impl.disable.cache is true";
        }
        FileSystem cached = FileSystem.get(ROOT, conf);
        if (cached instanceof LocalFiles) {
            return null;
        }
        cached.close(); // which only takes it from the cache: its open streams go on
        if (gated && !spark.contains("spark.hadoop." + SUMS_BUFFER)) {
            conf.setInt(SUMS_BUFFER, SUMS_BUFFER_BYTES);
        }
        conf.setClass("fs.file.impl", LocalFiles.class, FileSystem.class);
        conf.setClassLoader(LocalFiles.class.getClassLoader());
        return FileSystem.get(ROOT, conf) instanceof LocalFiles ? null : "another one was put there meanwhile";
    }

    /**
     * Stays where it is: all tasks have this one, and who closes it, as users do, would have the next take the stock one. That
     * too only leaves the cache.
     */
    @Override
    public void close() throws IOException {
        processDeleteOnExit();
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        FileIo io = FileIo.installed();
        if (io == null) {
            return super.open(path, bufferSize);
        }
        DiskQueue disk = io.queueOf(pathToFile(path));
        // To open a file reads the head of its checksums.
        try (FileIo.Access access = io.begin(disk, DiskQueue.Phase.READ)) {
            FSDataInputStream in = super.open(path, bufferSize);
            try {
                TaskMeter task = TaskMeter.current();
                long stage = task == null ? FileIo.NO_STAGE : task.stage;
                MeasuredInput measured = new MeasuredInput(in, io, disk, pathToFile(path), stage);
                measured.opened(access);
                return new FSDataInputStream(measured);
            } catch (LinkageError e) {
                io.fuse.blow("read", e); // a Hadoop that lacks what the stream is made of
                return in;
            }
        }
    }

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        return measured(path,
            () -> super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress));
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path path, FsPermission permission, EnumSet<CreateFlag> flags,
            int bufferSize, short replication, long blockSize, Progressable progress) throws IOException {
        return measured(path,
            () -> super.createNonRecursive(path, permission, flags, bufferSize, replication, blockSize, progress));
    }

    private interface Creation {
        FSDataOutputStream run() throws IOException;
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        FileIo io = FileIo.installed();
        if (io == null || TaskMeter.current() == null) {
            return super.rename(from, to);
        }
        try (FileIo.Access access = io.beside(DiskQueue.Phase.WRITE)) {
            return super.rename(from, to);
        }
    }

    private FSDataOutputStream measured(Path path, Creation creation) throws IOException {
        FileIo io = FileIo.installed();
        if (io == null || TaskMeter.current() == null) {
            return creation.run(); // not a task's: logs, checkpoints of the driver
        }
        DiskQueue disk = io.queueOf(pathToFile(path));
        FSDataOutputStream out;
        // A directory too waits for the disk, while the file system's journal is written.
        try (FileIo.Access access = io.beside(DiskQueue.Phase.WRITE)) {
            out = creation.run();
        }
        try {
            if (out.getWrappedStream() instanceof MeasuredOutput) {
                return out;
            }
            return new FSDataOutputStream(new MeasuredOutput(out, io, disk, pathToFile(path)), null);
        } catch (LinkageError e) {
            io.fuse.blow("write", e);
            return out;
        }
    }
}
