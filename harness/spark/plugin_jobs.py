"""The jobs that `test_spark_plugin.py` runs inside a real Spark: `python spark_plugin_jobs.py JOB OPTIONS`.

OPTIONS is JSON: `conf` (Spark's settings) and the job's own options. As in any application, `conf` sets the master and
the plugin. The last line on stdout is JSON: the job's answer, and the permits that the plugin still held after it.
"""

import json
import shutil
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

READ = "java_method('org.pellucid.spark.SlowDisk', '{call}', {arguments})"


def session(conf: dict) -> SparkSession:
    """Starts a session with the configuration of the options."""
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """Waits until this many executors have registered: a stage that starts earlier would run on fewer."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) - 1 < count:
        time.sleep(0.05)


# Running tasks, tasks at the gate, cores, threads in gated I/O, threads that wait for it.
GIVEN = ("tasks.running", "tasks.waiting", "cores.held", "disk.running", "disk.waiting")


def given(spark: SparkSession) -> tuple[str, dict]:
    """Returns an executor and the permits that its plugin holds, without those of the task that asks, by its metrics."""
    # One task; the scheduler chooses the executor.
    rows = spark.sql("SELECT java_method('org.pellucid.spark.SlowDisk', 'held') FROM range(0, 1, 1, 1)").collect()
    executor, *gauge_texts = rows[0][0].split()
    gauges = {name: int(value) for name, value in (each.split("=") for each in gauge_texts)}
    counts = {name: gauges.get(name, 0) for name in GIVEN}
    # If the plugin is off, the task that asks holds no permit.
    if gauges.get("off") == 0:
        mode = spark.sparkContext.getConf().get("spark.pellucid.mode", "measure")
        own = {"adaptive": "tasks.running", "monotasks": "cores.held"}.get(mode)
        if own:
            counts[own] -= 1
    return executor, {"held": counts, "off": gauges.get("off"), "peak": gauges.get("disk.peak", 0)}


def held(spark: SparkSession, executors: int) -> dict:
    """Returns the permits that each executor's plugin holds, without those of the task that asks.

    Repeats for up to a minute until this many executors hold nothing, because a killed task ends shortly after its job.
    """
    found, deadline = {}, time.monotonic() + 60
    while True:
        executor, found[executor] = given(spark)
        if sum(not any(each["held"].values()) for each in found.values()) >= executors or time.monotonic() > deadline:
            return found


def counted(spark: SparkSession) -> list[int]:
    """Returns the peak of concurrent accesses since the last call, and their number, as counted beneath the plugin."""
    rows = spark.sql("SELECT java_method('org.pellucid.spark.SlowFiles', 'counted') FROM range(0, 1, 1, 1)").collect()
    return [int(count) for count in rows[0][0].split()]


def write(spark: SparkSession, options: dict) -> None:
    """Reads the files and writes their rows, one task for each file."""
    spark.read.parquet(options["data"]).write.mode("overwrite").parquet(options["out"])


def scan(spark: SparkSession, data: str, call: str, arguments: str) -> DataFrame:
    """Plans a read of each one-row file that waits as `call` says. Spark has read the files' schemas when this returns."""
    wait = READ.format(call=call, arguments=arguments)
    # The payload's hash forces Parquet to read it.
    rows = f"SELECT id, payload, {wait} AS waited FROM parquet.`{data}`"
    return spark.sql(f"SELECT sum(id), sum(crc32(payload)), count(waited) FROM ({rows})")


def digest(spark: SparkSession, data: str, call: str, arguments: str) -> list:
    """Reads each one-row file, waiting as `call` says."""
    return list(scan(spark, data, call, arguments).collect()[0])


