package org.pellucid.spark.io;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.pellucid.spark.compat.Failsafe;
import org.pellucid.spark.core.Controller;
import org.pellucid.spark.core.Cores;
import org.pellucid.spark.core.DiskQueue;
import org.pellucid.spark.core.Policy;

/** Compares measured and gated streams with Hadoop's own, on the same files. */
class MeasuredStreamsTest {
    private static final int SIZE = 3_000_000;
    private static final long STAGE = 7L << 32;

    @TempDir
    java.nio.file.Path folder;
    private final Failsafe failsafe = new Failsafe(Set.of(), () -> { });
    private final FileTotals totals = new FileTotals();
    private LocalFileSystem stock;
    private FileIo io;
    private DiskQueue disk;
    private Path path;
    private byte[] content;

    @BeforeEach
    void file() throws IOException {
        stock = new LocalFileSystem();
        stock.initialize(URI.create("file:///"), new Configuration(false));
        Disks disks = new Disks(List.of(), 4, () -> Controller.ofMonotasks(Policy.THROUGHPUT, 1, 4, 0.07), (name, queue) -> { });
        io = new FileIo(failsafe, totals, new Cores(1, Long.MAX_VALUE), disks, () -> 4);
        File file = folder.resolve("data").toFile();
        disk = io.queueOf(file);
        path = new Path(file.toURI());
        content = new byte[SIZE];
        new Random(1).nextBytes(content);
        try (FSDataOutputStream out = stock.create(path)) {
            out.write(content);
        }
    }

    /** Makes random calls of every method of a reader; failure messages name the seed. */
    @Test
    void randomReadsMatchHadoop() throws Exception {
        for (long seed = 0; seed < 40; seed++) {
            boolean gated = seed % 2 == 0;
            Random random = new Random(seed);
            try (FSDataInputStream plain = stock.open(path);
                    FSDataInputStream ours = measured(gated)) {
                for (int step = 0; step < 60; step++) {
                    String at = "seed " + seed + ", step " + step;
                    step(random, plain, ours, at);
                    assertEquals(plain.getPos(), ours.getPos(), at);
                }
            }
        }
        assertEquals(0, disk.running());
        assertTrue(totals.readBytes() > 0 && !failsafe.isTripped());
    }

    @Test
    void ungatedStreamsJoinSmallReadsAndWrites() throws IOException {
        RecordingInput recording = new RecordingInput();
        int half = SIZE / 2;
        try (MeasuredInput ours = new MeasuredInput(new FSDataInputStream(recording), io, null, stock.pathToFile(path), STAGE)) {
            for (int at = 0; at < half; at++) {
                assertEquals(content[at], (byte) ours.read());
            }
            assertTrue(recording.lengths.stream().allMatch(length -> length <= 4096) && recording.lengths.size() <= half / 4096 + 1);
            byte[] rest = new byte[SIZE - half];
            new FSDataInputStream(ours).readFully(rest);
            assertArrayEquals(Arrays.copyOfRange(content, half, SIZE), rest);
        }
        Path target = new Path(folder.resolve("joined").toUri());
        FSDataOutputStream raw = stock.create(target);
        try (MeasuredOutput ours = new MeasuredOutput(raw, io, null, stock.pathToFile(target))) {
            ours.write(content, 0, 900);
            ours.write(content, 900, 100);
            assertEquals(0, raw.getPos());
            ours.hflush();
            assertEquals(1000, raw.getPos(), "hflush writes everything");
            ours.write(content, 1000, 10);
            ours.write(content, 1010, 100_000);
            assertEquals(101_010, raw.getPos(), "in order");
            for (int at = 101_010; at < SIZE; at++) {
                ours.write(content[at]);
            }
            assertTrue(SIZE - raw.getPos() <= 64 << 10);
        }
        assertArrayEquals(content, Files.readAllBytes(folder.resolve("joined")));
        assertEquals(SIZE, totals.writeBytes());
        assertEquals(SIZE, totals.readBytes());
    }

    private FSDataInputStream measured(boolean gated) throws IOException {
        return measured(gated, stock.open(path));
    }

    private FSDataInputStream measured(boolean gated, FSDataInputStream in) {
        File file = stock.pathToFile(path);
        return new FSDataInputStream(new MeasuredInput(in, io, gated ? disk : null, file, STAGE));
    }

