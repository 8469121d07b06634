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

from pyspark.sql import SparkSession

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


def held(spark: SparkSession, executors: int) -> dict:
    """What the plugin of each executor has given out beside the task that asks, by its own metrics.

    Asked until nothing is left on so many executors, since a killed task ends a moment after its job; or for
    a minute, and then it is lost.
    """
    # Tasks that run, that wait, cores, threads in gated I/O, threads that wait for it.
    own = [0, 0, 1, 0, 0] if spark.sparkContext.getConf().get("spark.pellucid.mode") == "monotasks" else [1, 0, 0, 0, 0]
    found, until = {}, time.monotonic() + 60
    while True:
        # One task; the scheduler chooses where.
        rows = spark.sql("SELECT java_method('org.pellucid.spark.SlowDisk', 'held') FROM range(0, 1, 1, 1)").collect()
        executor, *counts, peak = rows[0][0].split()
        left = [max(0, int(count) - of_asking) for count, of_asking in zip(counts, own, strict=True)]
        found[executor] = {"held": left, "peak": int(peak)}
        if sum(not any(each["held"]) for each in found.values()) >= executors or time.monotonic() > until:
            return found


def digest(spark: SparkSession, data: str, call: str, arguments: str) -> list:
    """Reads each file of one row, waiting as `call` says."""
    wait = READ.format(call=call, arguments=arguments)
    # The payload's hash makes Parquet read it.
    rows = f"SELECT id, payload, {wait} AS waited FROM parquet.`{data}`"
    return list(spark.sql(f"SELECT sum(id), sum(crc32(payload)), count(waited) FROM ({rows})").collect()[0])


def tune(options: dict) -> object:
    """A stage that waits; then, as asked, the same again, one that computes, one where the plugin is off, a barrier stage."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    answers = [digest(spark, options["data"], "read", str(options["ms"]))]
    if options.get("again"):
        answers.append(digest(spark, options["data"], "read", str(options["ms"])))
    if options.get("compute"):
        answers.append(digest(spark, options["compute"], "compute", "30"))
    if options.get("off"):
        spark.sql("SET spark.pellucid.mode=off")
        answers.append(digest(spark, options["data"], "read", "1"))
    if options.get("barrier"):
        slots = spark.sparkContext.parallelize(range(options["barrier"]), options["barrier"])
        answers.append(slots.barrier().mapPartitions(lambda rows: [sum(rows)]).sum())
    return answers


def cancel(options: dict) -> object:
    """Cancels a job of which tasks stand at the gate, then runs another."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    context = spark.sparkContext
    failures = []

    def doomed():
        context.setJobGroup("doomed", "to be cancelled", interruptOnCancel=True)
        try:
            digest(spark, options["data"], "read", "60000")
        except Exception as error:
            failures.append("cancel" in str(error).lower())

    thread = threading.Thread(target=doomed)
    thread.start()
    tracker = context.statusTracker()
    while sum(tracker.getStageInfo(s).numActiveTasks for s in tracker.getActiveStageIds()) < 3:
        time.sleep(0.05)
    context.cancelJobGroup("doomed")
    thread.join()
    return [failures, digest(spark, options["data"], "read", "1")]


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
    """Says when tasks run on all executors, and never ends by itself."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    tracker = spark.sparkContext.statusTracker()

    def watch():
        while sum(tracker.getStageInfo(s).numActiveTasks for s in tracker.getActiveStageIds()) < 4:
            time.sleep(0.05)
        print("running", flush=True)

    threading.Thread(target=watch, daemon=True).start()
    digest(spark, options["data"], "read", "600000")


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
    """Writes more than a small disk takes, then reads, under each configuration."""
    answers = {}
    for name, conf in options["each"].items():
        spark = session({**options["conf"], **conf})
        said = ""
        try:
            spark.range(400_000).selectExpr("sha2(CAST(id AS STRING), 256)").write.text(options["small"] + "/out")
        except Exception as error:
            said = str(error)
        answers[name] = {"said": said, "answer": digest(spark, options["data"], "read", "0"), "held": held(spark, 1)}
        spark.stop()
        shutil.rmtree(options["small"] + "/out", ignore_errors=True)
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


if __name__ == "__main__":
    job, text = sys.argv[1:]
    options = json.loads(text)
    said = {"answer": globals()[job](options)}
    active = SparkSession.getActiveSession()
    if active:
        if options["conf"].get("spark.plugins"):
            said["held"] = held(active, options.get("executors", 1))
        active.stop()
    print(json.dumps(said))
