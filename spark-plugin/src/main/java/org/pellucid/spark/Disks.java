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
 * The disks of an executor in the {@code monotasks} mode, each with its queue: those of
 * {@code spark.pellucid.disks}, else what the mounted file systems say, as they are met.
 */
final class Disks {
    /** Folders whose disk is remembered; asking for it is a system call or two. */
    private static final int MAX_FOLDERS = 4096;

    private final Settings settings;
    private final BiConsumer<String, DiskQueue> met;
    private final Map<String, DiskQueue> queues = new LinkedHashMap<>();
    private final Map<String, DiskQueue> ofFolder = new ConcurrentHashMap<>();

    /**
     * @param met told of each, as it is met
     */
    Disks(Settings settings, BiConsumer<String, DiskQueue> met) {
        this.settings = settings;
        this.met = met;
        for (String folder : settings.disks) {
            queue(folder.endsWith("/") ? folder : folder + "/");
        }
    }

    /** Of the file, which need not exist yet; null where its file system cannot be asked. */
    DiskQueue of(File file) {
        String folder = file.getAbsoluteFile().getParent();
        DiskQueue known = ofFolder.get(folder);
        if (known == null) {
            known = find(file.getAbsolutePath());
            if (known != null && ofFolder.size() < MAX_FOLDERS) {
                ofFolder.put(folder, known);
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
        DiskQueue made;
        synchronized (this) {
            DiskQueue known = queues.get(name);
            if (known != null) {
                return known;
            }
            made = new DiskQueue(
                Controller.ofMonotasks(settings.tuning.policy, settings.diskMin, settings.diskMax, settings.tuning.gain),
                System::nanoTime);
            queues.put(name, made);
        }
        met.accept(name, made);
        return made;
    }

    synchronized Collection<DiskQueue> all() {
        return new ArrayList<>(queues.values());
    }

    /** Permits that all of them may come to: what slots are reckoned with. More with each that is met. */
    synchronized int mostPermits() {
        return Math.max(queues.size(), 1) * settings.diskMax;
    }
}
