"""Jobs of tasks that only wait, only compute, or do nothing: `PYTHON -m bench.adaptive.shapes REQUEST.json`, by a Python that has PySpark.

A request holds Spark's settings. Prints one JSON line: how long each shape took, in ms.
"""

import json
import sys
import time

from bench.adaptive.jobs import end, session


def waits(seconds):
    """A task that uses no resource of this machine, as one that waits for a service does."""
    return lambda _: time.sleep(seconds)


def computes(seconds):
    """A task that needs so much core time, however long it takes to get it."""

    def task(_):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    return task


def nothing(_):
    """An empty task."""


def one_wave(context):
    """As many as there are slots."""
    context.parallelize(range(16), 16).foreach(waits(1))


def four_waves(context):
    """Four times as many."""
    context.parallelize(range(64), 64).foreach(waits(0.7))


def short_waits(context):
    """Twenty times as many, for a twentieth of the time."""
    context.parallelize(range(320), 320).foreach(waits(0.05))


def computing(context):
    """More than cores, of which slots only take turns."""
    context.parallelize(range(64), 64).foreach(computes(0.1))


def empty(context):
    """Only Spark's own work."""
    context.parallelize(range(640), 640).foreach(nothing)


# Jobs of one stage, each of a line of its own: stages of one line are alike to the plugin, and learn from each other.
SHAPES = {
    "one wave: 16 tasks that wait 1 s": one_wave,
    "the same again": one_wave,
    "four waves: 64 tasks that wait 0.7 s": four_waves,
    "320 tasks that wait 50 ms": short_waits,
    "64 tasks that compute 0.1 s": computing,
    "640 empty tasks": empty,
}


def main() -> None:
    """One application."""
    with open(sys.argv[1]) as file:
        spark = session(json.load(file)["settings"])
    # Starts Python's workers, and has the JVM load what any job needs.
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