def tune(options: dict) -> object:
    """Runs a stage that waits and returns the counts beneath it.

    Then, if the options say so: the same again, a stage that computes, one that writes, one with the plugin off, and a
    barrier stage.
    """
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    answers = [digest(spark, options["data"], "read", str(options["ms"]))]
    if options.get("counted"):
        answers.append(counted(spark))
    if options.get("again"):
        answers.append(digest(spark, options["data"], "read", str(options["ms"])))
    if options.get("compute"):
        answers.append(digest(spark, options["compute"], "compute", "30"))
    if options.get("out"):
        write(spark, options)
    if options.get("off"):
        spark.sql("SET spark.pellucid.mode=off")
        answers.append(digest(spark, options["data"], "read", "1"))
    if options.get("barrier"):
        slots = spark.sparkContext.parallelize(range(options["barrier"]), options["barrier"])
        answers.append(slots.barrier().mapPartitions(lambda rows: [sum(rows)]).sum())
    return answers


def switch(options: dict) -> object:
    """Scans with the plugin on, off, and on again; returns the answers and the counts beneath them."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    results = []
    for statement in (None, "SET spark.pellucid.mode=off", "RESET spark.pellucid.mode"):
        if statement:
            spark.sql(statement)
        answer = digest(spark, options["data"], "read", str(options["ms"]))
        results.append([answer, *counted(spark)])
    return results


def fail(options: dict) -> object:
    """Runs a scan, a write in which the plugin fails, and a scan without it."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    first = digest(spark, options["data"], "read", str(options["ms"]))
    write(spark, options)
    return [first, digest(spark, options["data"], "read", str(options["ms"]))]


def wait_for_permits(options: dict) -> None:
    """Waits until this many threads are in held accesses."""
    while len(list(Path(options["hold"]).iterdir())) < options["permits"]:
        time.sleep(0.05)


def cancel(options: dict) -> object:
    """Cancels a job whose tasks are at the gate or in held accesses while others queue; then runs another job."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    context = spark.sparkContext
    inside = Path(options["hold"]) if "hold" in options else None
    failures = []
    rows = scan(spark, options["data"], "read", "0" if inside else "60000")

    def doomed() -> None:
        context.setJobGroup("doomed", "to be cancelled", interruptOnCancel=True)
        try:
            if "out" in options:
                write(spark, options)
            else:
                rows.collect()
        except Exception as error:
            failures.append("cancel" in str(error).lower())

    if inside:
        inside.mkdir()
    thread = threading.Thread(target=doomed)
    thread.start()
    tracker = context.statusTracker()
    while sum(tracker.getStageInfo(s).numActiveTasks for s in tracker.getActiveStageIds()) < options["tasks"]:
        time.sleep(0.05)
    result: dict[str, object] = {}
    if inside:
        wait_for_permits(options)
        time.sleep(0.5)  # further threads would have entered by now
        result["inside"] = len(list(inside.iterdir()))
    context.cancelJobGroup("doomed")
    thread.join()
    result["failures"] = failures
    if inside and "out" not in options:
        # Queued tasks leave although running ones still hold the disk. (Of a write, they then write, as without the
        # plugin: a task checks whether it was killed only before and after.)
        deadline = time.monotonic() + 60
        while (left := given(spark)[1]["held"])["disk.waiting"] and time.monotonic() < deadline:
            time.sleep(0.05)
        result["left"] = left
    if inside:
        inside.rename(inside.with_name("released"))  # releases all waiters at once
    return {**result, "answer": digest(spark, options["data"], "read", "1")}


def lose(options: dict) -> object:
    """Runs a stage in which an executor dies."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    return digest(spark, options["data"], "dieOnce", f"'{options['mark']}', 20")


def elastic(options: dict) -> object:
    """Runs two scans, waits after each until only one executor is left, and then scans in micro-batches."""
    spark = session(options["conf"])
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    answers = []
    for _ in range(2):
        answers.append(digest(spark, options["data"], "read", "100"))
        while len(tracker.getExecutorInfos()) > 2:
            time.sleep(0.05)
    files = spark.readStream.schema(spark.read.parquet(options["data"]).schema).option("maxFilesPerTrigger", options["batch"])
    wait = READ.format(call="read", arguments="10")
    rows = files.parquet(options["data"]).selectExpr("id", "crc32(payload) AS crc", f"{wait} AS waited")
    rows.createOrReplaceTempView("arriving")
    sums = spark.sql("SELECT sum(id), sum(crc), count(waited) FROM arriving")
    query = sums.writeStream.outputMode("complete").format("memory").queryName("streamed").trigger(availableNow=True).start()
    query.awaitTermination()
    answers.append(list(spark.table("streamed").collect()[0]))
    return {"answers": answers, "batches": len(query.recentProgress)}


