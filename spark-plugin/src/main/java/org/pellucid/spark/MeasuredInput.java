package org.pellucid.spark;

import java.io.EOFException;
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
 * A file's stream, each of whose reads is an {@link FileIo.Access}.
 *
 * <p>Vectored reads (Parquet asks for all column chunks of a row group in one) are done on the
 * calling thread, one after another: so the bytes are counted for the task, which stock Spark's
 * Bytes Read misses, and a row group is one disk monotask. Where the disk is gated, small reads
 * come out of a buffer that is filled in larger and larger pieces, so that a task does not queue
 * for every 64 KiB.
 */
final class MeasuredInput extends FSInputStream implements StreamCapabilities {
    private static final int FIRST_FILL = 256 << 10;
    private static final int MOST_FILL = 8 << 20;
    private static final byte[] NOTHING = new byte[0];

    private final FSDataInputStream in;
    private final FileIo io;
    /** Null: not gated, and nothing is buffered here. */
    private final DiskQueue disk;

    /** What was read ahead begins at {@code ahead}, and is used up to {@code used}. */
    private byte[] buffer = NOTHING;
    private long ahead;
    private int filled;
    private int used;
    private int nextFill = FIRST_FILL;

    MeasuredInput(FSDataInputStream in, FileIo io, DiskQueue disk) {
        this.in = in;
        this.io = io;
        this.disk = disk;
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
            used = filled = 0;
            if (disk == null || length >= nextFill) {
                return through(bytes, offset, length);
            }
            if (!fill()) {
                return -1;
            }
        }
        int count = Math.min(length, filled - used);
        System.arraycopy(buffer, used, bytes, offset, count);
        used += count;
        return count;
    }

    private int through(byte[] bytes, int offset, int length) throws IOException {
        try (FileIo.Access access = io.begin(disk, Phase.READ)) {
            int count = in.read(bytes, offset, length);
            access.moved(count);
            return count;
        }
    }

    private boolean fill() throws IOException {
        if (buffer.length < nextFill) {
            buffer = new byte[nextFill];
        }
        nextFill = Math.min(2 * nextFill, MOST_FILL);
        ahead = in.getPos();
        filled = 0;
        used = 0;
        try (FileIo.Access access = io.begin(disk, Phase.READ)) {
            int count;
            while (filled < buffer.length && (count = in.read(buffer, filled, buffer.length - filled)) > 0) {
                filled += count;
            }
            access.moved(filled);
        }
        return filled > 0;
    }

    /** What Hadoop's own streams do since 3.3.5; of 3.3.4 nothing calls it. */
    @Override
    public synchronized void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws IOException {
        List<FileRange> inOrder = new ArrayList<>(ranges);
        inOrder.sort(Comparator.comparingLong(FileRange::getOffset));
        long before = getPos();
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
        seek(before);
    }

    private ByteBuffer range(FileRange range, IntFunction<ByteBuffer> allocate) throws IOException {
        ByteBuffer data = allocate.apply(range.getLength());
        in.seek(range.getOffset());
        used = filled = 0;
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
        if (filled > 0 && position >= ahead && position <= ahead + filled) {
            used = (int) (position - ahead);
            return;
        }
        if (position != getPos()) {
            nextFill = FIRST_FILL;
        }
        used = filled = 0;
        in.seek(position);
    }

    @Override
    public synchronized long getPos() throws IOException {
        return filled > 0 ? ahead + used : in.getPos();
    }

    @Override
    public synchronized boolean seekToNewSource(long target) throws IOException {
        used = filled = 0;
        return in.seekToNewSource(target);
    }

    @Override
    public synchronized int available() throws IOException {
        return filled - used + in.available();
    }

    @Override
    public boolean hasCapability(String capability) {
        return in.hasCapability(capability);
    }

    @Override
    public void close() throws IOException {
        in.close();
    }
}
