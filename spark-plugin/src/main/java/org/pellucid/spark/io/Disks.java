package org.pellucid.spark.io;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiConsumer;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.pellucid.spark.core.Controller;
import org.pellucid.spark.core.DiskQueue;

/**
 * An executor's disks in {@code monotasks} mode, each with its queue. A disk is a folder that the user names, or
 * else a mounted file system, once a file on it is used.
 */
public final class Disks {
    /** Maximum number of folders whose disk is cached; a lookup takes a system call or two. */
    private static final int MAX_FOLDERS = 4096;

    private final List<String> folders;
    private final int maxPermits;
    private final Supplier<Controller> controllers;
    private final BiConsumer<String, DiskQueue> onNewDisk;
    private final Map<String, DiskQueue> queues = new LinkedHashMap<>();
    private final Map<String, DiskQueue> byFolder = new ConcurrentHashMap<>();

    /**
     * @param folders one per disk; other files belong to the disk of their mounted file system
     * @param maxPermits maximum permits of a disk
     * @param controllers creates the controller of a disk's permits
     * @param onNewDisk called for each new disk
     */
    public Disks(List<String> folders, int maxPermits, Supplier<Controller> controllers, BiConsumer<String, DiskQueue> onNewDisk) {
        this.folders = folders.stream().map(folder -> folder.endsWith("/") ? folder : folder + "/").collect(Collectors.toList());
        this.maxPermits = maxPermits;
        this.controllers = controllers;
        this.onNewDisk = onNewDisk;
        this.folders.forEach(this::queue);
    }

    /** Returns the queue of the file's disk; the file need not exist yet. Null if its file system is unknown. */
    DiskQueue of(File file) {
        String folder = file.getAbsoluteFile().getParent();
        DiskQueue known = byFolder.get(folder);
        if (known == null) {
            known = find(file.getAbsolutePath());
            if (known != null && byFolder.size() < MAX_FOLDERS) {
                byFolder.put(folder, known);
            }
        }
        return known;
    }

    private DiskQueue find(String path) {
        for (String folder : folders) {
            if (path.startsWith(folder)) {
                return queue(folder);
            }
        }
        for (Path at = Path.of(path); at != null; at = at.getParent()) {
            if (Files.exists(at)) {
                try {
                    return queue(Files.getFileStore(at).name());
                } catch (IOException e) {
                    return null;
                }
            }
        }
        return null;
    }

    private DiskQueue queue(String name) {
        DiskQueue created;
        synchronized (this) {
            DiskQueue known = queues.get(name);
            if (known != null) {
                return known;
            }
            created = new DiskQueue(controllers.get(), System::nanoTime);
            queues.put(name, created);
        }
        onNewDisk.accept(name, created);
        return created;
    }

    public synchronized Collection<DiskQueue> all() {
        return new ArrayList<>(queues.values());
    }

    /** Returns the maximum permits of all known disks, for the number of slots. Grows with each new disk. */
    public synchronized int maxPermits() {
        return Math.max(queues.size(), 1) * maxPermits;
    }
}