    /** A stream of the file's bytes that records the length of each read. */
    private final class RecordingInput extends FSInputStream {
        final List<Integer> lengths = new ArrayList<>();
        private int position;

        @Override
        public int read() {
            throw new AssertionError("byte by byte");
        }

        @Override
        public int read(byte[] bytes, int offset, int length) {
            lengths.add(length);
            int count = Math.min(length, SIZE - position);
            System.arraycopy(content, position, bytes, offset, count);
            position += count;
            return count == 0 ? -1 : count;
        }

        @Override
        public void seek(long to) {
            position = (int) to;
        }

        @Override
        public long getPos() {
            return position;
        }

        @Override
        public boolean seekToNewSource(long target) {
            return false;
        }
    }

    private void readAll(MeasuredInput ours) throws IOException {
        byte[] piece = new byte[65_536];
        int at = 0;
        for (int count; (count = ours.read(piece, 0, piece.length)) >= 0; at += count) {
            assertArrayEquals(Arrays.copyOfRange(content, at, at + count), Arrays.copyOf(piece, count));
        }
        assertEquals(SIZE, at);
    }

    private MeasuredInput over(RecordingInput recording) {
        return new MeasuredInput(new FSDataInputStream(recording), io, disk, stock.pathToFile(path), STAGE);
    }

    private MeasuredInput opened(RecordingInput recording) throws IOException {
        MeasuredInput ours = over(recording);
        try (FileIo.Access access = io.begin(disk, DiskQueue.Phase.READ)) {
            ours.opened(access);
        }
        return ours;
    }

    @Test
    void sequentialReaderGetsRestInOneMonotask() throws IOException {
        RecordingInput first = new RecordingInput();
        try (MeasuredInput ours = over(first)) {
            readAll(ours);
        }
        int some = FileIo.FIRST_FILL_BYTES;
        assertEquals(List.of(some, SIZE - some), first.lengths, "no extra read at the end of the file");
        // Later streams of the stage are read when they are opened.
        RecordingInput next = new RecordingInput();
        try (MeasuredInput ours = opened(next)) {
            assertEquals(List.of(SIZE), next.lengths);
            readAll(ours);
        }
        assertEquals(List.of(SIZE), next.lengths);
        // A stream that is closed early turns that off.
        RecordingInput closedEarly = new RecordingInput();
        try (MeasuredInput ours = opened(closedEarly)) {
            assertEquals(10, ours.read(new byte[10], 0, 10));
        }
        RecordingInput last = new RecordingInput();
        try (MeasuredInput ours = opened(last)) {
            assertEquals(List.of(), last.lengths);
            readAll(ours);
        }
        assertEquals(List.of(some, SIZE - some), last.lengths);
        assertEquals(0, disk.running());
    }

    /** Covers a log that is read while it is written; such a file has no checksums. */
    @Test
    void appendedDataIsReadAfterEndOfFile() throws IOException {
        Path grows = new Path(folder.resolve("grows").toUri());
        File file = stock.pathToFile(grows);
        Files.write(file.toPath(), content);
        MeasuredInput ours = new MeasuredInput(stock.open(grows), io, disk, file, STAGE);
        readAll(ours);
        Files.write(file.toPath(), new byte[] {1, 2, 3}, StandardOpenOption.APPEND);
        byte[] more = new byte[10];
        assertEquals(3, ours.read(more, 0, 10));
        assertArrayEquals(new byte[] {1, 2, 3}, Arrays.copyOf(more, 3));
        assertEquals(-1, ours.read());
        ours.close();
    }

