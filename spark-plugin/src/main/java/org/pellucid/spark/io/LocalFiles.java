package org.pellucid.spark.io;

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
import org.pellucid.spark.metrics.TaskMeter;

/**
 * Hadoop's {@code file:} file system with every stream measured, and queued in {@code monotasks} mode. All
 * else, including checksums, is inherited: callers cast {@code file:} to {@link LocalFileSystem}.
 *
 * <p>It replaces the stock one only in Hadoop's cache of file systems. A configuration key would reach
 * processes that do not have this class. So it sees what goes through {@link FileSystem} in an executor:
 * inputs and outputs of tasks, but not shuffle files, spills or cached blocks, which Spark writes without
 * Hadoop.
 */
public final class LocalFiles extends LocalFileSystem {
    private static final URI ROOT = URI.create("file:///");
    /**
     * Hive's wrapper for its {@code pfile:}, which delegates everything to the stock file system. It registers
     * for {@code file:} as well, and the order of the jars decides which of the two Hadoop loads.
     */
    private static final String HIVE = "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem";

    /**
     * Size of the buffer for a file's checksums. Hadoop's default is so small that the head moves to them and back
     * several times while one monotask reads the file. This size holds the checksums of 8 MiB.
     */
    private static final String SUMS_BUFFER = "file.stream-buffer-size";
    private static final int SUMS_BUFFER_BYTES = (8 << 20) / 512 * 4;

    /**
     * Puts this file system into the cache of this process and user.
     *
     * @param gated whether its streams will queue
     * @return null, or the reason why it cannot be used here
     */
    public static String install(SparkConf spark, boolean gated) throws IOException {
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
        cached.close(); // only removes it from the cache; its open streams stay valid
        if (gated && !spark.contains("spark.hadoop." + SUMS_BUFFER)) {
            conf.setInt(SUMS_BUFFER, SUMS_BUFFER_BYTES);
        }
        conf.setClass("fs.file.impl", LocalFiles.class, FileSystem.class);
        conf.setClassLoader(LocalFiles.class.getClassLoader());
        return FileSystem.get(ROOT, conf) instanceof LocalFiles ? null : "another file system was cached at the same time";
    }

    /**
     * Stays in the cache. All tasks share this instance, and if user code closed it, the next task would get the
     * stock file system. The stock one's close only removes it from the cache, too.
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
        // Opening a file reads the start of its checksums.
        try (FileIo.Access access = io.begin(disk, DiskQueue.Phase.READ)) {
            FSDataInputStream in = super.open(path, bufferSize);
            try {
                TaskMeter task = TaskMeter.current();
                long stage = task == null ? FileIo.NO_STAGE : task.stage;
                MeasuredInput measured = new MeasuredInput(in, io, disk, pathToFile(path), stage);
                measured.opened(access);
                return new FSDataInputStream(measured);
            } catch (LinkageError e) {
                io.failsafe.trip("read", e); // this Hadoop lacks a class that the stream extends
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
        try (FileIo.Access access = io.beginUnqueued(DiskQueue.Phase.WRITE)) {
            return super.rename(from, to);
        }
    }

    private FSDataOutputStream measured(Path path, Creation creation) throws IOException {
        FileIo io = FileIo.installed();
        if (io == null || TaskMeter.current() == null) {
            return creation.run(); // not a task's file, such as the driver's logs and checkpoints
        }
        DiskQueue disk = io.queueOf(pathToFile(path));
        FSDataOutputStream out;
        // Creating a directory entry also waits for the disk, while the file system writes its journal.
        try (FileIo.Access access = io.beginUnqueued(DiskQueue.Phase.WRITE)) {
            out = creation.run();
        }
        try {
            if (out.getWrappedStream() instanceof MeasuredOutput) {
                return out;
            }
            return new FSDataOutputStream(new MeasuredOutput(out, io, disk, pathToFile(path)), null);
        } catch (LinkageError e) {
            io.failsafe.trip("write", e);
            return out;
        }
    }
}
