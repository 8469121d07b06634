"""The Spark applications: `PYTHON bench/onetwo/jobs.py REQUEST.json`, with a Python that has PySpark.

A request names a job, the folders of its input, and Spark's settings; `make` names a folder to fill with input.
Prints one JSON line. Stages read from the disks, as in `bench/adaptive/jobs.py`.

No job writes a result, since a folder of Hadoop's local file system is on one disk, and the suite needs jobs whose
bytes are spread evenly.
"""

import json
import sys
import time

from bench.adaptive.jobs import end, forgetting, make_sort, session

SCANS = 4
HASHES = 12


def scan(spark, sources):
    """Reads all files several times, which the disk limits; splitting lines would need the cores."""
    for _ in range(SCANS):
        spark.read.format("binaryFile").load(sources).selectExpr("sum(length(content))").collect()


def sort(spark, sources):
    """Samples the ranges, exchanges by range and sorts, which needs disk and cores."""
    spark.read.text(sources).sort("value").write.format("noop").mode("overwrite").save()


def hashes(spark, sources):
    """Reads all files once and hashes their repeated lines several times, which the cores limit."""
    from pyspark.sql import functions as f

    column = f.col("value")
    for _ in range(HASHES):
        column = f.sha2(f.repeat(column, 4), 512)
    spark.read.text(sources).select(f.max(column)).collect()


JOBS = {"scan": scan, "sort": sort, "hashes": hashes}


def main() -> None:
    """Runs one application."""
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
