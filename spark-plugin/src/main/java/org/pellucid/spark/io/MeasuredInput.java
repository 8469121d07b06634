package org.pellucid.spark.io;

import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.StreamCapabilities;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.DiskQueue.Phase;

/**
 * An input stream that measures each read as an {@link FileIo.Access}.
 *
 * <p>Vectored reads (Parquet requests all column chunks of a row group in one call) run on the calling
 * thread, one range after another. So the task's bytes include them, which stock Spark's Bytes Read
 * misses, and a row group is one disk monotask.
 *
 * <p>On a gated disk small reads are served from a buffer, so that a task does not queue for every
 * 64 KiB and the head does not seek for each. The first fill is short, since some readers look at a few
 * bytes and seek away; sequential readers then get as much as one stream may hold. Once one stream of a
 * stage has read sequentially, the stage's later streams start that way, and small files are read when
 * they are opened: a task's input is one monotask, as in §3.2 of Monotasks (SOSP '17).
 *
 * <p>On other disks only reads smaller than a page are buffered, one page at a time. Otherwise a reader
 * of single numbers would read the clock for each.
 */
final class MeasuredInput extends FSInputStream implements StreamCapabilities {
    /** Bytes to request at or past the end of the file, or if its length is unknown. */
    private static final int MIN_FILL_BYTES = 64 << 10;
    private static final int PAGE_BYTES = 4 << 10;
    private static final byte[] EMPTY = new byte[0];

    private final FSDataInputStream in;
    private final FileIo io;
    /** Null if the disk is not gated. */
    private final DiskQueue disk;
    private final File file;
    private final long stage;

    /** The buffer holds the file's bytes from {@code bufferStart} on; those before {@code used} were returned. */
    private byte[] buffer = EMPTY;
    private long bufferStart;
    private int filled;
    private int used;
    /** True if the position of {@code in} may differ from the end of the buffer. */
    private boolean misaligned;
    /** True if the next fill does not continue a sequential run. */
    private boolean firstFill = true;

    /**
     * @param file the file that is read
     * @param stage the stage of the reading task, or {@link FileIo#NO_STAGE}
     */
    MeasuredInput(FSDataInputStream in, FileIo io, DiskQueue disk, File file, long stage) {
        this.in = in;
        this.io = io;
        this.disk = disk;
        this.file = file;
        this.stage = stage;
    }

    /** Reads a file that fits one fill, if the stage reads sequentially. Runs within the access that opened the file. */
    synchronized void opened(FileIo.Access access) throws IOException {
        if (disk != null && readsSequentially() && file.length() <= io.maxFillBytes()) {
            fill(access);
        }
    }

    private boolean readsSequentially() {
        return stage != FileIo.NO_STAGE && io.sequentialStage == stage;
    }

    @Override
    public synchronized int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public synchronized int read(byte[] bytes, int offset, int length) throws IOException {
        if (length == 0) {
            return 0;
        }
        if (used == filled) {
            if (length >= (disk == null ? PAGE_BYTES : FileIo.FIRST_FILL_BYTES)) {
                try (FileIo.Access access = io.begin(disk, Phase.READ)) {
                    return readThrough(access, bytes, offset, length);
                }
            }
            if (disk != null && !firstFill && file.length() == getPos()) {
                return -1; // without queueing, unless the file has grown
            }
            try (FileIo.Access access = io.begin(disk, Phase.READ)) {
                fill(access);
                if (filled == 0 && misaligned) {
                    return readThrough(access, bytes, offset, length);
                }
            }
            if (filled == 0) {
                return -1;
            }
        }
        int count = Math.min(length, filled - used);
        System.arraycopy(buffer, used, bytes, offset, count);
        used += count;
        return count;
    }

    private int readThrough(FileIo.Access access, byte[] bytes, int offset, int length) throws IOException {
        align();
        used = filled = 0;
        int count = in.read(bytes, offset, length);
        access.moved(count);
        return count;
    }

    private void align() throws IOException {
        if (misaligned) {
            in.seek(getPos());
            misaligned = false;
        }
    }

