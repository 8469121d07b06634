package org.pellucid.spark.compat;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import org.apache.spark.SparkContext;

/**
 * Changes how many free cores Spark's scheduler assumes for an executor.
 *
 * <p>Spark sends no task to an executor without free cores, and frees cores when an executor reports a task
 * as finished. So "task -1 finished with n cores" changes the number, also for a negative n. For the unknown
 * task Spark logs one line ("Ignoring update with state FINISHED for TID -1"). Nothing else depends on that
 * number: dynamic allocation and barrier checks use the executor's cores.
 *
 * <p>The message differs between versions: cores are Int in 3.5 and 4.0 and BigDecimal in 4.3. This class uses
 * only Spark's names, looked up on first use; if one is missing, the executors' gates work without it.
 */
public final class SchedulerSlots {
    private static final String BACKEND = "org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend";
    private static final String UPDATE =
        "org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages$StatusUpdate";

    private final Object backend;
    private final Method available;
    private final Object endpoint;
    private final Method send;
    private final Constructor<?> update;
    private final Class<?> coresType;
    private final Object finished;
    private final Object emptyBuffer;
    private final Object noResources;

    /**
     * @throws ReflectiveOperationException if this Spark's scheduler is not one of the known ones
     */
    public SchedulerSlots(SparkContext context) throws ReflectiveOperationException {
        backend = SparkContext.class.getMethod("schedulerBackend").invoke(context);
        available = backend.getClass().getMethod("getExecutorAvailableCpus", String.class);
        endpoint = backend.getClass().getMethod("driverEndpoint").invoke(backend);
        send = Class.forName("org.apache.spark.rpc.RpcEndpointRef").getMethod("send", Object.class);
        send.setAccessible(true);
        update = Class.forName(UPDATE).getConstructors()[0];
        if (update.getParameterCount() != 6) {
            throw new NoSuchMethodException(UPDATE + " takes " + update.getParameterCount() + " parameters, not 6");
        }
        finished = Class.forName("org.apache.spark.TaskState").getMethod("FINISHED").invoke(null);
        emptyBuffer = Class.forName("org.apache.spark.util.SerializableBuffer").getConstructor(ByteBuffer.class)
            .newInstance(ByteBuffer.allocate(0));
        Object maps = Class.forName("scala.collection.immutable.Map$").getField("MODULE$").get(null);
        noResources = maps.getClass().getMethod("empty").invoke(maps);
        coresType = update.getParameterTypes()[4];
        coresValue(coresType, 0); // fail early
    }

    /** Returns true if the master sends tasks to executors, which {@code local[n]} does not. */
    public static boolean sendsTasks(SparkContext context) throws ReflectiveOperationException {
        Object backend = SparkContext.class.getMethod("schedulerBackend").invoke(context);
        for (Class<?> type = backend == null ? null : backend.getClass(); type != null; type = type.getSuperclass()) {
            if (type.getName().equals(BACKEND)) {
                return true;
            }
        }
        return false;
    }

    /**
     * Returns true once Spark sends the executor tasks. An executor's plugin starts earlier, while Spark counts
     * none of its cores as free; when the executor registers, Spark counts all of them and drops earlier
     * changes. Also returns false while all cores are in use.
     */
    public boolean hasFreeCores(String executor) throws ReflectiveOperationException {
        scala.Option<?> cores = (scala.Option<?>) available.invoke(backend, executor);
        return cores.isDefined() && Double.parseDouble(cores.get().toString()) > 0;
    }

    /** Adds this many free cores to the executor; negative to remove some. */
    public void addFreeCores(String executor, int cores) throws ReflectiveOperationException {
        send.invoke(endpoint, update.newInstance(executor, -1L, finished, emptyBuffer, coresValue(coresType, cores), noResources));
    }

    /** Converts a number of cores to the type of the message's parameter. */
    static Object coresValue(Class<?> type, int cores) throws ReflectiveOperationException {
        if (type == int.class) {
            return cores;
        }
        // The companion's own method: the class has members of the same name, so Scala emits no static forwarders.
        Object companion = Class.forName(type.getName() + "$").getField("MODULE$").get(null);
        return companion.getClass().getMethod("apply", int.class).invoke(companion, cores);
    }
}
