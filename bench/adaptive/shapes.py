"""Jobs of tasks that only wait, only compute, or do nothing: `PYTHON -m bench.adaptive.shapes REQUEST.json`, with PySpark.

A request has Spark's settings. Prints one JSON line with the time of each shape in ms.
"""

import json
import sys
import time

from bench.adaptive.jobs import end, session


def waits(seconds):
    """Returns a task that uses no resource of this machine, like one that waits for a service."""
    return lambda _: time.sleep(seconds)


def computes(seconds):
    """Returns a task that uses a fixed amount of core time."""

    def task(_):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    return task


def nothing(_):
    """Does nothing."""


def one_wave(context):
    """Runs as many tasks as there are slots."""
    context.parallelize(range(16), 16).foreach(waits(1))


def four_waves(context):
    """Runs four times as many tasks as slots."""
    context.parallelize(range(64), 64).foreach(waits(0.7))


def short_waits(context):
    """Runs twenty times as many tasks as slots, each a twentieth as long."""
    context.parallelize(range(320), 320).foreach(waits(0.05))


def computing(context):
    """Runs computing tasks in more slots than there are cores."""
    context.parallelize(range(64), 64).foreach(computes(0.1))


def empty(context):
    """Runs empty tasks: Spark's own work."""
    context.parallelize(range(640), 640).foreach(nothing)


# Jobs of one stage, each with its own call site: the plugin treats stages of one call site alike, and they share what it learns.
SHAPES = {
    "one wave: 16 tasks that wait 1 s": one_wave,
    "the same again": one_wave,
    "four waves: 64 tasks that wait 0.7 s": four_waves,
    "320 tasks that wait 50 ms": short_waits,
    "64 tasks that compute 0.1 s": computing,
    "640 empty tasks": empty,
}


def main() -> None:
    """Runs one application."""
    with open(sys.argv[1]) as file:
        spark = session(json.load(file)["settings"])
    # A warm-up starts Python's workers and loads the JVM's classes.
    spark.sparkContext.parallelize(range(16), 16).map(waits(0.5)).count()
    took = {}
    for name, shape in SHAPES.items():
        begun = time.monotonic()
        shape(spark.sparkContext)
        took[name] = (time.monotonic() - begun) * 1000
    end(spark)
    print(json.dumps({"ms": took}), flush=True)


if __name__ == "__main__":
    main()
