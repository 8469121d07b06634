package org.pellucid.spark;

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
 * A file's stream, each of whose reads is an {@link FileIo.Access}.
 *
 * <p>Vectored reads (Parquet asks for all column chunks of a row group in one) are done on the
 * calling thread, one after another: so the bytes are counted for the task, which stock Spark's
 * Bytes Read misses, and a row group is one disk monotask.
 *
 * <p>Where the disk is gated, small reads come out of a buffer, so that a task does not queue for
 * every 64 KiB, and the head does not move for each. The first fill is short, since some readers look
 * at a few bytes and go elsewhere; who reads on gets as much of the rest as one stream may hold. Once
 * one stream of a stage has read on, the stage's next ones begin so, and small files are read as they
 * are opened: a task's input is one monotask, as in §3.2 of Monotasks (SOSP '17).
 *
 * <p>Elsewhere only what is smaller than a page comes out of a buffer, of one page: who reads number by
 * number would look at the clock for each.
 */
final class MeasuredInput extends FSInputStream implements StreamCapabilities {
    /** What is asked for where a file says that it has ended, or has no length. */
    private static final int MIN_FILL_BYTES = 64 << 10;
    private static final int PAGE_BYTES = 4 << 10;
    private static final byte[] NOTHING = new byte[0];

    private final FSDataInputStream in;
    private final FileIo io;
    /** Null: not gated. */
    private final DiskQueue disk;
    private final File file;
    private final long stage;

    /** What was read ahead begins at {@code ahead}, and is used up to {@code used}. */
    private byte[] buffer = NOTHING;
    private long ahead;
    private int filled;
    private int used;
    /** Whether {@code in} may stand elsewhere than where what was read ahead ends. */
    private boolean astray;
    /** Whether what was read ahead began at a place that was not read on to. */
    private boolean first = true;

    /**
     * @param file whose stream it is
     * @param stage whose task reads it, or {@link FileIo#NO_STAGE}
     */
    MeasuredInput(FSDataInputStream in, FileIo io, DiskQueue disk, File file, long stage) {
        this.in = in;
        this.io = io;
        this.disk = disk;
        this.file = file;
        this.stage = stage;
    }

    /** Within the access that opened it: reads all, where that is one fill and streams like it read on. */
    synchronized void opened(FileIo.Access access) throws IOException {
        if (disk != null && readsOn() && file.length() <= io.mostFillBytes()) {
            fill(access);
        }
    }

    private boolean readsOn() {
        return stage != FileIo.NO_STAGE && io.readOnStage == stage;
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
                    return through(access, bytes, offset, length);
                }
            }
            if (disk != null && !first && file.length() == getPos()) {
                return -1; // without a turn in the queue; of a file that grew there is more
            }
            try (FileIo.Access access = io.begin(disk, Phase.READ)) {
                fill(access);
                if (filled == 0 && astray) {
                    return through(access, bytes, offset, length);
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

    private int through(FileIo.Access access, byte[] bytes, int offset, int length) throws IOException {
        stand();
        used = filled = 0;
        int count = in.read(bytes, offset, length);
        access.moved(count);
        return count;
    }

    private void stand() throws IOException {
        if (astray) {
            in.seek(getPos());
            astray = false;
        }
    }

    /**
     * Reads ahead, as far as the file can be read: what cannot may be no part of what its reader wants, and if
     * it is, the reader's own read fails.
     */
    private void fill(FileIo.Access access) throws IOException {
        stand();
        long position = getPos();
        int bytes = disk == null ? PAGE_BYTES : fillBytes(position);
        first = false;
        if (buffer.length < bytes) {
            buffer = new byte[bytes];
        }
        ahead = position;
        used = filled = 0;
        int count;
        try {
            while (filled < bytes && (count = in.read(buffer, filled, bytes - filled)) > 0) {
                filled += count;
            }
            access.moved(filled);
        } catch (IOException e) {
            astray = true;
            first = true;
        }
    }

    /** From there on, where the disk is gated. */
    private int fillBytes(long position) {
        if (!first) {
            io.readOnStage = stage;
        }
        long most = !first || readsOn() ? io.mostFillBytes() : FileIo.FIRST_FILL_BYTES;
        return (int) Math.min(Math.max(file.length() - position, MIN_FILL_BYTES), most);
    }

    /** What Hadoop's own streams do since 3.3.5; of 3.3.4 nothing calls it. */
    @Override
    public synchronized void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws IOException {
        List<FileRange> inOrder = new ArrayList<>(ranges);
        inOrder.sort(Comparator.comparingLong(FileRange::getOffset));
        if (!ranges.isEmpty()) {
            ahead = getPos();
            used = filled = 0;
            astray = true;
            first = true;
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
        if (filled > 0 && position >= ahead && position <= ahead + filled) {
            used = (int) (position - ahead);
            return;
        }
        if (position != getPos()) {
            leaveOff();
        }
        in.seek(position); // where it fails, as past the end, all stays
        used = filled = 0;
        astray = false;
    }

    /** Goes elsewhere, or ends: was it right to read on? */
    private void leaveOff() {
        if (filled > FileIo.FIRST_FILL_BYTES && used < filled / 2 && readsOn()) {
            io.readOnStage = FileIo.NO_STAGE;
        }
        first = true;
    }

    @Override
    public synchronized long getPos() throws IOException {
        return filled > 0 || astray ? ahead + used : in.getPos();
    }

    @Override
    public synchronized boolean seekToNewSource(long target) throws IOException {
        used = filled = 0;
        astray = false;
        return in.seekToNewSource(target);
    }

    @Override
    public synchronized int available() throws IOException {
        if (used == filled) {
            stand();
        }
        return filled - used + (astray ? 0 : in.available());
    }

    @Override
    public boolean hasCapability(String capability) {
        return in.hasCapability(capability);
    }

    @Override
    public synchronized void close() throws IOException {
        leaveOff();
        buffer = NOTHING;
        used = filled = 0;
        in.close();
    }
}
