"""The Spark plugin (`spark-plugin/`) on real executors: what it changes, measures, and survives.

What waits is `SlowDisk` in the plugin's test jar, so that no check needs a slow disk, and
executor 1 of each cluster has a slower one than the others. A `local-cluster` costs 20 to 60 s;
`PELLUCID_FULL` adds the other versions of Spark and TPC-H's 22 queries.
"""

import json
import os
import shutil
import subprocess
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from tests import binary, spark

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "spark-plugin" / "target"
JAR, HELPER = TARGET / "pellucid-spark.jar", TARGET / "pellucid-spark-tests.jar"
FILES = 240
REASONS = {1: "start", 2: "doubled", 3: "stepped back", 4: "not bound by I/O", 5: "at the most", 6: "remembered", 7: "fixed"}

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(spark.missing()) or not shutil.which("mvn"), reason=spark.missing() or "no Maven to build the plugin with"),
]
versions = pytest.mark.parametrize("version", ["4", pytest.param("3.5", marks=pytest.mark.full)])


@pytest.fixture(scope="session", autouse=True)
def jar():
    """Built by `make`, and again when a source is newer."""
    subprocess.run(["make", "--no-print-directory", str(JAR.relative_to(ROOT))], cwd=ROOT, check=True)


@dataclass
class Ran:
    """One application: what it answered, said and logged."""

    answer: object
    errors: str
    events: list[dict]
    executors: str
    """What its executors logged."""

    def tasks(self, **where) -> list[dict]:
        """Ended tasks with the plugin's accumulables, in the order of the log, of stages that read files."""
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

    def longest(self, nth: int = 0) -> int:
        """The stage of a whole scan: as many tasks as there are files. The first, or the nth."""
        sizes = [e["Stage Info"] for e in self.events if e["Event"] == "SparkListenerStageCompleted"]
        return [stage["Stage ID"] for stage in sizes if stage["Number of Tasks"] == FILES][nth]

    def settled(self, executor: str, nth: int = 0) -> tuple[int, str]:
        """What an executor came to in the nth scan, and why."""
        last = self.tasks(executor=executor, stage=self.longest(nth))[-1]
        return last["concurrency"], REASONS[last["reason"]]

    def at_once(self, executor: str, nth: int, share: float) -> int:
        """The most tasks that Spark had on an executor at once in the last part of a stage."""
        tasks = self.tasks(executor=executor, stage=self.longest(nth))
        begin = min(t["start"] for t in tasks)
        after = begin + (1 - share) * (max(t["end"] for t in tasks) - begin)
        moments = [(t["start"], 1) for t in tasks] + [(t["end"], -1) for t in tasks]
        running = most = 0
        for moment, change in sorted(moments):
            running += change
            most = max(most, running) if moment >= after else most
        return most


