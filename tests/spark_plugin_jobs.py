"""What `test_spark_plugin.py` runs inside a real Spark: `python spark_plugin_jobs.py JOB OPTIONS`.

OPTIONS is JSON: `conf` (Spark's) and whatever the job takes. The last line on stdout is the
job's answer as JSON, with what the plugin still held when it had ended; the session's master and
plugin are in `conf` as for any application.
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
    """One session with the configuration of the options."""
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """Until so many executors are there: a stage that begins before would run on fewer."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) - 1 < count:
        time.sleep(0.05)


# Leaves to run, tasks at the gate, cores, threads in gated I/O, threads that wait for it.
GIVEN = ("tasks.running", "tasks.waiting", "cores.held", "disk.running", "disk.waiting")


def given(spark: SparkSession) -> tuple[str, dict]:
    """An executor, and what its plugin has given out beside the task that asks, by its own metrics."""
    # One task; the scheduler chooses where.
    rows = spark.sql("SELECT java_method('org.pellucid.spark.SlowDisk', 'held') FROM range(0, 1, 1, 1)").collect()
    executor, *said = rows[0][0].split()
    gauges = {name: int(value) for name, value in (each.split("=") for each in said)}
    counts = {name: gauges.get(name, 0) for name in GIVEN}
    # A plugin that is off has given the asking task nothing.
    if gauges.get("off") == 0:
        mode = spark.sparkContext.getConf().get("spark.pellucid.mode", "measure")
        own = {"adaptive": "tasks.running", "monotasks": "cores.held"}.get(mode)
        if own:
            counts[own] -= 1
    return executor, {"held": counts, "off": gauges.get("off"), "peak": gauges.get("disk.peak", 0)}


def held(spark: SparkSession, executors: int) -> dict:
    """What the plugin of each executor has given out beside the task that asks.

    Asked until nothing is left on so many executors, since a killed task ends a moment after its job; or for
    a minute, and then it is lost.
    """
    found, until = {}, time.monotonic() + 60
    while True:
        executor, found[executor] = given(spark)
        if sum(not any(each["held"].values()) for each in found.values()) >= executors or time.monotonic() > until:
            return found


def counted(spark: SparkSession) -> list[int]:
    """By what lies beneath the plugin on the only executor: the most accesses at once since this was asked last, and how many."""
    rows = spark.sql("SELECT java_method('org.pellucid.spark.SlowFiles', 'counted') FROM range(0, 1, 1, 1)").collect()
    return [int(count) for count in rows[0][0].split()]


def write(spark: SparkSession, options: dict) -> None:
    """Reads the files and writes their rows, each task a file."""
    spark.read.parquet(options["data"]).write.mode("overwrite").parquet(options["out"])


def scan(spark: SparkSession, data: str, call: str, arguments: str) -> DataFrame:
    """Of each file of one row, waiting as `call` says. A task has looked at a file's columns when this returns."""
    wait = READ.format(call=call, arguments=arguments)
    # The payload's hash makes Parquet read it.
    rows = f"SELECT id, payload, {wait} AS waited FROM parquet.`{data}`"
    return spark.sql(f"SELECT sum(id), sum(crc32(payload)), count(waited) FROM ({rows})")


def digest(spark: SparkSession, data: str, call: str, arguments: str) -> list:
    """Reads each file of one row, waiting as `call` says."""
    return list(scan(spark, data, call, arguments).collect()[0])


def tune(options: dict) -> object:
    """A stage that waits, and what was counted beneath it; then, as asked, the same again, one that computes, one that writes, one where the plugin is off, a barrier stage."""
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
    """A scan, one for which the plugin is off, and one for which it is on again; with what was counted beneath it."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    said = []
    for statement in (None, "SET spark.pellucid.mode=off", "RESET spark.pellucid.mode"):
        if statement:
            spark.sql(statement)
        answer = digest(spark, options["data"], "read", str(options["ms"]))
        said.append([answer, *counted(spark)])
    return said


def fail(options: dict) -> object:
    """A scan, a write in which the plugin fails, and a scan without it."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    first = digest(spark, options["data"], "read", str(options["ms"]))
    write(spark, options)
    return [first, digest(spark, options["data"], "read", str(options["ms"]))]


def wait_for_permits(options: dict) -> None:
    """Until so many threads are in accesses that are held."""
    while len(list(Path(options["hold"]).iterdir())) < options["permits"]:
        time.sleep(0.05)


def cancel(options: dict) -> object:
    """Cancels a job of which tasks stand at the gate, or are held in reads or writes with others in the disk's queue; then runs another."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    context = spark.sparkContext
    inside = Path(options["hold"]) if "hold" in options else None
    failures = []
    rows = scan(spark, options["data"], "read", "0" if inside else "60000")

    def doomed():
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
    said = {}
    if inside:
        wait_for_permits(options)
        time.sleep(0.5)  # if more could come in, they would by now
        said["inside"] = len(list(inside.iterdir()))
    context.cancelJobGroup("doomed")
    thread.join()
    said["failures"] = failures
    if inside and "out" not in options:
        # Those in the queue leave, though those before them still hold the disk. (Of a write they then write, as without
        # the plugin, since a task looks whether it was killed before and after.)
        until = time.monotonic() + 60
        while (left := given(spark)[1]["held"])["disk.waiting"] and time.monotonic() < until:
            time.sleep(0.05)
        said["left"] = left
    if inside:
        inside.rename(inside.with_name("released"))  # at once, for all
    return {**said, "answer": digest(spark, options["data"], "read", "1")}


def lose(options: dict) -> object:
    """An executor dies in the middle of a stage."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    return digest(spark, options["data"], "dieOnce", f"'{options['mark']}', 20")


def elastic(options: dict) -> object:
    """Two scans, after each of which only one executor is left; then the same in micro-batches."""
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
    """Says when tasks run on all executors, and are in reads where these are held; never ends by itself."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    tracker = spark.sparkContext.statusTracker()
    rows = scan(spark, options["data"], "read", "600000")

    def watch():
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
    """One application after another in one process: a sort, a write and a failing task under each configuration."""
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
    """Under each configuration, writes more than a small disk takes, then reads; and, in another application, shuffles as much by way of it."""
    answers = {}
    for name, conf in options["each"].items():
        said, left = [], []
        for target, more in ((options["small"] + "/out", {}), (options["out"], {"spark.local.dir": options["small"]})):
            spark = session({**options["conf"], **conf, **more})
            rows = spark.range(400_000).selectExpr("sha2(CAST(id AS STRING), 256)")
            try:
                (rows.repartition(8) if more else rows).write.mode("overwrite").text(target)
            except Exception as error:
                said.append(str(error))
            if not more:
                answer = digest(spark, options["data"], "read", "0")
            left.append(held(spark, 1))
            spark.stop()
            shutil.rmtree(target, ignore_errors=True)
        answers[name] = {"said": said, "answer": answer, "held": left}
    return answers


def queries(options: dict) -> object:
    """TPC-H's texts over tables, and the longest table in a total order, written."""
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
    """Reads a table of one disk and sums it up, each file once."""
    spark = session(options["conf"])
    return list(spark.sql(options["text"]).collect()[0])


def main(jobs: dict) -> None:
    """Runs the one of them that the command line names."""
    job, text = sys.argv[1:]
    options = json.loads(text)
    said = {"answer": jobs[job](options)}
    active = SparkSession.getActiveSession()
    if active:
        if options["conf"].get("spark.plugins"):
            said["held"] = held(active, options.get("executors", 1))
        active.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main(globals())
