"""Event logs of Spark for tests: real ones, those of the repository, and small ones made here.

Real logs are those of `$PELLUCID_EVENTLOGS`, or of `../shared/eventlogs` next to the checkout, with an index. Without
them, their tests are skipped with the reason. `tests/event_logs` has small logs of two versions of Spark.
"""

import csv
import gzip
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from harness.binary import ROOT

LOGS = Path(os.environ.get("PELLUCID_EVENTLOGS") or ROOT.parent / "shared" / "eventlogs")
SMALL = ROOT / "tests" / "event_logs"
COUNTED = ("tasks", "stages", "jobs", "sql_executions")
# The time of the first event of a log made here, in milliseconds of the epoch.
START = 1_700_000_000_000

real_logs = pytest.mark.skipif(not LOGS.is_dir(), reason=f"no event logs in {LOGS}; set PELLUCID_EVENTLOGS")


def lines_of(source: Path) -> Iterator[bytes]:
    """Yields the lines of a plain, gzip or zstd log."""
    start = source.read_bytes()[:4]
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        with open(source, "rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            yield from io.BufferedReader(reader)
    else:
        with (gzip.open if start.startswith(b"\x1f\x8b") else open)(source, "rb") as file:
            yield from file


def table(name: str) -> list[dict]:
    """Returns a table of the logs' folder; empty if it is missing."""
    path = LOGS / name
    return list(csv.DictReader(path.open(), delimiter="\t")) if path.is_file() else []


def application_of(row: dict) -> Path:
    """Returns the log that a file of the index belongs to: the file itself, or the folder of a rolling log."""
    path = LOGS / row["file"]
    folder = path.parent
    in_parts = folder.name.startswith("eventlog_v2_") or path.name.startswith(("EVENT_LOG", "eventlog-20")) or (folder / "EVENT_LOG_1").exists()
    return folder if in_parts or (path.name == "eventlog" and any(folder.glob("eventlog-20*"))) else path


def applications() -> list[Path]:
    """Returns the log of each application."""
    return sorted({application_of(row) for row in table("index.tsv")})


def small() -> list[dict]:
    """Returns the small logs: folder, file, cause, and event counts."""
    columns = ("log", "cause", *COUNTED)
    found = []
    for made in sorted(SMALL.glob("*/made.tsv")):
        rows = csv.DictReader(made.open(), columns, delimiter="\t")
        found += [row | {"path": made.parent / row["log"]} for row in rows]
    return found


def events(application: str, tasks: int = 4, ended: bool = True) -> list[bytes]:
    """Returns the lines of a small log of one job."""
    info = {
        "Stage ID": 0,
        "Stage Attempt ID": 0,
        "Stage Name": "count at report.py:7",
        "Number of Tasks": tasks,
        "Parent IDs": [],
        "Submission Time": START + 100,
    }
    executor = {"Host": "h", "Total Cores": 2}
    found = [
        {"Event": "SparkListenerLogStart", "Spark Version": "3.5.6"},
        {"Event": "SparkListenerExecutorAdded", "Timestamp": START + 10, "Executor ID": "1", "Executor Info": executor},
        {"Event": "SparkListenerApplicationStart", "App Name": "a", "App ID": application, "Timestamp": START, "User": "u"},
        {"Event": "SparkListenerJobStart", "Job ID": 0, "Submission Time": START + 90, "Stage IDs": [0]},
        {"Event": "SparkListenerStageSubmitted", "Stage Info": info},
    ]
    for task in range(tasks):
        at = START + 100 + task // 2 * 500
        about = {"Task ID": task, "Index": task, "Launch Time": at, "Finish Time": at + 500, "Executor ID": "1", "Host": "h"}
        metrics = {"Executor Run Time": 480, "Executor CPU Time": 450_000_000, "JVM GC Time": 5}
        reason = {"Reason": "Success"}
        found.append(
            {
                "Event": "SparkListenerTaskEnd",
                "Stage ID": 0,
                "Task End Reason": reason,
                "Task Info": about,
                "Task Metrics": metrics,
            }
        )
    end = START + 100 + (tasks + 1) // 2 * 500
    found += [
        {"Event": "SparkListenerStageCompleted", "Stage Info": info | {"Completion Time": end}},
        {"Event": "SparkListenerJobEnd", "Job ID": 0, "Completion Time": end, "Job Result": {"Result": "JobSucceeded"}},
    ]
    if ended:
        found.append({"Event": "SparkListenerApplicationEnd", "Timestamp": end + 50})
    return [json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in found]