def run(job: str, folder: Path, version: str = "4", plugin: bool = True, **options) -> Ran:
    """Runs a job of `spark_plugin_jobs.py` as an application of its own."""
    logs = folder / f"events-{len(list(folder.iterdir()))}"
    logs.mkdir()
    conf = {
        "spark.ui.enabled": "false", "spark.eventLog.enabled": "true", "spark.eventLog.dir": str(logs),
        "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false", "spark.executor.memory": "900m",
        "spark.jars": f"{JAR},{HELPER}", "spark.local.dir": str(folder), "spark.sql.shuffle.partitions": "8",
        # Each file is a task.
        "spark.sql.files.maxPartitionBytes": "131072", "spark.sql.files.openCostInBytes": "131072",
        **({"spark.plugins": "org.pellucid.spark.PellucidPlugin"} if plugin else {}),
    }  # fmt: skip
    options["conf"] = {**conf, **options.get("conf", {})}
    command = [spark.python(version), ROOT / "tests" / "spark_plugin_jobs.py", job, json.dumps(options)]
    plain = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    environment = {**plain, "PYSPARK_PYTHON": str(spark.python(version))}
    environment["JAVA_TOOL_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, cwd=folder)
    assert done.returncode == 0, done.stderr[-8000:]
    events = [json.loads(line) for path in sorted(logs.iterdir()) for line in path.read_text().splitlines()]
    return Ran(json.loads(done.stdout.splitlines()[-1]), done.stderr, events, said_by_executors(events, version))


def said_by_executors(events: list[dict], version: str) -> str:
    """Their logs, which a local cluster leaves in Spark's own folder; taken from there."""
    name = next((event["App ID"] for event in events if event["Event"] == "SparkListenerApplicationStart"), "none")
    folder = spark.home(version) / "work" / name
    said = "".join(path.read_text() for path in sorted(folder.glob("*/stderr")))
    if folder.exists():
        shutil.rmtree(folder)
    return said


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Files of one row and 64 KiB, one a task; and some rows to sort."""
    folder = tmp_path_factory.mktemp("spark-data")
    (folder / "slow").mkdir()
    (folder / "rows").mkdir()
    connection = duckdb.connect()
    for number in range(FILES):
        # Hashes, so that neither Parquet nor its codec makes it small.
        payload = f"(SELECT string_agg(sha256({number} || '-' || i), '' ORDER BY i) FROM range(1024) r(i))"
        connection.execute(f"COPY (SELECT {number}::BIGINT AS id, {payload} AS payload) TO '{folder}/slow/{number:03}.parquet'")
    rows = "SELECT i AS id, (hash(i) % 1000000)::INT AS k, sha256(i::VARCHAR) AS v FROM range(100000) r(i)"
    connection.execute(f"COPY ({rows}) TO '{folder}/rows/0.parquet'")
    return folder


def truth(data: Path) -> list:
    """What `digest` answers of them, by DuckDB."""
    rows = duckdb.sql(f"SELECT id, payload FROM '{data}/slow/*.parquet'").fetchall()
    return [sum(r[0] for r in rows), sum(zlib.crc32(r[1].encode()) for r in rows), len(rows)]


def nothing_held(ran: Ran, executors: int) -> None:
    """Every executor ended with no leave given and none waited for; nothing of the plugin failed."""
    assert ran.executors.count("ends with 0 running, 0 waiting, 0 cores held, 0 in I/O") >= executors, ran.executors[-3000:]
    assert "Pellucid failed" not in ran.executors + ran.errors


@versions
def test_each_executor_finds_its_own_concurrency(data, tmp_path, version):
    """By its own disk, in log and scheduler; off for a job; a barrier stage gets all slots."""
    ran = run(
        "tune", tmp_path, version, data=f"{data}/slow", ms=250, executors=2, off=True, barrier=14,
        conf={"spark.master": "local-cluster[2,8,1024]"},
    )  # fmt: skip
    tuned, off, barrier = ran.answer
    assert tuned == off == truth(data)
    assert barrier == sum(range(14))
    fast, fast_reason = ran.settled("0")
    slow, slow_reason = ran.settled("1")
    assert fast >= 4 and fast_reason in ("doubled", "at the most", "stepped back"), (fast, fast_reason)
    assert slow == 2 and slow_reason == "stepped back", (slow, slow_reason)
    # The climb is in the log, step by step.
    climb = [t["concurrency"] for t in ran.tasks(executor="0", stage=ran.longest())]
    assert [c for i, c in enumerate(climb) if c not in climb[:i]][:2] == [2, 4], climb
    # The scheduler follows: it sends no more than run, and they do not stand at the gate.
    assert ran.at_once("1", 0, 0.5) <= 3
    late = ran.tasks(executor="1", stage=ran.longest())[-20:]
    assert sum(t["queue_ns"] for t in late) < 0.2 * sum(t["run_ms"] for t in late) * 1e6, late
    # What a task waited is in the log, and what Spark counts of Parquet is right with the plugin.
    for task in late:
        assert task["io_wait_ns"] >= 200e6, task
        assert task["read_bytes"] >= 65536 and task["read_wait_ns"] >= 0, task
        assert abs(task["read_bytes"] - task["input"]) < 0.1 * task["input"], task
    assert {REASONS[t["reason"]] for t in ran.tasks(stage=ran.longest(1))} == {"fixed"}
    sizes = [len(json.dumps([a for a in e["Task Info"]["Accumulables"] if str(a.get("Name")).startswith("pellucid.")]))
             for e in ran.events if e["Event"] == "SparkListenerTaskEnd"]  # fmt: skip
    assert max(sizes) <= 1500, max(sizes)
    nothing_held(ran, 2)


def test_a_like_stage_takes_what_was_found_and_the_next_application_too(data, tmp_path):
    memory = tmp_path / "memory.tsv"
    conf = {"spark.master": "local-cluster[1,8,1024]", "spark.pellucid.memory": str(memory)}
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=100, executors=1, again=True, conf=conf)
    found, _ = ran.settled("0")
    assert found >= 4
    assert ran.settled("0", 1) == (found, "remembered")
    assert memory.read_text().count("\n") >= 4
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=100, executors=1, conf=conf)
    assert ran.settled("0") == (found, "remembered")
    nothing_held(ran, 1)


def test_tasks_that_compute_get_every_slot(data, tmp_path):
    ran = run("compute", tmp_path, data=f"{data}/slow", executors=1, conf={"spark.master": "local-cluster[1,8,1024]"})
    assert ran.answer == truth(data)
    concurrency, reason = ran.settled("0")
    assert concurrency == 8, (concurrency, reason)
    nothing_held(ran, 1)


def test_a_killed_task_and_a_lost_executor_cost_no_leave(data, tmp_path):
    conf = {"spark.master": "local-cluster[2,4,1024]"}
    ran = run("cancel", tmp_path, data=f"{data}/slow", executors=2, conf=conf)
    assert ran.answer == [[True], truth(data)]
    nothing_held(ran, 2)
    ran = run("lose", tmp_path, data=f"{data}/slow", executors=2, mark=str(tmp_path / "died"), conf=conf)
    assert ran.answer == truth(data)
    nothing_held(ran, 2)


def test_monotasks_gates_files_and_changes_no_answer(data, tmp_path):
    conf = {"spark.master": "local-cluster[1,2,1024]", "spark.pellucid.mode": "monotasks", "spark.pellucid.disks": str(data),
            "spark.pellucid.disk.concurrency.max": "3"}  # fmt: skip
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=50, executors=1, conf=conf)
    assert ran.answer == [truth(data)]
    # Two cores, three permits, four on the network, one: Spark sends ten tasks to two cores.
    assert ran.at_once("0", 0, 0.5) == 10
    assert {t["concurrency"] for t in ran.tasks(executor="0", stage=ran.longest())[20:]} == {10}
    peak = int(ran.executors.split("in I/O, at most ")[1].split()[0])
    assert 1 <= peak <= 3
    nothing_held(ran, 1)


# Every callback and every guarded part; each blows the fuse of a whole process.
FAULTS = ("init", "onTaskStart", "onTaskCompletion", "onTaskSucceeded", "onTaskFailed", "read", "write", "core", "disk", "disks",
          "message", "driver.init", "driver.listener", "driver.receive")  # fmt: skip


def test_no_failure_of_the_plugin_is_one_of_the_job(data, tmp_path):
    """Nor do other modes, wrong settings or another plugin change a result: one application each."""
    each = {"stock": {"spark.plugins": ""}, "measure": {"spark.pellucid.mode": "measure"}, "index": {"spark.pellucid.policy": "index"},
            "monotasks": {"spark.pellucid.mode": "monotasks"}, "off": {"spark.pellucid.mode": "off"},
            "wrong-mode": {"spark.pellucid.mode": "fast"}, "wrong-key": {"spark.pellucid.moed": "off"},
            "wrong-memory": {"spark.pellucid.memory": "/proc/version"}}  # fmt: skip
    for fault in FAULTS:
        mode = "monotasks" if fault in ("core", "disk", "disks") else "adaptive"
        each[fault] = {"spark.pellucid.fault": fault, "spark.pellucid.mode": mode}
    blank = {"spark.pellucid.fault": "", "spark.pellucid.mode": "adaptive", "spark.pellucid.policy": "throughput"}
    plugin = {"spark.plugins": "org.pellucid.spark.PellucidPlugin"}
    each = {name: {**plugin, **blank, **conf} for name, conf in each.items()}
    shutil.copytree(data, tmp_path / "data")
    ran = run("several", tmp_path, plugin=False, data=str(tmp_path / "data"), each=each, conf={"spark.master": "local[4]"})
    assert len({json.dumps(answer) for answer in ran.answer.values()}) == 1, ran.answer
    assert ran.answer["stock"][1] == truth(data)
    said = ran.errors
    assert "spark.pellucid.mode=fast: it is one of [adaptive, monotasks, measure, off]" in said
    assert "spark.pellucid.moed is no setting" in said
    assert "/proc/version, line 1" in said
    failures = defaultdict(int)
    for line in said.splitlines():
        if "Pellucid failed in" in line:
            failures[line.split("Pellucid failed in ")[1].split(" ")[0]] += 1
    # Nothing fails a task, so onTaskFailed is not called; each of the others is logged once.
    assert dict(failures) == {fault: 1 for fault in FAULTS if fault != "onTaskFailed"}, dict(failures)


@versions
def test_what_a_task_waits_is_what_the_kernel_says(slow_disk, tmp_path, version):
    """Read wait beside the same threads' block I/O delay, on a disk of 20 MB/s."""
    disk = slow_disk("20MB/s")
    folder = disk.path / "table"
    folder.mkdir()
    for part in range(8):
        duckdb.sql(
            f"COPY (SELECT i AS id, hash(i + {part} * 1000000) AS a, hash(i * 7 + {part}) AS b FROM range(250000) r(i)) "
            f"TO '{folder}/{part}.parquet' (COMPRESSION uncompressed)"
        )
    os.sync()
    for path in folder.iterdir():
        with open(path) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    conf = {"spark.master": "local[2]", "spark.pellucid.mode": "measure", "spark.sql.files.maxPartitionBytes": "128m",
            "spark.sql.files.openCostInBytes": "128m"}  # fmt: skip
    text = f"SELECT count(*), bit_xor(a), bit_xor(b) FROM parquet.`{folder}`"
    switch = Path("/proc/sys/kernel/task_delayacct")
    before = switch.read_text()
    switch.write_text("1")
    try:
        ran = run("read", tmp_path, version, text=text, conf=conf)
    finally:
        switch.write_text(before)
    assert ran.answer[0] == 2_000_000
    tasks = [t for t in ran.tasks() if t.get("read_bytes", 0) > 1_000_000]
    assert len(tasks) == 8
    waited = sum(t["read_wait_ns"] for t in tasks)
    delayed = sum(t["block_delay_ns"] for t in tasks)
    assert 0.9 < waited / delayed < 1.1, (waited, delayed)


@pytest.mark.full
@versions
def test_tpch_and_a_sort_are_the_same_with_and_without(tmp_path, version):
    folder = binary.ensure_data("tpch", 0.1)
    tables = {path.name: str(path) for path in folder.iterdir() if path.is_dir()} or {
        path.stem: str(path) for path in folder.glob("*.parquet")
    }
    texts = {}
    for text in sorted((ROOT / "tests" / "rewrites").glob("tpch/*.sql")):
        texts[text.stem] = text.read_text()
    assert tables and texts
    conf = {"spark.master": "local-cluster[2,8,1024]", "spark.sql.files.maxPartitionBytes": "2m"}
    answers = []
    for plugin, mode in ((False, "off"), (True, "adaptive"), (True, "monotasks")):
        extra = {"spark.pellucid.mode": mode} if plugin else {}
        answers.append(run("queries", tmp_path, version, plugin, tables=tables, texts=texts, conf={**conf, **extra}).answer)
    assert answers[0] == answers[1] == answers[2]
