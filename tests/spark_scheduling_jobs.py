"""What `test_spark_scheduling.py` runs inside a real Spark, as `spark_plugin_jobs.py` does for `test_spark_plugin.py`."""

import threading
import time

from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import DataFrame, SparkSession

from spark_plugin_jobs import READ, digest, main, session, wait_for_executors

NOW = "CAST(java_method('java.lang.System', 'nanoTime') AS BIGINT)"


# On executor 0 a task stays until it is killed, or for two minutes.
SLOW = "IF(split(java_method('org.pellucid.spark.SlowDisk', 'held'), ' ')[0] = '0', 120000, 20)"


def summed(rows: list) -> list:
    """What `digest` answers, of rows that no shuffle summed up."""
    return [sum(row.id for row in rows), sum(row.crc for row in rows), len(rows)]


def computed(spark: SparkSession, options: dict, cpus: int | None) -> list:
    """Computes for each file, as a task that takes so many cores, or as many as others: its answer, and the most that computed at once.

    By the tasks' own clock, so that neither waiting in the executor nor what Spark does around a task counts.
    """
    wait = READ.format(call="compute", arguments=options["ms"])
    rows = spark.sql(f"SELECT id, crc32(payload) AS crc, {NOW} AS begun, {wait} AS waited, {NOW} AS ended FROM parquet.`{options['data']}`")
    if cpus:
        # Only RDDs take a profile, and one of Python's would compute in another process.
        profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus)).build
        limited = rows._jdf.javaRDD().withResources(profile._java_resource_profile)
        rows = DataFrame(spark._jsparkSession.createDataFrame(limited, rows._jdf.schema()), spark)
    found = rows.collect()
    return [summed(found), max(sum(each.begun <= row.begun < each.ended for each in found) for row in found)]


def profiles(options: dict) -> object:
    """One stage after another on one executor, each with its own profile."""
    spark = session(options["conf"])
    wait_for_executors(spark, 1)
    return [computed(spark, options, cpus) for cpus in options["cpus"]]


def speculate(options: dict) -> object:
    """A scan that warms both executors up, one that executor 0 does not end, and one after."""
    spark = session(options["conf"])
    wait_for_executors(spark, 2)
    return [digest(spark, options["data"], "read", ms) for ms in ("1", SLOW, "1")]


def decommission(options: dict) -> object:
    """Decommissions executor 1 of two while tasks run on both; when it is gone, a scan without it."""
    spark = session(options["conf"])
    wait_for_executors(spark, 2)
    context = spark.sparkContext
    tracker, backend, jvm = context._jsc.sc().statusTracker(), context._jsc.sc().schedulerBackend(), context._jvm
    said = {}

    def leave():
        # The driver is one of those that are asked, and runs none.
        while sorted(each.numRunningTasks() for each in tracker.getExecutorInfos())[1] < options["tasks"]:
            time.sleep(0.02)
        why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("asked for", jvm.scala.Option.empty())
        said["agreed"] = backend.decommissionExecutor("1", why, False, False)
        said["at"] = time.time() * 1000

    thread = threading.Thread(target=leave)
    thread.start()
    # No shuffle, whose map output would be lost with the executor and made again: each task runs once.
    wait = READ.format(call="read", arguments=options["ms"])
    said["answer"] = summed(spark.sql(f"SELECT id, crc32(payload) AS crc, {wait} AS waited FROM parquet.`{options['data']}`").collect())
    thread.join()
    while "1" in backend.getExecutorIds().mkString(" ").split():
        time.sleep(0.05)
    said["again"] = digest(spark, options["data"], "read", "1")
    return said


if __name__ == "__main__":
    main(globals())
