"""What a stock event log says of each stage, as figures 2 and 7 of the paper need it; and what the plugin says of disks.

ε (self-adaptive-executors-middleware19 §5.1): the threads' wait, executorRunTime − cpuTime − gc, summed over a
stage's tasks (with the plugin also less its queue time and the run queue's wait, which stock logs lack).
"""

import json
import re
from collections import defaultdict
from pathlib import Path


def stages(log: Path) -> list[dict]:
    """Each stage that ran, in order: id, tasks, ms, wait_ms (ε), bytes read and written, and how many tasks ran at once
    in the end where the plugin said so."""
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
    """One of them."""
    ms = info["Completion Time"] - info["Submission Time"]
    wait_ns = moved = 0
    chosen = []
    for task in tasks:
        metrics = task.get("Task Metrics")
        if not metrics:
            continue
        told = {a.get("Name"): int(a["Update"]) for a in task["Task Info"]["Accumulables"] if plugin(a)}
        waited = metrics["Executor Run Time"] * 10**6 - metrics["Executor CPU Time"] - metrics["JVM GC Time"] * 10**6
        wait_ns += told.get("pellucid.io_wait_ns", max(0, waited))
        moved += max(metrics["Input Metrics"]["Bytes Read"], told.get("pellucid.read_bytes", 0))
        moved += max(metrics["Output Metrics"]["Bytes Written"], told.get("pellucid.write_bytes", 0))
        read = metrics["Shuffle Read Metrics"]
        moved += read["Remote Bytes Read"] + read["Local Bytes Read"]
        moved += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"] + metrics["Disk Bytes Spilled"]
        if "pellucid.concurrency" in told:
            chosen.append((task["Task Info"]["Finish Time"], told["pellucid.concurrency"]))
    return {
        "id": info["Stage ID"],
        "tasks": len(tasks),
        "ms": ms,
        "wait_ms": wait_ns / 1e6,
        "bytes": moved,
        "concurrency": max(chosen)[1] if chosen else None,
    }


def plugin(accumulable: dict) -> bool:
    """Whether it is one of the plugin's, of a task."""
    return accumulable.get("Name", "").startswith("pellucid.") and "Update" in accumulable


def sink(folder: Path) -> dict[str, str]:
    """Settings that have Spark write its metrics to files in a folder, each second and at the end."""
    options = {"class": "org.apache.spark.metrics.sink.CsvSink", "directory": str(folder), "period": "1", "unit": "seconds"}
    return {f"spark.metrics.conf.executor.sink.csv.{key}": value for key, value in options.items()}


def gated(metrics: Path, folders: list[Path]) -> list[dict] | None:
    """By disk, the most threads that the plugin had in gated I/O at once, and by how many they were ever more than its permits.
    None where it did not say."""
    found = []
    for folder in folders:
        name = "_".join(re.findall(r"[A-Za-z0-9_-]+", str(folder)))
        one = {what: most(metrics, f"disk.{name}.{what}") for what in ("peak", "over")}
        if None in one.values():
            return None
        found.append(one)
    return found


def most(metrics: Path, gauge: str) -> int | None:
    """The most that executors told of one of the plugin's numbers."""
    told = [path.read_text().splitlines()[1:] for path in metrics.glob(f"*.plugin.*.{gauge}.csv")]
    return max((int(line.split(",")[1]) for lines in told for line in lines), default=None)
