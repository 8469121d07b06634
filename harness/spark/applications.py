"""Applications with the Spark plugin (`spark-plugin/`) on real executors: how they run, their data, and their logs.

Tests need no slow disk: tasks wait in `SlowDisk` of the plugin's test jar, and executor 1 of each cluster has a slower one
than the others. `SlowDisk` also reports which permits an executor's plugin still holds, by the plugin's own metrics,
because a local cluster truncates its log when it stops. `SlowFiles` lies beneath the plugin and counts the accesses that
reach it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from harness import binary, spark
from harness.binary import ROOT

TARGET = ROOT / "spark-plugin" / "target"
JAR, HELPER = TARGET / "pellucid-spark.jar", TARGET / "pellucid-spark-tests.jar"
JOBS = ROOT / "harness" / "spark" / "plugin_jobs.py"
PLUGIN = "org.pellucid.spark.PellucidPlugin"
WITH_SLOW_FILES = f"{PLUGIN},org.pellucid.spark.SlowFiles"
FILES, FEW = 400, 80
REASONS = {1: "start", 2: "doubled", 3: "stepped back", 4: "not bound by I/O", 5: "at the most", 6: "remembered", 7: "fixed"}

needed = pytest.mark.skipif(bool(spark.missing()) or not shutil.which("mvn"), reason=spark.missing() or "no Maven to build the plugin with")
versions = pytest.mark.parametrize("version", ["4", *(pytest.param(version, marks=pytest.mark.full) for version in ("4.0", "3.5"))])


@pytest.fixture(scope="session", autouse=True)
def jar() -> None:
    """Builds the plugin's jar with `make` if a source is newer."""
    subprocess.run(["make", "--no-print-directory", str(JAR.relative_to(ROOT))], cwd=ROOT, check=True)


