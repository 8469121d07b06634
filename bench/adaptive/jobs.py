"""The Spark applications of the matrix, run by a Python that has PySpark.

    PYTHON bench/adaptive/jobs.py REQUEST.json

A request names a job, the folders of its input and output, and Spark's settings. One application is one run. It
prints one JSON line: the job's time from its first action to its last, without the start of Spark.

The jobs follow HiBench as in self-adaptive-executors-middleware19 (table 3), with less data: sort (Terasort), join and
aggregation over page visits, PageRank. The JVM does all work, without Python in the tasks. As in the paper, stages read
from the disk: when a stage begins, the files on the request's disks are evicted from the page cache. Otherwise the
machine's memory, which exceeds the data, would hide the disks.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.adaptive.matrix import EMPTY_TASKS

# The key, seven hashes in hex, the end of the line.
LINE_BYTES = 16 + 7 * 128 + 1


def make_sort(spark, folder, size_bytes, files):
    """Writes lines of 913 bytes with a key of 16; hashes, so that no codec shrinks them.

    Terasort has lines of 100 bytes. Here a few cores replace the paper's 32 per disk, and with longer lines they sort
    the same bytes in less time, which keeps the balance of cores and disk.
    """
    rows = spark.range(0, size_bytes // LINE_BYTES, numPartitions=files)
    hashes = ", ".join(f"sha2(concat(CAST(id AS STRING), ' {n}'), 512)" for n in range(7))
    rows.selectExpr(f"concat(lpad(hex(xxhash64(id)), 16, '0'), {hashes})").write.text(folder)


def sort(spark, source, target):
    """Samples the ranges, exchanges by range, and writes: the paper's three stages."""
    spark.read.text(source).sort("value").write.text(target)


def make_visits(spark, folder, size_bytes, files):
    """Writes visits and pages, about four bytes of visits per byte of pages."""
    options = {"compression": "uncompressed"}
    visits = spark.range(0, size_bytes * 4 // 5 // 110, numPartitions=files).selectExpr(
        "concat_ws('.', id % 199, xxhash64(id) & 255, xxhash64(id, 1) & 255) AS ip",
        "pmod(xxhash64(id, 2), 200000) AS page",
        "(pmod(xxhash64(id, 3), 10000)) / 100.0D AS revenue",
        "lpad(hex(xxhash64(id, 4)), 80, 'agent') AS agent",
    )
    visits.write.options(**options).parquet(f"{folder}/visits")
    pages = spark.range(0, 200_000, numPartitions=max(1, files // 4)).selectExpr(
        "id AS page", "pmod(xxhash64(id, 5), 100) AS rank", f"repeat('p', {max(1, size_bytes // 5 // 200_000)}) AS text"
    )
    pages.write.options(**options).parquet(f"{folder}/pages")


def join(spark, source, target):
    """Computes revenue and mean rank by address, with an exchange of both sides."""
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    visits, pages = (spark.read.parquet(f"{source}/{name}") for name in ("visits", "pages"))
    both = visits.join(pages, "page").selectExpr("ip", "revenue", "rank", "length(text) + length(agent) AS size")
    both.groupBy("ip").agg({"revenue": "sum", "rank": "avg", "size": "sum"}).write.parquet(target)


def aggregation(spark, source, target):
    """Sums by address, and keeps the other columns, so that the exchange carries all data."""
    visits = spark.read.parquet(f"{source}/visits")
    visits.groupBy("ip").agg({"revenue": "sum", "agent": "max", "page": "count"}).write.parquet(target)


def make_edges(spark, folder, size_bytes, files):
    """Writes edges between vertices, fifty edges per vertex."""
    count = size_bytes // 16
    edges = spark.range(0, count, numPartitions=files).selectExpr(
        f"pmod(xxhash64(id), {count // 50}) AS src", f"pmod(xxhash64(id, 1), {count // 50}) AS dst"
    )
    edges.write.options(compression="uncompressed").parquet(folder)


def pagerank(spark, source, target):
    """Runs three iterations, each of which reads the edges."""
    from pyspark.sql import functions as f

    edges = spark.read.parquet(source)
    degrees = edges.groupBy("src").count()
    ranks = degrees.select("src", f.lit(1.0).alias("rank"))
    for _ in range(3):
        shares = edges.join(degrees, "src").join(ranks, "src").selectExpr("dst AS src", "rank / count AS share")
        ranks = shares.groupBy("src").agg((0.15 + 0.85 * f.sum("share")).alias("rank"))
    ranks.write.parquet(target)


def make_nothing(spark, folder, size_bytes, files):
    """Writes nothing, for jobs without input."""


def cpu(spark, source, target):
    """Computes with almost no I/O, to measure the plugin's cost."""
    from pyspark.sql import functions as f

    column = f.col("id")
    for _ in range(30):
        column = f.xxhash64(column)
    spark.range(0, 12_000_000, numPartitions=64).select(f.max(column).alias("most")).write.parquet(target)


def tasks(spark, source, target):
    """Runs empty tasks, to measure the plugin's cost per task."""
    spark.range(0, EMPTY_TASKS, numPartitions=EMPTY_TASKS).selectExpr("max(id) AS most").write.parquet(target)


JOBS = {
    "sort": (make_sort, sort),
    "join": (make_visits, join),
    "aggregation": (make_visits, aggregation),
    "pagerank": (make_edges, pagerank),
    "cpu": (make_nothing, cpu),
    "tasks": (make_nothing, tasks),
}


def forget(disks: list[str]) -> None:
    """Writes back dirty pages of these disks, and drops all their files from the page cache."""
    for disk in disks:
        subprocess.run(["sync", "--file-system", disk], check=True)
        for path in Path(disk).rglob("*"):
            with contextlib.suppress(OSError):  # the file may be gone by now
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)


@contextlib.contextmanager
def forgetting(spark, disks: list[str]):
    """Empties the page cache at the start of each stage (within a twentieth of a second)."""
    tracker, ended, seen = spark.sparkContext.statusTracker(), threading.Event(), set()

    def watch():
        while not ended.wait(0.05):
            stages = set(tracker.getActiveStageIds()) - seen
            if stages:
                seen.update(stages)
                forget(disks)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def session(settings: dict):
    """Starts a session, and waits for its executor."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) < 2:
        time.sleep(0.05)
    return spark


def end(spark) -> None:
    """Ends Spark and its JVM, so that its core time is known, and deletes the local cluster's files in Spark's folder."""
    import pyspark

    gateway, name = spark.sparkContext._gateway, spark.sparkContext.applicationId
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / name, ignore_errors=True)


def main() -> None:
    """Runs one application."""
    with open(sys.argv[1]) as file:
        request = json.load(file)
    spark = session(request["settings"])
    make, run = JOBS[request["job"]]
    if request["make"]:
        make(spark, request["source"], request["bytes"], request["files"])
        said = {"made": True}
    else:
        with forgetting(spark, request["disks"]):
            begun = time.monotonic()
            run(spark, request["source"], request["target"])
            said = {"ms": (time.monotonic() - begun) * 1000}
    end(spark)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