    @Test
    void brokenFileFailsOnlyAtBrokenPosition() throws IOException {
        io.sequentialStage = STAGE;
        boolean[] broken = {true};
        FSInputStream flaky = new FSInputStream() {
            private final RecordingInput whole = new RecordingInput();

            @Override
            public int read() {
                throw new AssertionError("byte by byte");
            }

            @Override
            public int read(byte[] bytes, int offset, int length) throws IOException {
                if (broken[0] && whole.getPos() > 0) {
                    throw new IOException("broken");
                }
                return whole.read(bytes, offset, Math.min(length, 1000));
            }

            @Override
            public void seek(long to) {
                whole.seek(to);
            }

            @Override
            public long getPos() {
                return whole.getPos();
            }

            @Override
            public boolean seekToNewSource(long target) {
                return false;
            }
        };
        MeasuredInput ours = new MeasuredInput(new FSDataInputStream(flaky), io, disk, stock.pathToFile(path), STAGE);
        try (FileIo.Access access = io.begin(disk, DiskQueue.Phase.READ)) {
            ours.opened(access);
        }
        assertEquals(0, ours.getPos());
        byte[] good = new byte[1000];
        for (int at = 0; at < good.length; at += 10) {
            assertEquals(10, ours.read(good, at, 10), "before the broken position");
        }
        assertArrayEquals(Arrays.copyOf(content, good.length), good);
        assertThrows(IOException.class, () -> ours.read(new byte[10], 0, 10));
        assertEquals(good.length, ours.getPos());
        broken[0] = false;
        assertEquals(10, ours.read(good, 0, 10), "the failure was temporary");
        assertArrayEquals(Arrays.copyOfRange(content, 1000, 1010), Arrays.copyOf(good, 10));
        ours.seek(0);
        readAll(ours);
        assertEquals(0, disk.running());
    }

    private void step(Random random, FSDataInputStream plain, FSDataInputStream ours, String at) throws Exception {
        int length = 1 + random.nextInt(random.nextInt(4) == 0 ? 400_000 : 5_000);
        long position = random.nextInt(SIZE - length);
        byte[] expect = new byte[length];
        byte[] got = new byte[length];
        switch (random.nextInt(6)) {
            case 0:
                plain.seek(position);
                ours.seek(position);
                break;
            case 1:
                assertEquals(plain.read(), ours.read(), at);
                break;
            case 2:
                if (plain.getPos() + length <= SIZE) {
                    plain.readFully(expect);
                    ours.readFully(got);
                }
                break;
            case 3:
                plain.readFully(position, expect, 0, length);
                ours.readFully(position, got, 0, length);
                break;
            case 4:
                assertEquals(plain.skip(length), ours.skip(length), at);
                break;
            default:
                vectored(random, ours, at);
        }
        assertArrayEquals(expect, got, at);
    }

