"""Runs Spark applications that are slow for one known cause each, and keeps their event logs.

Run by a Python that has PySpark (written for 3.5 and 4.x), with Java 17:

    PYTHON lab/spark_logs.py FOLDER [CAUSE…] [--size small|large] [--codec zstd|lz4|lzf|snappy|none]
                             [--rolling] [--input TEXT] [--cores N] [--name NAME] [--raw]

`small` runs in seconds, for logs small enough to be kept with tests. `large` makes jobs of two to
fifteen seconds, for which `pellucid analyze` must name the cause. `disk` and `words` read the text at
`--input`, which should be on a disk of known rate (`lab/disks.py`). Each log becomes
`FOLDER/NAME-CAUSE…`. A line in `FOLDER/made.tsv` gives its cause and how many tasks, stages, jobs and
SQL executions ended or started in it, counted from the text of the log. `--raw` runs one application
and keeps the name that Spark gave its log. Logs do not identify the machine: paths and host are
renamed, and of the environment only Spark's settings are kept.
"""

import argparse
import collections
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COUNTED = (
    "SparkListenerTaskEnd",
    "SparkListenerStageCompleted",
    "SparkListenerJobStart",
    "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
)


def hashed(column: Any, times: int) -> Any:
    """Hashes the column `times` times, which costs half a microsecond of a core each time and no I/O."""
    from pyspark.sql import functions as f

    column = column.cast("string")
    for _ in range(times):
        column = f.sha2(column, 256)
    return column


def cpu(spark: Any, size: int, __: str) -> None:
    """Hashes in equal tasks, so that only more cores help."""
    from pyspark.sql import functions as f

    for _ in range(2):  # the first is the warm-up
        spark.range(0, 60_000 * size, numPartitions=16).select(f.max(hashed(f.col("id"), 4))).collect()


def keyed(spark: Any, size: int, key: Any) -> None:
    """Shuffles rows by a key, then does equal work per row."""
    from pyspark.sql import functions as f

    rows = spark.range(0, 60_000 * size, numPartitions=8).select(key.alias("key"), f.col("id").alias("v"))
    rows.repartition(16, "key").select(f.max(hashed(f.col("v"), 6))).collect()


def skew(spark: Any, size: int, _: str) -> None:
    """Gives key 0 60 % of the rows."""
    from pyspark.sql import functions as f

    spark.conf.set("spark.sql.adaptive.enabled", "false")
    keyed(spark, size, f.when(f.col("id") % 10 < 6, 0).otherwise(f.col("id") % 1000))


def skew_adaptive(spark: Any, size: int, _: str) -> None:
    """Like `skew`, with adaptive execution, which runs the shuffle as its own job."""
    from pyspark.sql import functions as f

    spark.conf.set("spark.sql.adaptive.enabled", "true")
    keyed(spark, size, f.when(f.col("id") % 10 < 6, 0).otherwise(f.col("id") % 1000))


def even(spark: Any, size: int, _: str) -> None:
    """Like `skew`, but all keys have equally many rows."""
    from pyspark.sql import functions as f

    spark.conf.set("spark.sql.adaptive.enabled", "false")
    keyed(spark, size, f.col("id") % 10_000)


def failure(spark: Any, size: int, _: str) -> None:
    """Fails two partitions at their first attempt, and a later job for good."""
    from pyspark import TaskContext

    slow = 0.02 * size

    def first_attempt_fails(partition: int, rows: Any) -> Any:
        time.sleep(slow)
        if partition in (3, 5) and TaskContext.get().attemptNumber() == 0:
            raise ValueError(f"partition {partition} fails once")
        return rows

    def always_fails(partition: int, rows: Any) -> Any:
        if partition == 2:
            raise ValueError("partition 2 always fails")
        return rows

    rows = spark.sparkContext.parallelize(range(80), 8)
    rows.mapPartitionsWithIndex(first_attempt_fails).map(lambda n: (n % 4, n)).reduceByKey(lambda a, b: a + b).collect()
    try:
        rows.mapPartitionsWithIndex(always_fails).count()
    except Exception as error:  # the type differs by Spark version
        print("failed as intended:", str(error)[:60].replace("\n", " "))


def straggler(spark: Any, size: int, _: str) -> None:
    """Lets partition 15 sleep twenty times as long as the others, with neither more data nor more work."""
    slow = 0.1 * size

    def sleeps(partition: int, rows: Any) -> Any:
        time.sleep(slow if partition == 15 else slow / 20)
        return rows

    spark.sparkContext.parallelize(range(800), 16).mapPartitionsWithIndex(sleeps).count()


