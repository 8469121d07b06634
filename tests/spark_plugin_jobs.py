"""What `test_spark_plugin.py` runs inside a real Spark: `python spark_plugin_jobs.py JOB OPTIONS`.

OPTIONS is JSON: `conf` (Spark's) and whatever the job takes. The last line on stdout is the
job's answer as JSON; the session's master and plugin are in `conf` as for any application.
"""

import json
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


def digest(spark: SparkSession, data: str, call: str, arguments: str) -> list:
    """Reads each file of one row, waiting as `call` says."""
    wait = READ.format(call=call, arguments=arguments)
    # The payload's hash makes Parquet read it.
    rows = f"SELECT id, payload, {wait} AS waited FROM parquet.`{data}`"
    return list(spark.sql(f"SELECT sum(id), sum(crc32(payload)), count(waited) FROM ({rows})").collect()[0])


def tune(options: dict) -> object:
    """A stage that waits; then one of a job where the plugin is off; then a barrier stage."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    answers = [digest(spark, options["data"], "read", str(options["ms"]))]
    if options.get("again"):
        answers.append(digest(spark, options["data"], "read", str(options["ms"])))
    if options.get("off"):
        spark.sql("SET spark.pellucid.mode=off")
        answers.append(digest(spark, options["data"], "read", "1"))
    if options.get("barrier"):
        slots = spark.sparkContext.parallelize(range(options["barrier"]), options["barrier"])
        answers.append(slots.barrier().mapPartitions(lambda rows: [sum(rows)]).sum())
    return answers


def compute(options: dict) -> object:
    """Tasks that only compute."""
    spark = session(options["conf"])
    wait_for_executors(spark, options["executors"])
    return digest(spark, options["data"], "compute", "30")


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


def several(options: dict) -> object:
    """One application after another in one process: a sort and a write under each configuration."""
    answers = {}
    for name, conf in options["each"].items():
        spark = session({**options["conf"], **conf})
        out = f"{options['data']}/out-{name}"
        rows = spark.read.parquet(options["data"] + "/rows")
        rows.repartition(8).sortWithinPartitions("k").write.mode("overwrite").parquet(out)
        total = spark.read.parquet(out).selectExpr("count(*)", "sum(id)", "sum(crc32(v))").collect()[0]
        answers[name] = [list(total), digest(spark, options["data"] + "/slow", "read", "0")]
        spark.stop()
    return answers


def queries(options: dict) -> object:
    """TPC-H's texts over tables, and a total order of the longest."""
    spark = session(options["conf"])
    for table, path in options["tables"].items():
        spark.read.parquet(path).createOrReplaceTempView(table)
    answers = {}
    for name, text in options["texts"].items():
        answers[name] = sorted(str(list(row)) for row in spark.sql(text).collect())
    ordered = spark.sql("SELECT l_orderkey, l_linenumber, l_comment FROM lineitem ORDER BY l_extendedprice, 1, 2")
    sums = ordered.rdd.zipWithIndex().map(lambda pair: hash((pair[1], str(pair[0][2]))) % 1_000_003).sum()
    answers["sort"] = [str(sums)]
    return answers


def read(options: dict) -> object:
    """Reads a table of one disk and sums it up, each file once."""
    spark = session(options["conf"])
    return list(spark.sql(options["text"]).collect()[0])


if __name__ == "__main__":
    job, text = sys.argv[1:]
    answer = globals()[job](json.loads(text))
    active = SparkSession.getActiveSession()
    if active:
        active.stop()
    print(json.dumps(answer))
