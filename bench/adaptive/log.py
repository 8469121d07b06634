"""Reads each stage's numbers from a Spark event log, for figures 2 and 7 of the paper, and the plugin's disk metrics.

ε (self-adaptive-executors-middleware19 §5.1) is the threads' wait, executorRunTime − cpuTime − gc, summed over a
stage's tasks. With the plugin it also excludes queue time and the wait in the run queue, which stock logs lack.
"""

import json
import re
from collections import defaultdict
from pathlib import Path


def stages(log: Path) -> list[dict]:
    """Returns the completed stages in order: id, tasks, ms, wait_ms (ε), bytes read and written, and the plugin's final
    number of tasks at once, if recorded."""
    tasks, ended = defaultdict(list), {}
    with open(log) as lines:
        for line in lines:
            if '"SparkListenerTaskEnd"' in line:
                event = json.loads(line)
                tasks[event["Stage ID"]].append(event)
            elif '"SparkListenerStageCompleted"' in line:
                info = json.loads(line)["Stage Info"]
                ended[info["Stage ID"]] = info
    return [stage(ended[number], tasks[number]) for number in sorted(ended)]


def stage(info: dict, tasks: list[dict]) -> dict:
    """Summarises one stage."""
    ms = info["Completion Time"] - info["Submission Time"]
    wait_ns = moved = 0
    chosen = []
    for task in tasks:
        metrics = task.get("Task Metrics")
        if not metrics:
            continue
        own = {a.get("Name"): int(a["Update"]) for a in task["Task Info"]["Accumulables"] if is_plugin_metric(a)}
        waited = metrics["Executor Run Time"] * 10**6 - metrics["Executor CPU Time"] - metrics["JVM GC Time"] * 10**6
        wait_ns += own.get("pellucid.io_wait_ns", max(0, waited))
        moved += max(metrics["Input Metrics"]["Bytes Read"], own.get("pellucid.read_bytes", 0))
        moved += max(metrics["Output Metrics"]["Bytes Written"], own.get("pellucid.write_bytes", 0))
        read = metrics["Shuffle Read Metrics"]
        moved += read["Remote Bytes Read"] + read["Local Bytes Read"]
        moved += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"] + metrics["Disk Bytes Spilled"]
        if "pellucid.concurrency" in own:
            chosen.append((task["Task Info"]["Finish Time"], own["pellucid.concurrency"]))
    return {
        "id": info["Stage ID"],
        "tasks": len(tasks),
        "ms": ms,
        "wait_ms": wait_ns / 1e6,
        "bytes": moved,
        "concurrency": max(chosen)[1] if chosen else None,
    }


def is_plugin_metric(accumulable: dict) -> bool:
    """Returns whether an accumulable is a task metric of the plugin."""
    return accumulable.get("Name", "").startswith("pellucid.") and "Update" in accumulable


def sink(folder: Path) -> dict[str, str]:
    """Returns the settings with which Spark writes its metrics to files in a folder, each second and at the end."""
    options = {"class": "org.apache.spark.metrics.sink.CsvSink", "directory": str(folder), "period": "1", "unit": "seconds"}
    return {f"spark.metrics.conf.executor.sink.csv.{key}": value for key, value in options.items()}


def gated(metrics: Path, folders: list[Path]) -> list[dict] | None:
    """Returns, by disk, the largest number of threads in gated I/O, and by how many it exceeded the permits; None if not recorded."""
    found = []
    for folder in folders:
        name = "_".join(re.findall(r"[A-Za-z0-9_-]+", str(folder)))
        one = {what: max_gauge(metrics, f"disk.{name}.{what}") for what in ("peak", "over")}
        if None in one.values():
            return None
        found.append(one)
    return found


def max_gauge(metrics: Path, gauge: str) -> int | None:
    """Returns the largest value that executors reported for one of the plugin's gauges."""
    files = [path.read_text().splitlines()[1:] for path in metrics.glob(f"*.plugin.*.{gauge}.csv")]
    return max((int(line.split(",")[1]) for lines in files for line in lines), default=None)