def scheduling(spark: Any, size: int, __: str) -> None:
    """Runs thousands of tasks of a millisecond."""
    from pyspark.sql import functions as f

    for _ in range(2):
        spark.range(0, 1000, numPartitions=8 + 50 * size).select(f.max("id")).collect()


def gc(spark: Any, size: int, _: str) -> None:
    """Collects long lists of small objects in a small heap."""
    from pyspark.sql import functions as f

    spark.conf.set("spark.sql.shuffle.partitions", "4")
    rows = spark.range(0, 50_000 * size, numPartitions=8).select((f.col("id") % 7).alias("k"), f.uuid().alias("v"))
    rows.groupBy("k").agg(f.collect_list("v").alias("vs")).select(f.sum(f.size("vs"))).collect()


def disk(spark: Any, _: int, text: str) -> None:
    """Scans text, limited by its disk."""
    spark.read.text(text).selectExpr("sum(length(value))").collect()


def words(spark: Any, _: int, text: str) -> None:
    """Scans and hashes text, so that cores have about as much to do as the disk."""
    from pyspark.sql import functions as f

    spark.read.text(text).select(f.max(hashed(f.col("value"), 2))).collect()


def stream(spark: Any, size: int, _: str) -> None:
    """Runs micro-batches that are mostly overhead."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    counts = rows.selectExpr("value % 3 AS k").groupBy("k").count()
    query = counts.writeStream.outputMode("complete").format("noop").trigger(processingTime="1 second").start()

    def batches() -> int:
        # The first batch has no rows and runs nothing.
        return sum(any(source["numInputRows"] for source in progress["sources"]) for progress in query.recentProgress)

    while batches() < 2 + size // 6 and query.exception() is None:
        time.sleep(0.2)
    query.stop()


def none(spark: Any, size: int, _: str) -> None:
    """Spreads even work over all cores, so that nothing is slow."""
    from pyspark.sql import functions as f

    rows = spark.range(0, 20_000 * size, numPartitions=8).select((f.col("id") % 100).alias("k"), hashed(f.col("id"), 4).alias("v"))
    rows.groupBy("k").agg(f.max("v")).collect()


CAUSES = (cpu, skew, skew_adaptive, even, failure, straggler, scheduling, gc, disk, words, stream, none)
NAMES = [work.__name__.replace("_", "-") for work in CAUSES]
READS = ("disk", "words")
SIZES = {"small": 1, "large": 60}
MEMORY = {"gc": "600m"}


def run_application(cause: str, chosen: argparse.Namespace) -> None:
    """Runs one application in this process, since a JVM runs only one."""
    from pyspark.sql import SparkSession

    master = f"local[{chosen.cores},4]" if cause == "failure" else f"local[{chosen.cores}]"
    builder = SparkSession.builder.master(master)
    options = {
        "spark.app.name": f"{chosen.name}-{cause}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": MEMORY.get(cause, "2g") if chosen.size == "large" else "1g",
        # Fixed, because a JVM chooses its collector by the number of cores.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.files.maxPartitionBytes": "32m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(chosen.folder).resolve().as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": str(chosen.rolling).lower(),
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    CAUSES[NAMES.index(cause)](spark, SIZES[chosen.size], chosen.input)
    gateway = spark.sparkContext._gateway
    spark.stop()
    # The JVM exits when its input ends. Wait for it, so that its CPU time counts as this process's.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def renamed(line: str, names: dict[str, str]) -> str:
    """Returns a log line with machine-specific names replaced, and those of `names` too."""
    # The interpreter may be a symbolic link; Spark logs either path.
    pythons = dict.fromkeys((sys.prefix, str(Path(sys.prefix).resolve())), "/python")
    names = {**pythons, str(Path.home()): "/home", socket.gethostname(): "host", **names}
    for name in sorted(names, key=len, reverse=True):
        line = line.replace(name, names[name])
    return line


def cleaned(log: Path, names: dict[str, str]) -> None:
    """Removes machine-specific data from a log and renames these paths."""
    lines = []
    for line in log.read_text().splitlines():
        if '"SparkListenerEnvironmentUpdate"' in line[:100]:
            event = json.loads(line)
            kept = ("Event", "Spark Properties")
            event = {key: value if key in kept else [] if isinstance(value, list) else {} for key, value in event.items()}
            line = json.dumps(event, separators=(",", ":"))
        lines.append(renamed(line, names) + "\n")
    log.write_text("".join(lines))


def clean(log: Path, chosen: argparse.Namespace) -> None:
    """Cleans the log of an application of this program."""
    names = {str(Path(__file__).resolve().parents[1]): "", str(Path(chosen.folder).resolve()): "/logs"}
    if chosen.input:
        names[str(Path(chosen.input).resolve().parent)] = "/data"
    cleaned(log, names)


def counts_of(files: list[Path]) -> list[int]:
    """Counts the events of a plain log by name."""
    found: collections.Counter[str] = collections.Counter()
    for file in files:
        with open(file) as lines:
            found.update(json.loads(line)["Event"] for line in lines)
    return [found[name] for name in COUNTED]


def parts_of(log: Path) -> list[Path]:
    """Returns the files of a log that hold events."""
    if log.is_file():
        return [log]
    return sorted(log.glob("events_*"), key=lambda part: int(part.name.split("_")[1]))


def make_log(cause: str, options: list[str], chosen: argparse.Namespace) -> None:
    """Runs one application, counts its events, and lets Spark compress its log.

    Counting a compressed log would need the decoder under test. So the log is written plain,
    counted, and then sent through the stream with which Spark compresses its logs.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, folder, cause, *options, "--raw"], check=True, timeout=900)
        (log,) = [path for path in Path(folder).iterdir() if not path.name.startswith(".")]
        counts = counts_of(parts_of(log))
        ending = "" if chosen.codec == "none" else f".{chosen.codec}"
        if ending:
            for part in parts_of(log):
                compress(part, part.with_name(part.name + ending), chosen.codec)
                part.unlink()
        name = f"{chosen.name}-{cause}"
        if log.is_dir():
            target = Path(chosen.folder) / f"eventlog_v2_{name}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(log, target, ignore=shutil.ignore_patterns(".*"))
        else:
            (source,) = [path for path in Path(folder).iterdir() if not path.name.startswith(".")]
            target = Path(chosen.folder) / f"{name}{ending}"
            shutil.copyfile(source, target)
    with open(Path(chosen.folder) / "made.tsv", "a") as table:
        print(target.name, cause, *counts, sep="\t", file=table)