    /**
     * Fills the buffer as far as the file is readable. An error here is dropped: the reader may never need
     * the broken part, and if it does, its own read fails.
     */
    private void fill(FileIo.Access access) throws IOException {
        align();
        long position = getPos();
        int bytes = disk == null ? PAGE_BYTES : fillBytes(position);
        firstFill = false;
        if (buffer.length < bytes) {
            buffer = new byte[bytes];
        }
        bufferStart = position;
        used = filled = 0;
        int count;
        try {
            while (filled < bytes && (count = in.read(buffer, filled, bytes - filled)) > 0) {
                filled += count;
            }
            access.moved(filled);
        } catch (IOException e) {
            misaligned = true;
            firstFill = true;
        }
    }

    /** The size of a fill at this position of a gated file. */
    private int fillBytes(long position) {
        if (!firstFill) {
            io.sequentialStage = stage;
        }
        long max = !firstFill || readsSequentially() ? io.maxFillBytes() : FileIo.FIRST_FILL_BYTES;
        return (int) Math.min(Math.max(file.length() - position, MIN_FILL_BYTES), max);
    }

    /** Implements vectored reads as Hadoop's own streams have done since 3.3.5; Hadoop 3.3.4 never calls it. */
    @Override
    public synchronized void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws IOException {
        List<FileRange> inOrder = new ArrayList<>(ranges);
        inOrder.sort(Comparator.comparingLong(FileRange::getOffset));
        if (!ranges.isEmpty()) {
            bufferStart = getPos();
            used = filled = 0;
            misaligned = true;
            firstFill = true;
        }
        long moved = 0;
        try (FileIo.Access access = io.begin(disk, Phase.READ)) {
            for (FileRange range : inOrder) {
                CompletableFuture<ByteBuffer> result = new CompletableFuture<>();
                range.setData(result);
                try {
                    result.complete(range(range, allocate));
                    moved += range.getLength();
                } catch (IOException | RuntimeException e) {
                    result.completeExceptionally(e);
                }
            }
            access.moved(moved);
        }
    }

    private ByteBuffer range(FileRange range, IntFunction<ByteBuffer> allocate) throws IOException {
        ByteBuffer data = allocate.apply(range.getLength());
        in.seek(range.getOffset());
        if (data.hasArray()) {
            in.readFully(data.array(), data.arrayOffset() + data.position(), range.getLength());
        } else {
            byte[] copy = new byte[range.getLength()];
            in.readFully(copy);
            data.duplicate().put(copy);
        }
        return data;
    }

    @Override
    public synchronized int read(long position, byte[] bytes, int offset, int length) throws IOException {
        validatePositionedReadArgs(position, bytes, offset, length);
        try (FileIo.Access access = io.begin(disk, Phase.READ)) {
            int count = in.read(position, bytes, offset, length);
            access.moved(count);
            return count;
        }
    }

    @Override
    public synchronized void readFully(long position, byte[] bytes, int offset, int length) throws IOException {
        validatePositionedReadArgs(position, bytes, offset, length);
        try (FileIo.Access access = io.begin(disk, Phase.READ)) {
            in.readFully(position, bytes, offset, length);
            access.moved(length);
        }
    }

    @Override
    public synchronized void seek(long position) throws IOException {
        if (position < 0) {
            throw new EOFException("Cannot seek to " + position);
        }
        if (filled > 0 && position >= bufferStart && position <= bufferStart + filled) {
            used = (int) (position - bufferStart);
            return;
        }
        if (position != getPos()) {
            endRun();
        }
        in.seek(position); // if it fails, as past the end, the buffer stays valid
        used = filled = 0;
        misaligned = false;
    }

    /** Ends a sequential run. Stops reading ahead for the stage if less than half of a long fill was used. */
    private void endRun() {
        if (filled > FileIo.FIRST_FILL_BYTES && used < filled / 2 && readsSequentially()) {
            io.sequentialStage = FileIo.NO_STAGE;
        }
        firstFill = true;
    }

    @Override
    public synchronized long getPos() throws IOException {
        return filled > 0 || misaligned ? bufferStart + used : in.getPos();
    }

    @Override
    public synchronized boolean seekToNewSource(long target) throws IOException {
        used = filled = 0;
        misaligned = false;
        return in.seekToNewSource(target);
    }

    @Override
    public synchronized int available() throws IOException {
        if (used == filled) {
            align();
        }
        return filled - used + (misaligned ? 0 : in.available());
    }

    @Override
    public boolean hasCapability(String capability) {
        return in.hasCapability(capability);
    }

    @Override
    public synchronized void close() throws IOException {
        endRun();
        buffer = EMPTY;
        used = filled = 0;
        in.close();
    }
}