    private void vectored(Random random, FSDataInputStream ours, String at) throws Exception {
        List<FileRange> ranges = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            ranges.add(FileRange.createFileRange(random.nextInt(SIZE - 10_000), 1 + random.nextInt(10_000)));
        }
        boolean direct = random.nextBoolean();
        ours.readVectored(ranges, size -> direct ? ByteBuffer.allocateDirect(size) : ByteBuffer.allocate(size));
        for (FileRange range : ranges) {
            assertTrue(range.getData().isDone(), at);
            ByteBuffer data = range.getData().get();
            byte[] got = new byte[data.remaining()];
            data.get(got);
            int from = (int) range.getOffset();
            assertArrayEquals(Arrays.copyOfRange(content, from, from + range.getLength()), got, at);
        }
    }

    @Test
    void readsStopAtEndOfFile() throws IOException {
        for (boolean gated : new boolean[] {true, false}) {
            try (FSDataInputStream ours = measured(gated)) {
                ours.seek(SIZE - 2);
                assertEquals(2, ours.read(new byte[10]));
                assertEquals(-1, ours.read());
                assertThrows(EOFException.class, () -> ours.readFully(SIZE - 5, new byte[10]));
                assertThrows(EOFException.class, () -> ours.seek(-1));
                ours.seek(SIZE - 9);
                assertEquals(content[SIZE - 9], (byte) ours.read());
                assertThrows(EOFException.class, () -> ours.seek(SIZE + 1));
                assertEquals(SIZE - 8, ours.getPos(), "a failed seek keeps the position");
                assertEquals(content[SIZE - 8], (byte) ours.read());
            }
        }
    }

    @Test
    void renamingOrDeletingOpenFileDoesNotFailWriter() throws IOException {
        for (boolean renamed : new boolean[] {true, false}) {
            Path target = new Path(folder.resolve("gone-" + renamed).toUri());
            File file = stock.pathToFile(target);
            MeasuredOutput out = new MeasuredOutput(stock.create(target), io, disk, file);
            out.write(content, 0, SIZE);
            File other = folder.resolve("other").toFile();
            assertTrue(renamed ? file.renameTo(other) : file.delete());
            out.hflush();
            out.close();
            if (renamed) {
                assertArrayEquals(content, Files.readAllBytes(other.toPath()));
            }
        }
        assertTrue(!failsafe.isTripped() && disk.running() == 0);
    }

    @Test
    void failingDiskFailsWriterAsStockHadoop() throws IOException {
        for (boolean gated : new boolean[] {true, false}) {
            long before = MeasuredOutput.HELD_BYTES.get();
            FSDataOutputStream full = new FSDataOutputStream(new OutputStream() {
                @Override
                public void write(int b) throws IOException {
                    throw new IOException("No space left on device");
                }
            }, null);
            MeasuredOutput out = new MeasuredOutput(full, io, gated ? disk : null, stock.pathToFile(path));
            IOException error = assertThrows(IOException.class, () -> {
                out.write(content, 0, 1000);
                out.close();
            });
            assertEquals("No space left on device", error.getMessage());
            out.close();
            assertThrows(IOException.class, () -> out.write(content, 0, 1000), "later writes fail too");
            assertEquals(before, MeasuredOutput.HELD_BYTES.get());
        }
        assertTrue(!failsafe.isTripped() && disk.running() == 0);
    }

    @Test
    void writesGoToDiskWhenOtherStreamsHoldAllMemory() throws IOException {
        long others = Runtime.getRuntime().maxMemory() / 8;
        Path target = new Path(folder.resolve("crowded").toUri());
        File file = stock.pathToFile(target);
        FSDataOutputStream raw = stock.create(target);
        MeasuredOutput out = new MeasuredOutput(raw, io, disk, file);
        long before = MeasuredOutput.HELD_BYTES.get();
        out.write(content, 0, 10);
        try {
            MeasuredOutput.HELD_BYTES.addAndGet(others);
            out.write(content, 10, 2_000_000);
            assertEquals(2_000_010, raw.getPos(), "the bytes held before, and all later ones");
            assertEquals(before + others, MeasuredOutput.HELD_BYTES.get());
        } finally {
            MeasuredOutput.HELD_BYTES.addAndGet(-others);
        }
        out.write(content, 2_000_010, SIZE - 2_000_010);
        assertEquals(2_000_010, raw.getPos(), "held again");
        out.close();
        assertArrayEquals(content, Files.readAllBytes(file.toPath()));
        assertEquals(before, MeasuredOutput.HELD_BYTES.get());
    }

    @Test
    void unclosedStreamReleasesHeldBytesOnCollection() throws Exception {
        long before = MeasuredOutput.HELD_BYTES.get();
        for (int i = 0; i < 3; i++) {
            Path target = new Path(folder.resolve("left-" + i).toUri());
            new MeasuredOutput(stock.create(target), io, disk, stock.pathToFile(target)).write(content, 0, 2_000_000);
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (MeasuredOutput.HELD_BYTES.get() != before) {
            assertTrue(System.nanoTime() < deadline, "held " + MeasuredOutput.HELD_BYTES.get());
            System.gc();
            Thread.sleep(10);
        }
    }

    @Test
    void writesKeepOrderAndContent() throws IOException {
        Random random = new Random(7);
        for (boolean gated : new boolean[] {true, false}) {
            Path target = new Path(folder.resolve("out-" + gated).toUri());
            File file = stock.pathToFile(target);
            FSDataOutputStream out = new FSDataOutputStream(
                new MeasuredOutput(stock.create(target), io, gated ? disk : null, file), null);
            int done = 0;
            while (done < SIZE) {
                int count = Math.min(1 + random.nextInt(300_000), SIZE - done);
                if (count == 1) {
                    out.write(content[done]);
                } else {
                    out.write(content, done, count);
                }
                done += count;
                assertEquals(done, out.getPos());
                if (random.nextInt(5) == 0) {
                    out.flush();
                    out.hflush();
                }
            }
            out.close();
            out.close();
            assertArrayEquals(content, Files.readAllBytes(file.toPath()));
        }
        assertEquals(2L * SIZE, totals.writeBytes());
        assertEquals(0, disk.running());
    }
}
