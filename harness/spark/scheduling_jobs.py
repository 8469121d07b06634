"""The jobs that `test_spark_scheduling.py` runs inside a real Spark; used like `spark_plugin_jobs.py`."""

import threading
import time

from plugin_jobs import READ, digest, main, session, wait_for_executors
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import DataFrame, SparkSession

NOW = "CAST(java_method('java.lang.System', 'nanoTime') AS BIGINT)"


# On executor 0 a task runs until it is killed, or for two minutes.
SLOW = "IF(split(java_method('org.pellucid.spark.SlowDisk', 'held'), ' ')[0] = '0', 120000, 20)"


def summed(rows: list) -> list:
    """Returns the answer of `digest` for rows that no shuffle summed."""
    return [sum(row.id for row in rows), sum(row.crc for row in rows), len(rows)]


def computed(spark: SparkSession, options: dict, cpus: int | None) -> list:
    """Computes for each file in tasks that take this many cores; returns the answer and the peak of concurrent computes.

    Uses the tasks' own clock, so that neither waiting in the executor nor Spark's work around a task counts.
    """
    wait = READ.format(call="compute", arguments=options["ms"])
    rows = spark.sql(f"SELECT id, crc32(payload) AS crc, {NOW} AS started, {wait} AS waited, {NOW} AS ended FROM parquet.`{options['data']}`")
    if cpus:
        # Only RDDs take a resource profile, and a Python RDD would compute in another process.
        profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus)).build
        limited = rows._jdf.javaRDD().withResources(profile._java_resource_profile)
        rows = DataFrame(spark._jsparkSession.createDataFrame(limited, rows._jdf.schema()), spark)
    found = rows.collect()
    return [summed(found), max(sum(each.started <= row.started < each.ended for each in found) for row in found)]


def profiles(options: dict) -> object:
    """Runs one stage after another on one executor, each with its own profile."""
    spark = session(options["conf"])
    wait_for_executors(spark, 1)
    return [computed(spark, options, cpus) for cpus in options["cpus"]]


def speculate(options: dict) -> object:
    """Runs a scan that warms up both executors, one that executor 0 does not finish, and one more."""
    spark = session(options["conf"])
    wait_for_executors(spark, 2)
    return [digest(spark, options["data"], "read", ms) for ms in ("1", SLOW, "1")]


def decommission(options: dict) -> object:
    """Decommissions executor 1 of two while tasks run on both; scans again when it is gone."""
    spark = session(options["conf"])
    wait_for_executors(spark, 2)
    context = spark.sparkContext
    tracker, backend, jvm = context._jsc.sc().statusTracker(), context._jsc.sc().schedulerBackend(), context._jvm
    result = {}

    def leave() -> None:
        # The tracker lists the driver too, which runs no tasks.
        while sorted(each.numRunningTasks() for each in tracker.getExecutorInfos())[1] < options["tasks"]:
            time.sleep(0.02)
        why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("requested by the test", jvm.scala.Option.empty())
        result["agreed"] = backend.decommissionExecutor("1", why, False, False)
        result["at"] = time.time() * 1000

    thread = threading.Thread(target=leave)
    thread.start()
    # No shuffle: its map output would be lost with the executor and recomputed. Here each task runs once.
    wait = READ.format(call="read", arguments=options["ms"])
    result["answer"] = summed(spark.sql(f"SELECT id, crc32(payload) AS crc, {wait} AS waited FROM parquet.`{options['data']}`").collect())
    thread.join()
    while "1" in backend.getExecutorIds().mkString(" ").split():
        time.sleep(0.05)
    result["again"] = digest(spark, options["data"], "read", "1")
    return result


if __name__ == "__main__":
    main(globals())
