package org.pellucid.spark.io;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.ref.Cleaner;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.io.IOUtils;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.DiskQueue.Phase;

/**
 * An output stream that measures each write as an {@link FileIo.Access}.
 *
 * <p>On a gated disk writes are held in memory. They go to the disk as one monotask when the stream is
 * closed, and are forced, as §3.1 of Monotasks (SOSP '17) asks, so that no later write-back contends with
 * other monotasks. Large files are written in pieces: a stream holds at most {@value #MAX_HELD_BYTES} bytes,
 * and all streams together an eighth of the heap. While other streams hold that much, each write goes
 * straight to the disk.
 *
 * <p>On other disks small writes are joined, since an access costs more than copying a line, and Spark's
 * text writer makes two writes per line.
 */
final class MeasuredOutput extends OutputStream implements Syncable, StreamCapabilities {
    private static final int MAX_HELD_BYTES = 64 << 20;
    private static final int PIECE_BYTES = 1 << 20;
    private static final int JOINED_BYTES = 64 << 10;
    /** Bytes that all streams of this process hold. */
    static final AtomicLong HELD_BYTES = new AtomicLong();
    private static final Cleaner CLEANER = Cleaner.create();

    private final FSDataOutputStream out;
    private final FileIo io;
    /** Null if the disk is not gated; then only small writes are joined here. */
    private final DiskQueue disk;
    private final File file;

    private final List<byte[]> full = new ArrayList<>();
    /** The piece that is being filled. */
    private byte[] piece;
    private int used;
    private final Reservation held = new Reservation();
    private boolean closed;

    /** This stream's share of {@link #HELD_BYTES}. A cleaner releases it if the stream is never closed. */
    private static final class Reservation implements Runnable {
        private long bytes;

        synchronized boolean reserve() {
            if (HELD_BYTES.addAndGet(PIECE_BYTES) > Runtime.getRuntime().maxMemory() / 8) {
                HELD_BYTES.addAndGet(-PIECE_BYTES);
                return false;
            }
            bytes += PIECE_BYTES;
            return true;
        }

        @Override
        public synchronized void run() {
            HELD_BYTES.addAndGet(-bytes);
            bytes = 0;
        }
    }

    MeasuredOutput(FSDataOutputStream out, FileIo io, DiskQueue disk, File file) {
        this.out = out;
        this.io = io;
        this.disk = disk;
        this.file = file;
        if (disk != null) {
            CLEANER.register(this, held);
        }
    }

    @Override
    public void write(int b) throws IOException {
        write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
        if (disk == null && !closed) {
            join(bytes, offset, length);
            return;
        }
        int done = 0;
        while (done < length && hasRoom()) {
            int count = Math.min(length - done, PIECE_BYTES - used);
            System.arraycopy(bytes, offset + done, piece, used, count);
            used += count;
            done += count;
        }
        if (done < length) {
            writeThrough(bytes, offset + done, length - done);
        }
    }

    private void writeThrough(byte[] bytes, int offset, int length) throws IOException {
        try (FileIo.Access access = io.begin(disk, Phase.WRITE)) {
            out.write(bytes, offset, length);
            access.moved(length);
        }
    }

    private void join(byte[] bytes, int offset, int length) throws IOException {
        if (length > JOINED_BYTES - used) {
            writeJoined();
        }
        if (length >= JOINED_BYTES) {
            writeThrough(bytes, offset, length);
            return;
        }
        if (piece == null) {
            piece = new byte[JOINED_BYTES];
        }
        System.arraycopy(bytes, offset, piece, used, length);
        used += length;
    }

    /** Writes the joined bytes; drops them from the buffer even if that fails. */
    private void writeJoined() throws IOException {
        if (used > 0) {
            int count = used;
            used = 0;
            writeThrough(piece, 0, count);
        }
    }

    /** Returns true if the current piece has room or a new one could be reserved; otherwise nothing is held. */
    private boolean hasRoom() throws IOException {
        if (disk == null || closed) {
            return false;
        }
        if (piece != null && used < PIECE_BYTES) {
            return true;
        }
        if (piece != null) {
            full.add(piece);
            piece = null;
            used = 0;
        }
        boolean reserved = full.size() < MAX_HELD_BYTES / PIECE_BYTES && held.reserve();
        if (!reserved && !full.isEmpty()) {
            drain(false);
            reserved = held.reserve();
        }
        if (reserved) {
            piece = new byte[PIECE_BYTES];
        }
        return reserved;
    }

    /** Writes all held bytes as one monotask. */
    private void drain(boolean close) throws IOException {
        if (disk == null) {
            writeJoined();
            try (FileIo.Access access = io.begin(null, Phase.WRITE)) {
                finish(close);
            }
            return;
        }
        long moved = 0;
        try (FileIo.Access access = io.begin(disk, Phase.WRITE)) {
            for (byte[] each : full) {
                out.write(each);
                moved += each.length;
            }
            if (piece != null) {
                out.write(piece, 0, used);
                moved += used;
            }
            finish(close);
            force();
            access.moved(moved);
        } finally {
            releaseHeld();
        }
    }

    private void finish(boolean close) throws IOException {
        if (close) {
            out.close();
        } else {
            out.flush();
        }
    }

    /** Forces the file through a separate channel, since Hadoop's checksummed files have no sync. */
    private void force() {
        io.failsafe.guard("force", () -> {
            try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.WRITE)) {
                channel.force(true);
            } catch (IOException e) {
                // The file was renamed or deleted meanwhile, or the disk failed. Without the plugin nothing is forced.
            }
        });
    }

    private void releaseHeld() {
        held.run();
        full.clear();
        piece = null;
        used = 0;
    }

    /** Does nothing on a gated disk: writes go out on close, and a caller that needs them sooner uses hflush or hsync. */
    @Override
    public synchronized void flush() throws IOException {
        if (disk == null) {
            drain(false);
        }
    }

    @Override
    public synchronized void hflush() throws IOException {
        drain(false);
        out.hflush();
    }

    @Override
    public synchronized void hsync() throws IOException {
        drain(false);
        out.hsync();
    }

    @Override
    public boolean hasCapability(String capability) {
        return out.hasCapability(capability);
    }

    @Override
    public synchronized void close() throws IOException {
        if (!closed) {
            closed = true;
            try {
                drain(true);
            } catch (IOException | RuntimeException e) {
                IOUtils.closeStream(out); // a full disk may have failed before out.close()
                throw e;
            }
        }
    }
}
