package org.pellucid.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.pellucid.spark.core.Cores;
import org.pellucid.spark.core.DiskQueue;

/** The measured and the gated streams against Hadoop's own, on the same files. */
class MeasuredStreamsTest {
    private static final int SIZE = 3_000_000;

    @TempDir
    java.nio.file.Path folder;
    private final Fuse fuse = new Fuse(Set.of(), () -> { });
    private LocalFileSystem stock;
    private FileIo io;
    private DiskQueue disk;
    private Path path;
    private byte[] content;

    @BeforeEach
    void file() throws IOException {
        stock = new LocalFileSystem();
        stock.initialize(URI.create("file:///"), new Configuration(false));
        Disks disks = new Disks(new Settings(Map.of()));
        io = new FileIo(fuse, new Cores(1), disks);
        File file = folder.resolve("data").toFile();
        disk = io.queueOf(file);
        path = new Path(file.toURI());
        content = new byte[SIZE];
        new Random(1).nextBytes(content);
        try (FSDataOutputStream out = stock.create(path)) {
            out.write(content);
        }
    }

    /** Random calls of everything that a reader may do; seeds are in the message. */
    @Test
    void readsAsHadoopDoes() throws Exception {
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
        assertTrue(io.readBytes.sum() > 0 && !fuse.isBlown());
    }

    private FSDataInputStream measured(boolean gated) throws IOException {
        return new FSDataInputStream(new MeasuredInput(stock.open(path), io, gated ? disk : null));
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
            assertArrayEquals(java.util.Arrays.copyOfRange(content, from, from + range.getLength()), got, at);
        }
    }

    @Test
    void endsWhereTheFileEnds() throws IOException {
        for (boolean gated : new boolean[] {true, false}) {
            try (FSDataInputStream ours = measured(gated)) {
                ours.seek(SIZE - 2);
                assertEquals(2, ours.read(new byte[10]));
                assertEquals(-1, ours.read());
                assertThrows(EOFException.class, () -> ours.readFully(SIZE - 5, new byte[10]));
                assertThrows(EOFException.class, () -> ours.seek(-1));
            }
        }
    }

    @Test
    void writesAllAndInOrder() throws IOException {
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
        assertEquals(2L * SIZE, io.writeBytes.sum());
        assertEquals(0, disk.running());
    }
}
