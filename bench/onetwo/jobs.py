"""The Spark applications: `PYTHON bench/onetwo/jobs.py REQUEST.json`, by a Python that has PySpark.

A request names a job, the folders of its input, and Spark's settings; with `make`, where input is to be
made. Prints one JSON line. What a stage reads comes from the disks, as in `bench/adaptive/jobs.py`.

No job writes a result: Hadoop's local file system has a folder on one disk only, and the question is what
becomes of a job whose bytes lie on all disks evenly.
"""

import json
import sys
import time

from bench.adaptive.jobs import end, forgetting, make_sort, session

SCANS = 4
HASHES = 12


def scan(spark, sources):
    """Reads everything, several times, file by file: the disk's work. To find lines would be the cores'."""
    for _ in range(SCANS):
        spark.read.format("binaryFile").load(sources).selectExpr("sum(length(content))").collect()


def sort(spark, sources):
    """Read (for the ranges), exchange by range, sort: both have to work."""
    spark.read.text(sources).sort("value").write.format("noop").mode("overwrite").save()


def hashes(spark, sources):
    """Reads everything once and hashes it, lengthened, over and over: the cores' work."""
    from pyspark.sql import functions as f

    column = f.col("value")
    for _ in range(HASHES):
        column = f.sha2(f.repeat(column, 4), 512)
    spark.read.text(sources).select(f.max(column)).collect()


JOBS = {"scan": scan, "sort": sort, "hashes": hashes}


def main() -> None:
    """One application."""
    with open(sys.argv[1]) as file:
        request = json.load(file)
    spark = session(request["settings"])
    if request.get("make"):
        make_sort(spark, request["make"], request["bytes"], request["files"])
        said = {}
    else:
        with forgetting(spark, request["disks"]):
            begun = time.monotonic()
            JOBS[request["job"]](spark, request["sources"])
            said = {"ms": (time.monotonic() - begun) * 1000}
    end(spark)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