def hang(options: dict) -> None:
    """Prints `running` when tasks run on all executors (and are in held reads, if any); never ends by itself."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    tracker = spark.sparkContext.statusTracker()
    rows = scan(spark, options["data"], "read", "600000")

    def watch() -> None:
        while sum(tracker.getStageInfo(s).numActiveTasks for s in tracker.getActiveStageIds()) < options["tasks"]:
            time.sleep(0.05)
        if "hold" in options:
            wait_for_permits(options)
        print("running", flush=True)

    if "hold" in options:
        Path(options["hold"]).mkdir()
    threading.Thread(target=watch, daemon=True).start()
    rows.collect()


def several(options: dict) -> object:
    """Runs one application after another in one process: a sort, a write and a failing task in each configuration."""
    answers = {}
    for name, conf in options["each"].items():
        spark = session({**options["conf"], **conf})
        out = f"{options['data']}/out-{name}"
        rows = spark.read.parquet(options["data"] + "/rows")
        rows.repartition(8).sortWithinPartitions("k").write.mode("overwrite").parquet(out)
        total = spark.read.parquet(out).selectExpr("count(*)", "sum(id)", "sum(crc32(v))").collect()[0]
        again = digest(spark, options["data"] + "/slow", "failOnce", f"'{out}-failed', 0")
        answers[name] = {"answer": [list(total), again], "held": held(spark, 1)}
        spark.stop()
    return answers


def fill(options: dict) -> object:
    """Writes more than a small disk holds, then reads; then shuffles as much through it, in another application."""
    answers = {}
    for name, conf in options["each"].items():
        errors, left = [], []
        for target, more in ((options["small"] + "/out", {}), (options["out"], {"spark.local.dir": options["small"]})):
            spark = session({**options["conf"], **conf, **more})
            rows = spark.range(400_000).selectExpr("sha2(CAST(id AS STRING), 256)")
            try:
                (rows.repartition(8) if more else rows).write.mode("overwrite").text(target)
            except Exception as error:
                errors.append(str(error))
            if not more:
                answer = digest(spark, options["data"], "read", "0")
            left.append(held(spark, 1))
            spark.stop()
            shutil.rmtree(target, ignore_errors=True)
        answers[name] = {"errors": errors, "answer": answer, "held": left}
    return answers


def queries(options: dict) -> object:
    """Runs TPC-H's queries over tables, and writes the longest table in a total order."""
    import sqlglot

    spark = session(options["conf"])
    for table, path in options["tables"].items():
        spark.read.parquet(path).createOrReplaceTempView(table)
    answers = {}
    for name, text in options["texts"].items():
        (translated,) = sqlglot.transpile(text, read="duckdb", write="spark")
        answers[name] = sorted(str(list(row)) for row in spark.sql(translated).collect())
    keys = "l_extendedprice, l_orderkey, l_linenumber"
    spark.sql(f"SELECT {keys}, l_comment FROM lineitem ORDER BY {keys}").write.parquet(options["sorted"])
    return answers


def read(options: dict) -> object:
    """Runs one query and returns its row."""
    spark = session(options["conf"])
    return list(spark.sql(options["text"]).collect()[0])


def main(jobs: dict) -> None:
    """Runs the job that the command line names."""
    job, text = sys.argv[1:]
    options = json.loads(text)
    result = {"answer": jobs[job](options)}
    active = SparkSession.getActiveSession()
    if active:
        if options["conf"].get("spark.plugins"):
            result["held"] = held(active, options.get("executors", 1))
        active.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main(globals())