@dataclass
class Ran:
    """The answer, output and log of one application."""

    answer: object
    held: dict[str, dict] | None
    """The permits that each executor's plugin still held after the job."""
    errors: str
    events: list[dict]
    executors: str
    """The executors' logs."""
    log: Path
    """The path of the event log."""

    def tasks(self, **where: Any) -> list[dict]:
        """Returns finished tasks of stages that read files, with the plugin's accumulables, in the order of the log."""
        found = []
        for event in self.events:
            if event["Event"] != "SparkListenerTaskEnd":
                continue
            info = event["Task Info"]
            task = {
                "executor": info["Executor ID"], "stage": event["Stage ID"], "failed": event["Task End Reason"]["Reason"] != "Success",
                "start": info["Launch Time"], "end": info["Finish Time"], "run_ms": (event.get("Task Metrics") or {}).get("Executor Run Time", 0),
                "input": ((event.get("Task Metrics") or {}).get("Input Metrics") or {}).get("Bytes Read", 0),
            }  # fmt: skip
            for accumulable in info["Accumulables"]:
                if str(accumulable.get("Name", "")).startswith("pellucid."):
                    task[accumulable["Name"].removeprefix("pellucid.")] = int(accumulable["Update"])
            if all(task.get(key) == value for key, value in where.items()):
                found.append(task)
        return found

    def longest(self, nth: int = 0, files: int = FILES) -> int:
        """Returns the stage of the nth complete scan, which has a task for each file."""
        sizes = [e["Stage Info"] for e in self.events if e["Event"] == "SparkListenerStageCompleted"]
        return [stage["Stage ID"] for stage in sizes if stage["Number of Tasks"] == files][nth]

    def settled(self, executor: str, nth: int = 0, files: int = FILES) -> tuple[int, str]:
        """Returns the concurrency that an executor settled on in the nth scan, and the reason."""
        last = self.tasks(executor=executor, stage=self.longest(nth, files))[-1]
        return last["concurrency"], REASONS[last["reason"]]

    def at_once(self, executor: str, since: int = 0, nth: int = 0, files: int = FILES) -> int:
        """Returns the maximum number of tasks that Spark ran at once on an executor in the nth scan, since a time.

        An upper bound, because Spark counts a task as running until shortly after it sent the next one.
        """
        tasks = self.tasks(executor=executor, stage=self.longest(nth, files))
        return max(sum(t["start"] <= s["start"] < t["end"] for t in tasks) for s in tasks if s["start"] >= since)

    def on_average(self, nth: int, files: int) -> float:
        """Returns the mean number of tasks on the only executor in the nth scan, as Spark counts them.

        Starts after a quarter of the scan, when the scheduler has seen the last change of slots, and ends when the last
        task is sent. Spark counts a task as running until shortly after it sent the next one.
        """
        tasks = self.tasks(stage=self.longest(nth, files))
        starts = sorted(task["start"] for task in tasks)
        begin, end = starts[files // 4], starts[-1]
        return sum(max(min(task["end"], end) - max(task["start"], begin), 0) for task in tasks) / (end - begin)


def command(job: str, folder: Path, version: str = "4", plugin: bool = True, jobs: Path = JOBS, **options: Any) -> dict:
    """Returns the command that runs a job of `jobs` as an application, as arguments of `subprocess`."""
    logs = tempfile.mkdtemp(prefix="events-", dir=folder)
    conf = {
        "spark.ui.enabled": "false", "spark.eventLog.enabled": "true", "spark.eventLog.dir": logs,
        "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false", "spark.executor.memory": "900m",
        "spark.jars": f"{JAR},{HELPER}", "spark.local.dir": str(folder), "spark.sql.shuffle.partitions": "8",
        # One task for each file.
        "spark.sql.files.maxPartitionBytes": "131072", "spark.sql.files.openCostInBytes": "131072",
        **({"spark.plugins": PLUGIN} if plugin else {}),
    }  # fmt: skip
    options["conf"] = {**conf, **options.get("conf", {})}
    program = [spark.python(version), jobs, job, json.dumps(options)]
    return {"args": program, "env": spark.environment(version), "cwd": folder, "text": True}


def run(job: str, folder: Path, version: str = "4", plugin: bool = True, **options: Any) -> Ran:
    """Runs an application to completion."""
    started = command(job, folder, version, plugin, **options)
    return ended(started, Path(json.loads(started["args"][-1])["conf"]["spark.eventLog.dir"]), version)


def ended(started: dict, logs: Path, version: str = "4") -> Ran:
    """Runs an application that must succeed, and reads its logs."""
    done = subprocess.run(**started, capture_output=True, timeout=900)
    (started["cwd"] / "errors").write_text(done.stderr)
    assert done.returncode == 0, done.stderr[-8000:]
    *_, log = sorted(logs.iterdir())
    events = [json.loads(line) for path in sorted(logs.iterdir()) for line in path.read_text().splitlines()]
    result = json.loads(done.stdout.splitlines()[-1])
    return Ran(result["answer"], result.get("held"), done.stderr, events, executor_logs(events, version), log)


def executor_logs(events: list[dict], version: str) -> str:
    """Returns the executors' logs, and removes them from Spark's own folder, where a local cluster leaves them."""
    name = next((event["App ID"] for event in events if event["Event"] == "SparkListenerApplicationStart"), "none")
    folder = spark.home(version) / "work" / name
    logs = "".join(path.read_text() for path in sorted(folder.glob("*/stderr")))
    if folder.exists():
        shutil.rmtree(folder)
    return logs


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of one row and 64 KiB, one for each task; and some rows to sort."""
    folder = tmp_path_factory.mktemp("spark-data")
    (folder / "slow").mkdir()
    (folder / "rows").mkdir()
    connection = duckdb.connect()
    for number in range(FILES):
        # Hashes, so that neither Parquet nor its codec makes the files smaller.
        payload = f"(SELECT string_agg(sha256({number} || '-' || i), '' ORDER BY i) FROM range(1024) r(i))"
        connection.execute(f"COPY (SELECT {number}::BIGINT AS id, {payload} AS payload) TO '{folder}/slow/{number:03}.parquet'")
    rows = "SELECT i AS id, (hash(i) % 1000000)::INT AS k, sha256(i::VARCHAR) AS v FROM range(10000) r(i)"
    connection.execute(f"COPY ({rows}) TO '{folder}/rows/0.parquet'")
    return folder


@pytest.fixture(scope="session")
def few(data: Path) -> Path:
    """The first of the one-row files, for tests that need no full climb."""
    folder = data / "few"
    folder.mkdir()
    for path in sorted((data / "slow").iterdir())[:FEW]:
        (folder / path.name).symlink_to(path)
    return folder


def truth(folder: Path) -> list:
    """Returns the expected answer of `digest` over a folder, by DuckDB."""
    rows = duckdb.sql(f"SELECT id, payload FROM '{folder}/*.parquet'").fetchall()
    return [sum(r[0] for r in rows), sum(zlib.crc32(r[1].encode()) for r in rows), len(rows)]


def min_column_bytes(folder: Path) -> int:
    """Returns the smallest compressed size of any file's columns: a codec saves more of one file than of another."""
    columns = f"SELECT sum(total_compressed_size) AS bytes FROM parquet_metadata('{folder}/*.parquet') GROUP BY file_name"
    return duckdb.sql(f"SELECT min(bytes) FROM ({columns})").fetchall()[0][0]


def reported(log: Path, stage: int, executor: str) -> list[int]:
    """Returns an executor's concurrency limits in a stage, in order, as `pellucid analyze` reports them."""
    tuned = binary.run("analyze", log, "--json").check().json()["concurrency"]
    (found,) = (one for one in tuned if one["source_id"] == stage and one["executor"].split()[-1] == executor)
    return [step["concurrency"] for step in found["steps"]]


def nothing_held(held: dict[str, dict] | None, executors: int = 1) -> None:
    """Asserts that every executor's plugin holds no permit, core or turn at a disk, and that nothing waits for one."""
    assert held is not None and len(held) >= executors, held
    assert not any(count for each in held.values() for count in each["held"].values()), held


def nothing_failed(ran: Ran, executors: int = 1) -> None:
    """Asserts that the plugin holds nothing and did not fail."""
    nothing_held(ran.held, executors)
    assert "Pellucid failed" not in ran.executors + ran.errors


def sink(folder: Path) -> dict[str, str]:
    """Returns the settings that make Spark write its metrics to files in a folder."""
    folder.mkdir()
    options = {"class": "org.apache.spark.metrics.sink.CsvSink", "directory": str(folder), "period": "1", "unit": "seconds"}
    return {f"spark.metrics.conf.*.sink.csv.{key}": value for key, value in options.items()}


def metric_values(folder: Path, executor: str) -> dict[str, list[int]]:
    """Returns the values that an executor's plugin sent to such a sink, by metric."""
    prefix = f".{executor}.plugin.{PLUGIN}."
    files = {path.name.partition(prefix)[2].removesuffix(".csv"): path for path in folder.glob(f"*{prefix}*")}
    return {name: [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]] for name, path in files.items()}


def runs(pid: int, program: bytes) -> bool:
    """Returns whether a process exists, is not a zombie, and runs this program."""
    try:
        return program in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def end(pids: set[int]) -> None:
    """Kills those of the processes that run Spark; a process id may have been reused since."""
    for pid in pids:
        if runs(pid, b"spark"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
