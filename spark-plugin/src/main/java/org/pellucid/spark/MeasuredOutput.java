package org.pellucid.spark;

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
 * A file's stream, each of whose writes is an {@link FileIo.Access}.
 *
 * <p>Where the disk is gated, writes are held in memory and go to the disk as one monotask when the
 * stream is closed, forced, as §3.1 asks, so that no later write-back contends with other monotasks
 * (Monotasks, SOSP '17). Large files go in pieces: held is at most {@value #MAX_HELD_BYTES} bytes a
 * stream, and an eighth of the heap in all; where that is held by others, each write goes to the disk.
 *
 * <p>Elsewhere small writes are joined, since an access costs more than a line's copy: Spark's text writer
 * makes two of each line.
 */
final class MeasuredOutput extends OutputStream implements Syncable, StreamCapabilities {
    private static final int MAX_HELD_BYTES = 64 << 20;
    private static final int PIECE_BYTES = 1 << 20;
    private static final int JOINED_BYTES = 64 << 10;
    /** By all streams of the process. */
    static final AtomicLong HELD_BYTES = new AtomicLong();
    private static final Cleaner CLEANER = Cleaner.create();

    private final FSDataOutputStream out;
    private final FileIo io;
    /** Null: not gated, and no more is held here than what is joined. */
    private final DiskQueue disk;
    private final File file;

    private final List<byte[]> full = new ArrayList<>();
    /** The one that is being filled. */
    private byte[] piece;
    private int used;
    private final Held held = new Held();
    private boolean closed;

    /** Its part of all that is held. Of a stream that nobody closed it is given back when its memory is. */
    private static final class Held implements Runnable {
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
        while (done < length && room()) {
            int count = Math.min(length - done, PIECE_BYTES - used);
            System.arraycopy(bytes, offset + done, piece, used, count);
            used += count;
            done += count;
        }
        if (done < length) {
            through(bytes, offset + done, length - done);
        }
    }

    private void through(byte[] bytes, int offset, int length) throws IOException {
        try (FileIo.Access access = io.begin(disk, Phase.WRITE)) {
            out.write(bytes, offset, length);
            access.moved(length);
        }
    }

    private void join(byte[] bytes, int offset, int length) throws IOException {
        if (length > JOINED_BYTES - used) {
            passJoined();
        }
        if (length >= JOINED_BYTES) {
            through(bytes, offset, length);
            return;
        }
        if (piece == null) {
            piece = new byte[JOINED_BYTES];
        }
        System.arraycopy(bytes, offset, piece, used, length);
        used += length;
    }

    /** Once, whether or not that fails. */
    private void passJoined() throws IOException {
        if (used > 0) {
            int count = used;
            used = 0;
            through(piece, 0, count);
        }
    }

    /** Whether the piece takes more, or a new one may be held; where not, nothing is. */
    private boolean room() throws IOException {
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
        boolean may = full.size() < MAX_HELD_BYTES / PIECE_BYTES && held.reserve();
        if (!may && !full.isEmpty()) {
            drain(false);
            may = held.reserve();
        }
        if (may) {
            piece = new byte[PIECE_BYTES];
        }
        return may;
    }

    /** Writes what is held, as one monotask. */
    private void drain(boolean close) throws IOException {
        if (disk == null) {
            passJoined();
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
            letGo();
        }
    }

    private void finish(boolean close) throws IOException {
        if (close) {
            out.close();
        } else {
            out.flush();
        }
    }

    /** Hadoop's checksummed files have no sync of their own. */
    private void force() {
        io.fuse.guard("force", () -> {
            try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.WRITE)) {
                channel.force(true);
            } catch (IOException e) {
                // Renamed or deleted meanwhile, or the disk failed: without us nobody would have asked.
            }
        });
    }

    private void letGo() {
        held.run();
        full.clear();
        piece = null;
        used = 0;
    }

    /** Bytes written reach the disk when it closes; who needs them sooner says hflush or hsync. */
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
                IOUtils.closeStream(out); // a full disk may have ended it before
                throw e;
            }
        }
    }
}