def compress(source: Path, target: Path, codec: str) -> None:
    """Compresses a file with the streams that Spark uses for its logs."""
    from pyspark import SparkConf, SparkContext

    context = SparkContext.getOrCreate(SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false"))
    jvm = context._jvm
    codecs = getattr(getattr(jvm.org.apache.spark.io, "CompressionCodec$"), "MODULE$")
    file = jvm.java.io.FileOutputStream(str(target))
    stream = codecs.createCodec(jvm.org.apache.spark.SparkConf(), codec).compressedContinuousOutputStream(file)
    for number, line in enumerate(source.read_bytes().splitlines(keepends=True)):
        stream.write(bytearray(line))
        if number % 20 == 19:
            stream.flush()  # as the listener does at the end of stages and jobs
    stream.close()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("causes", nargs="*", metavar="CAUSE", help=f"default: all that need no input; {', '.join(NAMES)}")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--codec", choices=("zstd", "lz4", "lzf", "snappy", "none"), default="none")
    parser.add_argument("--rolling", action="store_true")
    parser.add_argument("--input", help=f"text for {' and '.join(READS)}")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--name", default="spark")
    parser.add_argument("--raw", action="store_true", help="run one application and keep its log as Spark wrote it")
    chosen = parser.parse_args()
    if unknown := set(chosen.causes) - set(NAMES):
        parser.error(f"unknown cause {', '.join(sorted(unknown))}; expected {', '.join(NAMES)}")
    if chosen.input is None and (reading := set(chosen.causes) & set(READS)):
        parser.error(f"cannot run {', '.join(sorted(reading))} without --input")
    Path(chosen.folder).mkdir(parents=True, exist_ok=True)
    if chosen.raw:
        run_application(chosen.causes[0], chosen)
        for log in Path(chosen.folder).glob("[!.]*"):
            for part in parts_of(log):
                clean(part, chosen)
        return 0
    options = ["--size", chosen.size, "--cores", str(chosen.cores), "--name", chosen.name]
    options += ["--rolling"] * chosen.rolling + (["--input", chosen.input] if chosen.input else [])
    for cause in chosen.causes or [name for name in NAMES if name not in READS]:
        make_log(cause, options, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
