package org.pellucid.spark;

import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps a failure of the plugin from becoming one of the job: the first is logged, then the plugin
 * is off in this process and everybody is let through.
 *
 * <p>All that Spark calls, and all that is done beside a read or a write, runs in {@link #guard}.
 */
final class Failsafe {
    static final Logger LOG = LoggerFactory.getLogger("org.pellucid.spark");

    /** A part of the plugin; may throw anything. */
    interface Part {
        void run() throws Exception;
    }

    private final AtomicBoolean blown = new AtomicBoolean();
    private final Set<String> faults;
    private final Runnable open;

    /**
     * @param faults names of guarded parts that shall fail, for tests
     * @param open lets everybody through
     */
    Failsafe(Set<String> faults, Runnable open) {
        this.faults = faults;
        this.open = open;
    }

    boolean isBlown() {
        return blown.get();
    }

    /** Runs a part unless one failed before. An interrupt stays set and is no failure. */
    void guard(String name, Part part) {
        if (blown.get()) {
            return;
        }
        try {
            if (faults.contains(name)) {
                throw new IllegalStateException("a fault asked for by spark.pellucid.fault");
            }
            part.run();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (VirtualMachineError e) {
            throw e; // Spark's own handling of memory that ran out must see it
        } catch (Throwable e) {
            blow(name, e);
        }
    }

    /** A part failed that may not be left out even after a failure, as giving back is. */
    void blow(String name, Throwable failure) {
        if (blown.compareAndSet(false, true)) {
            LOG.error("Pellucid failed in {} and is off in this process; the job goes on without it", name, failure);
        }
        try {
            open.run();
        } catch (RuntimeException | LinkageError e) {
            LOG.error("Pellucid could not let everybody through", e);
        }
    }
}
