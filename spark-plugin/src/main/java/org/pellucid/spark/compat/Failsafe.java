package org.pellucid.spark.compat;

import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps failures of the plugin away from the job. The first failure is logged; then the plugin is off in
 * this process, and its gates are open.
 *
 * <p>Every callback from Spark, and all work around a read or a write, runs in {@link #guard}.
 */
public final class Failsafe {
    public static final Logger LOG = LoggerFactory.getLogger("org.pellucid.spark");

    /** A part of the plugin that may throw anything. */
    public interface Part {
        void run() throws Exception;
    }

    private final AtomicBoolean tripped = new AtomicBoolean();
    private final Set<String> faults;
    private final Runnable open;

    /**
     * @param faults names of guarded parts that must throw, for tests
     * @param open opens all gates after a failure
     */
    public Failsafe(Set<String> faults, Runnable open) {
        this.faults = faults;
        this.open = open;
    }

    public boolean isTripped() {
        return tripped.get();
    }

    /** Runs a part unless one failed before. An interrupt stays set and does not count as a failure. */
    public void guard(String name, Part part) {
        if (tripped.get()) {
            return;
        }
        try {
            if (faults.contains(name)) {
                throw new IllegalStateException("fault requested by spark.pellucid.fault");
            }
            part.run();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (VirtualMachineError e) {
            throw e; // Spark must handle an OutOfMemoryError itself
        } catch (Throwable e) {
            trip(name, e);
        }
    }

    /** Reports a failure in a part that must run even after an earlier failure, such as releasing a permit. */
    public void trip(String name, Throwable failure) {
        if (tripped.compareAndSet(false, true)) {
            LOG.error("Pellucid failed in {} and is off in this process; the job goes on without it", name, failure);
        }
        try {
            open.run();
        } catch (RuntimeException | LinkageError e) {
            LOG.error("Pellucid cannot open its gates; tasks may wait until patience ends", e);
        }
    }
}
