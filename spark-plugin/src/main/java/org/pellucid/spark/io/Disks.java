package org.pellucid.spark;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiConsumer;
import org.pellucid.spark.core.Controller;
import org.pellucid.spark.core.DiskQueue;

/**
 * An executor's disks in {@code monotasks} mode, each with its queue. Disks come from
 * {@code spark.pellucid.disks}, or else from the mounted file systems as files are first used.
 */
final class Disks {
    /** Maximum number of folders whose disk is cached; a lookup takes a system call or two. */
    private static final int MAX_FOLDERS = 4096;

    private final Settings settings;
    private final BiConsumer<String, DiskQueue> onNewDisk;
    private final Map<String, DiskQueue> queues = new LinkedHashMap<>();
    private final Map<String, DiskQueue> byFolder = new ConcurrentHashMap<>();

    /**
     * @param onNewDisk called for each new disk
     */
    Disks(Settings settings, BiConsumer<String, DiskQueue> onNewDisk) {
        this.settings = settings;
        this.onNewDisk = onNewDisk;
        for (String folder : settings.disks) {
            queue(folder.endsWith("/") ? folder : folder + "/");
        }
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
        for (String folder : settings.disks) {
            String prefix = folder.endsWith("/") ? folder : folder + "/";
            if (path.startsWith(prefix)) {
                return queue(prefix);
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
            created = new DiskQueue(
                Controller.ofMonotasks(settings.tuning.policy, settings.diskMin, settings.diskMax, settings.tuning.gain),
                System::nanoTime);
            queues.put(name, created);
        }
        onNewDisk.accept(name, created);
        return created;
    }

    synchronized Collection<DiskQueue> all() {
        return new ArrayList<>(queues.values());
    }

    /** Returns the maximum permits of all known disks, for the number of slots. Grows with each new disk. */
    synchronized int maxPermits() {
        return Math.max(queues.size(), 1) * settings.diskMax;
    }
}
