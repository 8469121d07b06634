package org.pellucid.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import org.apache.spark.SparkContext;

/**
 * Makes Spark's scheduler believe that an executor has more or fewer free cores.
 *
 * <p>Spark sends no task where no cores are free, and takes cores as freed when an executor says
 * that a task is finished. So "task -1 finished with n cores" moves the number, by a negative n
 * too; of the unknown task it logs one line ("Ignoring update with state FINISHED for TID -1").
 * Nothing else is kept in that number: dynamic allocation and barrier checks reckon with the
 * executor's cores.
 *
 * <p>The one class that calls what differs between versions here: cores are Int in 3.5 and 4.0 and
 * BigDecimal in 4.3. It uses names of Spark alone, found when first needed; where one is missing,
 * the executors' gates do without.
 */
final class SchedulerSlots {
    private static final String BACKEND = "org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend";
    private static final String UPDATE =
        "org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages$StatusUpdate";

    private final Object backend;
    private final Method available;
    private final Object endpoint;
    private final Method send;
    private final Constructor<?> update;
    private final Class<?> typeOfCores;
    private final Object finished;
    private final Object nothing;
    private final Object noResources;

    /**
     * @throws ReflectiveOperationException where this Spark is another than those known
     */
    SchedulerSlots(SparkContext context) throws ReflectiveOperationException {
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
        nothing = Class.forName("org.apache.spark.util.SerializableBuffer").getConstructor(ByteBuffer.class)
            .newInstance(ByteBuffer.allocate(0));
        Object maps = Class.forName("scala.collection.immutable.Map$").getField("MODULE$").get(null);
        noResources = maps.getClass().getMethod("empty").invoke(maps);
        typeOfCores = update.getParameterTypes()[4];
        amount(typeOfCores, 0); // fails here rather than later
    }

    /** Whether the master is one that sends tasks to executors: not {@code local[n]}. */
    static boolean has(SparkContext context) throws ReflectiveOperationException {
        Object backend = SparkContext.class.getMethod("schedulerBackend").invoke(context);
        for (Class<?> type = backend == null ? null : backend.getClass(); type != null; type = type.getSuperclass()) {
            if (type.getName().equals(BACKEND)) {
                return true;
            }
        }
        return false;
    }

    /**
     * Whether Spark sends the executor tasks. An executor's plugin begins before that, while Spark counts
     * none of its cores as free; when the executor says that it is ready, it counts all, whatever was
     * told before. False also where all are taken.
     */
    boolean hasFreeCores(String executor) throws ReflectiveOperationException {
        scala.Option<?> cores = (scala.Option<?>) available.invoke(backend, executor);
        return cores.isDefined() && Double.parseDouble(cores.get().toString()) > 0;
    }

    /** So many cores more, or fewer, seem free on the executor. */
    void free(String executor, int cores) throws ReflectiveOperationException {
        send.invoke(endpoint, update.newInstance(executor, -1L, finished, nothing, amount(typeOfCores, cores), noResources));
    }

    /** As the message has it. */
    static Object amount(Class<?> type, int cores) throws ReflectiveOperationException {
        if (type == int.class) {
            return cores;
        }
        // Of Scala's BigDecimal; its class has methods of that name, so that the object's are not static in it.
        Object companion = Class.forName(type.getName() + "$").getField("MODULE$").get(null);
        return companion.getClass().getMethod("apply", int.class).invoke(companion, cores);
    }
}
