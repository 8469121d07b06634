"""The Spark plugin (`spark-plugin/`) on real executors: its effects, its measurements, and its behaviour under faults.

`PELLUCID_FULL` adds the other versions of Spark, TPC-H's 22 queries, and jars that lack a class.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
import zipfile
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest

from harness import binary, spark
from harness.spark.applications import (
    FEW,
    FILES,
    HELPER,
    JAR,
    JOBS,
    PLUGIN,
    REASONS,
    ROOT,
    WITH_SLOW_FILES,
    command,
    data,
    end,
    ended,
    few,
    jar,
    metric_values,
    min_column_bytes,
    nothing_failed,
    nothing_held,
    reported,
    run,
    runs,
    sink,
    truth,
    versions,
)
from harness.spark.applications import needed as pytestmark
from harness.sql import oracle
from harness.threads import below

# The documented gauges.
GAUGES = {
    "slots", "tasks.running", "tasks.waiting", "stage", "concurrency", "reason", "index.ns2_per_mb", "read.bytes", "read.wait_ns",
    "write.bytes", "write.wait_ns", "shuffle.read.bytes", "queue_ns", "off",
}  # fmt: skip
OF_DISKS = {"disk.running", "disk.waiting", "disk.permits", "disk.peak", "cores.held"}


@pytest.mark.alone
@versions
def test_executors_find_their_own_concurrency(data, tmp_path, version):
    """Each finds the value of its own disk.

    Log, metrics, scheduler and Pellucid's report agree; the plugin can be off for a job; a barrier stage gets all slots.
    """
    metrics = tmp_path / "metrics"
    ran = run(
        "tune", tmp_path, version, data=f"{data}/slow", ms=400, executors=2, out=str(tmp_path / "out"), off=True, barrier=30,
        # A disk with one head gains nothing from more concurrency, one without heads gains all: with this margin, a busy
        # machine changes neither. With the default of 0.07, noise was seen to raise the single head to four.
        conf={"spark.master": "local-cluster[2,16,1024]", "spark.pellucid.mode": "adaptive", "spark.pellucid.gain": "0.4", **sink(metrics)},
    )  # fmt: skip
    tuned, off, barrier = ran.answer
    assert tuned == off == truth(data / "slow")
    assert barrier == sum(range(30))
    fast, fast_reason = ran.settled("0")
    slow, slow_reason = ran.settled("1")
    assert fast >= 4 and fast_reason in ("doubled", "at the most", "stepped back"), (fast, fast_reason)
    assert slow == 2 and slow_reason == "stepped back", (slow, slow_reason)
    # The log shows each step of the climb.
    climb = [t["concurrency"] for t in ran.tasks(executor="0", stage=ran.longest())]
    assert [c for i, c in enumerate(climb) if c not in climb[:i]][:2] == [2, 4], climb
    for executor, found in (("0", fast), ("1", slow)):
        # Spark's metrics show the result, and the report the steps.
        gauges, scan = metric_values(metrics, executor), ran.tasks(executor=executor, stage=ran.longest())
        assert gauges.keys() == GAUGES, gauges.keys() ^ GAUGES
        assert found in gauges["concurrency"] and found in gauges["slots"], (executor, found, gauges)
        assert max(gauges["tasks.running"]) >= 1 and not any(gauges["off"]), gauges
        assert ran.longest() in gauges["stage"] and scan[-1]["reason"] in gauges["reason"], gauges
        assert max(gauges["index.ns2_per_mb"]) in {t["index_ns2_per_mb"] for t in ran.tasks(executor=executor) if "index_ns2_per_mb" in t}
        for name in ("read.bytes", "write.bytes", "read.wait_ns", "write.wait_ns"):
            of_tasks = sum(t.get(name.replace(".", "_"), 0) for t in ran.tasks(executor=executor))
            # Spark itself reads too, outside tasks; and the last second may be missing from the metrics.
            assert 0.5 * of_tasks < max(gauges[name]) < 2 * of_tasks, (name, gauges[name], of_tasks)
        steps = reported(ran.log, ran.longest(), executor)
        assert steps[0] == 2 and steps[-1] == found and len(set(steps)) > 1, (executor, steps)
        # An interval has at least two tasks, four when it counts. Each step ends some, and the log has their index.
        assert 3 <= sum("index_ns2_per_mb" in t for t in scan) <= len(scan) / 2, scan
        assert all(0 <= t["run_queue_ns"] < t["run_ms"] * 2e6 for t in scan), scan
    # The scheduler follows: once running tasks have ended, it sends no more than may run, and none wait at the gate.
    of_slow = ran.tasks(executor="1", stage=ran.longest())
    stepped = next(t["end"] for t in of_slow if REASONS[t["reason"]] == "stepped back")
    later = sorted(t["start"] for t in of_slow if t["start"] > stepped)[4:]
    assert len(later) >= 4, "the stage ended too early"
    assert ran.at_once("1", later[0]) <= 3
    late = of_slow[-8:]
    assert sum(t["queue_ns"] for t in late) < 0.2 * sum(t["run_ms"] for t in late) * 1e6, late
    # The log has each task's wait, and Spark's own count of Parquet bytes stays correct with the plugin.
    assert (min_bytes := min_column_bytes(data / "slow")) > 60_000, min_bytes
    for task in late:
        assert task["io_wait_ns"] >= 150e6, task
        assert task["read_bytes"] >= min_bytes and task["read_wait_ns"] >= 0, task
        assert abs(task["read_bytes"] - task["input"]) < 0.1 * task["input"], task
    wrote = ran.tasks(stage=ran.longest(1))
    assert all(t["write_bytes"] >= 32_000 for t in wrote) and sum(t["write_wait_ns"] > 0 for t in wrote) > FILES / 2, wrote
    assert {REASONS[t["reason"]] for t in ran.tasks(stage=ran.longest(2))} == {"fixed"}
    sizes = [len(json.dumps([a for a in e["Task Info"]["Accumulables"] if str(a.get("Name")).startswith("pellucid.")]))
             for e in ran.events if e["Event"] == "SparkListenerTaskEnd"]  # fmt: skip
    assert max(sizes) <= 1500, max(sizes)
    nothing_failed(ran, 2)


@pytest.mark.full
def test_similar_stages_and_later_applications_reuse_the_concurrency(data, few, tmp_path):
    """Tasks that only compute get every slot."""
    memory = tmp_path / "memory.tsv"
    conf = {"spark.master": "local-cluster[1,8,1024]", "spark.pellucid.mode": "adaptive", "spark.pellucid.memory": str(memory)}
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=200, executors=1, again=True, compute=str(few), conf=conf)
    assert ran.answer == [truth(data / "slow"), truth(data / "slow"), truth(few)]
    # The final value depends on the machine; that tuning ends does not.
    found, why = ran.settled("0")
    assert why in ("at the most", "stepped back"), (found, why)
    assert ran.settled("0", 1) == (found, "remembered")
    assert ran.settled("0", files=FEW)[0] == 8
    assert memory.read_text().count("\n") >= 4
    nothing_failed(ran)
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=200, executors=1, conf=conf)
    assert ran.settled("0") == (found, "remembered")
    nothing_failed(ran)


def gated(*disks: Path, permits: int = 3, min_permits: int | None = None) -> dict[str, str]:
    """Returns settings for monotasks on two cores and this many permits of each disk; counts accesses of the first one."""
    return {
        "spark.master": "local-cluster[1,2,1024]", "spark.plugins": WITH_SLOW_FILES, "spark.pellucid.mode": "monotasks",
        "spark.pellucid.disks": ",".join(map(str, disks)), "spark.slowfiles.folder": str(disks[0]),
        "spark.pellucid.disk.concurrency.min": str(min_permits or permits), "spark.pellucid.disk.concurrency.max": str(permits),
    }  # fmt: skip


def full_only(*values: object):
    """Marks a parameter set for the full run only."""
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["adaptive", "monotasks"])
def test_killed_task_releases_its_permit(data, tmp_path, mode):
    """The killed tasks hold permits or cores that other tasks wait for."""
    conf = {"spark.master": "local-cluster[2,4,1024]", "spark.pellucid.mode": mode}
    ran = run("cancel", tmp_path, data=f"{data}/slow", executors=2, tasks=3, conf=conf)
    assert ran.answer == {"failures": [True], "answer": truth(data / "slow")}
    nothing_failed(ran, 2)


@pytest.mark.parametrize("kind", ["read", full_only("write")])
def test_task_killed_at_a_disk_releases_its_permit(few, tmp_path, kind):
    """Three tasks are in reads or writes, which no interrupt ends; seven leave the disk's queue at once."""
    hold, out = tmp_path / "hold", tmp_path / "out"
    hold.mkdir()
    options = {"hold": str(hold / kind), **({"out": str(out)} if kind == "write" else {})}
    conf = gated(out if kind == "write" else few) | {"spark.slowfiles.hold": str(hold)}
    ran = run("cancel", tmp_path, data=str(few), executors=1, tasks=10, permits=3, **options, conf=conf)
    assert ran.answer["failures"] == [True] and ran.answer["inside"] == 3, ran.answer
    left = {"tasks.running": 0, "tasks.waiting": 0, "cores.held": 0, "disk.running": 3, "disk.waiting": 0}
    assert kind == "write" or ran.answer["left"] == left, ran.answer
    assert ran.answer["answer"] == truth(few)
    nothing_failed(ran)


@pytest.mark.parametrize("mode", ["adaptive", full_only("monotasks")])
def test_lost_executor_leaves_no_permits(data, tmp_path, mode):
    conf = {"spark.master": "local-cluster[2,4,1024]", "spark.pellucid.mode": mode}
    ran = run("lose", tmp_path, data=f"{data}/slow", executors=2, mark=str(tmp_path / "died"), conf=conf)
    assert ran.answer == truth(data / "slow")
    lost = [e for e in ran.events if e["Event"] == "SparkListenerExecutorRemoved" and "exited" in e["Removed Reason"]]
    assert lost, "no executor died"
    nothing_failed(ran, 2)


@pytest.mark.full
def test_plugin_supports_dynamic_allocation_and_tasks_of_two_cores(data, tmp_path):
    """Uses dynamic allocation with decommissioning, `spark.task.cpus`, and structured streaming's micro-batches."""
    elastic = {"enabled": "true", "shuffleTracking.enabled": "true", "shuffleTracking.timeout": "1s", "executorIdleTimeout": "1s",
               "initialExecutors": "1", "minExecutors": "1", "maxExecutors": "2", "schedulerBacklogTimeout": "1s"}  # fmt: skip
    conf = {"spark.master": "local-cluster[2,8,1024]", "spark.executor.cores": "8", "spark.task.cpus": "2", "spark.decommission.enabled": "true",
            "spark.pellucid.mode": "adaptive", **{f"spark.dynamicAllocation.{key}": value for key, value in elastic.items()}}  # fmt: skip
    ran = run("elastic", tmp_path, data=f"{data}/slow", executors=1, batch=150, conf=conf)
    assert ran.answer["answers"] == [truth(data / "slow")] * 3 and ran.answer["batches"] == 3, ran.answer
    added = [e["Executor ID"] for e in ran.events if e["Event"] == "SparkListenerExecutorAdded"]
    removed = [(e["Executor ID"], e["Removed Reason"]) for e in ran.events if e["Event"] == "SparkListenerExecutorRemoved"]
    assert len(added) >= 3 and len(removed) >= 2, (added, removed)
    assert any("decommission" in why.lower() for _, why in removed), removed
    # Eight cores are four slots; each executor starts with two, including those that are added later.
    chosen = {executor: {t["concurrency"] for t in ran.tasks(executor=executor, failed=False)} for executor in added}
    assert all(found <= {2, 4} for found in chosen.values()) and any(chosen[executor] for executor in added[2:]), chosen
    nothing_failed(ran)


@pytest.mark.full
def test_tasks_of_half_a_core_are_only_measured(few, tmp_path):
    """Spark 4.3 and later allow them: all four go to two cores, none waits, and their reads are measured."""
    conf = {"spark.master": "local-cluster[1,2,1024]", "spark.task.cpus": "0.5", "spark.pellucid.mode": "monotasks"}
    ran = run("tune", tmp_path, data=str(few), ms=200, executors=1, conf=conf)
    assert ran.answer == [truth(few)]
    assert "Pellucid measures" in ran.errors and "spark.task.cpus=0.5" in ran.errors, ran.errors
    found = ran.tasks(stage=ran.longest(files=FEW))
    assert {(t["concurrency"], REASONS[t["reason"]]) for t in found} == {(4, "fixed")}
    assert ran.at_once("0", files=FEW) >= 4 and all(t["read_bytes"] > 0 and t.get("queue_ns", 0) == 0 for t in found)
    assert "Pellucid failed" not in ran.executors + ran.errors


@versions
def test_monotasks_mode_gates_files_until_it_is_switched_off(few, tmp_path, version):
    """Concurrent accesses never exceed the permits, as counted beneath the plugin.

    A job that switches the plugin off has no gate, no queue and as many slots as cores.
    """
    conf = gated(few, permits=1) | {"spark.slowfiles.ms": "5"}
    ran = run("switch", tmp_path, version, data=str(few), ms=30, executors=1, conf=conf)
    answers, peaks, accesses = zip(*ran.answer, strict=True)
    assert list(answers) == [truth(few)] * 3
    # Without gating, both tasks on the two cores access the disk at once.
    assert peaks == (1, 2, 1) and all(count >= FEW for count in accesses), ran.answer
    # Two cores, one permit, four for the network, and one more.
    at_once = [ran.on_average(nth, FEW) for nth in range(3)]
    assert at_once[1] < 3 < 7 < min(at_once[0], at_once[2]), at_once
    on, off, again = (ran.tasks(stage=ran.longest(nth, FEW))[FEW // 4 :] for nth in range(3))
    assert all(t["queue_ns"] > 0 for t in on + again) and not any(t["queue_ns"] for t in off), (on, off, again)
    # One more: reading shuffle files has registered their disk since.
    assert [{t["concurrency"] for t in each} for each in (on, off, again)] == [{8}, {2}, {9}], (on, off, again)
    assert {t["disk_permits"] for t in on + again} == {1} and not any("disk_permits" in t for t in off), (on, off, again)
    nothing_failed(ran)


@pytest.mark.full
@versions
def test_monotasks_mode_reports_permits_and_waits(few, tmp_path, version):
    """The number of permits adapts; Spark's metrics and log show permits, their use and the time spent waiting."""
    metrics, out = tmp_path / "metrics", tmp_path / "out"
    out.mkdir()
    conf = gated(few, out, min_permits=1) | {"spark.slowfiles.ms": "5", **sink(metrics)}
    ran = run("tune", tmp_path, version, data=str(few), out=str(out / "rows"), ms=50, executors=1, counted=True, conf=conf)
    answer, (peak, accesses) = ran.answer
    assert answer == truth(few)
    gauges, scan, wrote = metric_values(metrics, "0"), *(ran.tasks(stage=ran.longest(nth, FEW)) for nth in range(2))
    of_disk = {folder: "disk." + "_".join(str(folder).strip("/").split("/")) for folder in (few, out)}
    assert gauges.keys() >= GAUGES | OF_DISKS | {f"{name}.{what}" for name in of_disk.values() for what in ("permits", "reason", "peak", "over")}
    # More permits than one pay when nothing else uses the disk; the counts beneath the plugin match its own.
    assert 2 <= peak <= 3 and ran.held["0"]["peak"] >= peak and accesses >= FEW, (ran.answer, ran.held)
    # Gauges are sampled each second and may miss shorter states.
    assert set(gauges[f"{of_disk[few]}.over"]) == {0}
    assert max(gauges[f"{of_disk[few]}.permits"]) <= 3 and 1 <= max(gauges[f"{of_disk[few]}.peak"]) <= peak, gauges
    assert peak == max(t["disk_permits"] for t in scan), scan
    assert max(gauges["disk.permits"]) <= 9 and max(gauges["disk.waiting"]) >= 4 and max(gauges["disk.running"]) >= 1, gauges
    # Two cores, three permits of each disk, four for the network, one more; later also the disk of shuffle files.
    assert {t["concurrency"] for t in scan} == {13} and {t["concurrency"] for t in wrote} == {16} and max(gauges["slots"]) == 16
    assert 1 <= max(gauges["cores.held"]) <= 16, gauges
    queued = sum(t["queue_ns"] for t in ran.tasks())
    assert 0.5 * queued < max(gauges["queue_ns"]) < 2 * queued, (gauges["queue_ns"], queued)
    for task in scan[FEW // 4 :]:
        assert 0 < task["queue_ns"] <= task["run_ms"] * 1.1e6 and task["read_wait_ns"] >= 5e6, task
    # Written data are flushed to the disk.
    for task in wrote:
        assert task["write_bytes"] >= 32_000 and task["write_wait_ns"] >= 0 and task["queue_ns"] > 0, task
    # For a single task, reads may account for all of its time off the core.
    assert sum(t["write_wait_ns"] > 0 for t in wrote) > FEW / 2, wrote
    nothing_failed(ran)


@pytest.mark.parametrize("mode", ["adaptive", full_only("monotasks")])
def test_executors_exit_when_the_driver_is_killed(few, tmp_path, mode):
    """The plugin must not keep an executor alive whose driver was killed, as on stock Spark.

    Tasks hold permits or are in a disk's reads while others wait.
    """
    executor, hold = b"CoarseGrainedExecutorBackend", tmp_path / "hold"
    hold.mkdir()
    conf, options = {"spark.master": "local-cluster[2,4,1024]", "spark.pellucid.mode": mode}, {"tasks": 4}
    if mode == "monotasks":
        conf = gated(few) | {"spark.master": "local-cluster[2,2,1024]", "spark.slowfiles.hold": str(hold)}
        options = {"tasks": 20, "permits": 6, "hold": str(hold / "read")}
    started = command("hang", tmp_path, data=str(few), executors=2, **options, conf=conf)
    executors: set[int] = set()
    output = tmp_path / "output"
    with open(output, "w") as out, subprocess.Popen(**started, stdout=out, stderr=out) as process:
        try:
            binary.wait_until(lambda: "running\n" in output.read_text(), process, timeout=300)
            family = below(process.pid)
            executors = {pid for pid in family if runs(pid, executor)}
            assert len(executors) == 2, family
            (driver,) = (pid for pid in family - executors if runs(pid, b"SparkSubmit"))
            os.kill(driver, signal.SIGKILL)
            deadline = time.monotonic() + 120
            while left := {pid for pid in executors if runs(pid, executor)}:
                assert time.monotonic() < deadline, f"executors {left} outlived their driver"
                time.sleep(0.1)
        finally:
            end({process.pid} | below(process.pid) | executors)
    for log in Path(json.loads(started["args"][-1])["conf"]["spark.eventLog.dir"]).iterdir():
        shutil.rmtree(spark.home() / "work" / log.name.partition(".")[0], ignore_errors=True)


# Every callback and every guarded section; each fault trips the failsafe of a whole process.
FAULTS = ("init", "onTaskStart", "onTaskCompletion", "onTaskSucceeded", "onTaskFailed", "shutdown", "read", "write", "core", "disk",
          "disks", "force", "message", "driver.init", "driver.listener", "driver.receive")  # fmt: skip


def small(data: Path, folder: Path) -> Path:
    """Copies the rows, and 20 of the one-row files."""
    shutil.copytree(data / "rows", folder / "rows")
    shutil.copytree(data / "slow", folder / "slow", ignore=lambda _, names: sorted(names)[20:])
    return folder


@versions
def test_plugin_failures_do_not_fail_the_job(data, tmp_path, version):
    """Other modes, invalid settings and other plugins do not change results either. Each application has a failing task."""
    each = {
        "stock": {"spark.plugins": ""}, "measure": {"spark.pellucid.mode": "measure"}, "index": {"spark.pellucid.policy": "index"},
        "monotasks": {"spark.pellucid.mode": "monotasks"}, "off": {"spark.pellucid.mode": "off"},
        "wrong-mode": {"spark.pellucid.mode": "fast"}, "wrong-key": {"spark.pellucid.moed": "off"},
        "wrong-memory": {"spark.pellucid.memory": "/proc/version"},
        "other-plugin": {"spark.plugins": f"{PLUGIN},org.pellucid.spark.OtherPlugin"},
        "other-shuffle": {"spark.shuffle.manager": "org.pellucid.spark.OtherShuffle"},
        "other-shuffle-monotasks": {"spark.shuffle.manager": "org.pellucid.spark.OtherShuffle", "spark.pellucid.mode": "monotasks"},
    }  # fmt: skip
    for fault in FAULTS:
        mode = "monotasks" if fault in ("core", "disk", "disks", "force") else "adaptive"
        each[fault] = {"spark.pellucid.fault": fault, "spark.pellucid.mode": mode}
    blank = {"spark.pellucid.fault": "", "spark.pellucid.mode": "adaptive", "spark.pellucid.policy": "throughput"}
    each = {name: {"spark.plugins": PLUGIN, **blank, **conf} for name, conf in each.items()}
    folder = small(data, tmp_path / "data")
    ran = run("several", tmp_path, version, False, data=str(folder), each=each, conf={"spark.master": "local[4,4]"})
    assert len({json.dumps(result["answer"]) for result in ran.answer.values()}) == 1, ran.answer
    assert ran.answer["stock"]["answer"][1] == truth(folder / "slow")
    for result in ran.answer.values():
        nothing_held(result["held"])
    assert "spark.pellucid.mode=fast: expected one of [adaptive, monotasks, measure, off]" in ran.errors
    assert "unknown setting spark.pellucid.moed" in ran.errors
    assert "Pellucid only measures: spark.pellucid.policy has no effect without spark.pellucid.mode=adaptive or monotasks" in ran.errors
    assert "/proc/version, line 1" in ran.errors
    # Both plugins saw a scan, a write and the task that asks.
    seen = int(ran.errors.split("the other plugin saw ")[1].split()[0])
    assert seen > 20 and "Pellucid is not the only one of spark.plugins=" in ran.errors, seen
    assert ran.errors.count("not with spark.shuffle.manager=org.pellucid.spark.OtherShuffle") == 2
    failures = defaultdict(int)
    for line in ran.errors.splitlines():
        if "Pellucid failed in" in line:
            failures[line.split("Pellucid failed in ")[1].split(" ")[0]] += 1
    assert dict(failures) == dict.fromkeys(FAULTS, 1), dict(failures)


@pytest.mark.parametrize("mode", ["adaptive", "monotasks"])
def test_executors_regain_their_slots_after_a_failure(few, tmp_path, mode):
    """As many tasks run at once as on stock Spark, whether there were fewer or more before."""
    slots = {"adaptive": 8, "monotasks": 2}[mode]
    conf = {"spark.master": f"local-cluster[1,{slots},1024]", "spark.pellucid.mode": mode, "spark.pellucid.fault": "write",
            "spark.pellucid.concurrency.max": "2"}  # fmt: skip
    ran = run("fail", tmp_path, data=str(few), out=str(tmp_path / "out"), ms=100, executors=1, conf=conf)
    assert ran.answer == [truth(few)] * 2
    before, after = ran.on_average(0, FEW), ran.on_average(2, FEW)
    assert (before < 3 < 7 < after) if mode == "adaptive" else (before > 9 > 3 > after), (before, after)
    assert ran.executors.count("Pellucid failed in write") == 1
    assert [each["off"] for each in ran.held.values()] == [1], ran.held
    nothing_held(ran.held)


@pytest.mark.parametrize("line", ["documented", full_only("printed")])
def test_documented_command_line_is_sufficient(data, tmp_path, line):
    """Runs PySpark's own `spark-submit` with the documented options alone.

    Everything is measured, and every slot has a task, as on stock Spark. Also uses the output of `pellucid spark conf`, split
    at spaces as an unquoted `$(…)` is.
    """
    lines = (ROOT / "docs" / "spark-plugin.md").read_text().splitlines()
    program, *words = shlex.split(next(line for line in lines if line.startswith("spark-submit ")).removesuffix("…"))
    assert "pellucid-spark.jar" in words, words
    if line == "printed":
        jar = tmp_path / "jars and more" / JAR.name
        jar.parent.mkdir()
        shutil.copy(JAR, jar)
        words = binary.run("spark", "conf", env={**os.environ, "PELLUCID_SPARK_JAR": str(jar)}).check().out.split()
    logs = tmp_path / "events"
    logs.mkdir()
    more = {"spark.master": "local-cluster[1,8,1024]", "spark.eventLog.enabled": "true", "spark.eventLog.dir": str(logs),
            "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false", "spark.executor.memory": "900m"}  # fmt: skip
    command = [str(spark.home() / "bin" / program), *(str(JAR) if word == "pellucid-spark.jar" else word for word in words)]
    command += [word for key, value in more.items() for word in ("--conf", f"{key}={value}")]
    text = f"SELECT sum(id), sum(crc32(payload)), count(*) FROM parquet.`{data}/slow`"
    command += [str(JOBS), "read", json.dumps({"conf": {}, "text": text})]
    ran = ended({"args": command, "env": {**spark.environment(), "PYSPARK_DRIVER_PYTHON": str(spark.python())}, "cwd": tmp_path, "text": True}, logs)
    assert ran.answer == truth(data / "slow")
    tasks = ran.tasks()
    assert tasks and {(task["concurrency"], REASONS[task["reason"]]) for task in tasks} == {(8, "fixed")}, tasks
    assert not any(task.get("queue_ns") for task in tasks), tasks
    # Spark logs this if slots were changed.
    assert "Ignoring update with state" not in ran.errors and "Pellucid failed" not in ran.executors + ran.errors


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted by root alone")
def test_full_disk_fails_the_job_as_without_the_plugin(data, tmp_path):
    """The errors for output and shuffle files are the same; the next job runs, and nothing is held."""
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "pellucid-small", disk], check=True)
    try:
        modes = {mode: {"spark.plugins": PLUGIN, "spark.pellucid.mode": mode} for mode in ("adaptive", "monotasks", "measure")}
        each = {"stock": {"spark.plugins": "", "spark.pellucid.mode": "off"}, **modes}
        folder = small(data, tmp_path / "data")
        options = {"data": f"{folder}/slow", "out": str(tmp_path / "out"), "small": str(disk)}
        ran = run("fill", tmp_path, plugin=False, **options, each=each, conf={"spark.master": "local[4]"})
    finally:
        subprocess.run(["umount", disk], check=True)
    for mode, result in ran.answer.items():
        assert ["No space left on device" in error for error in result["errors"]] == [True, True], (mode, result["errors"])
        assert result["answer"] == truth(folder / "slow"), mode
        for held in result["held"]:
            nothing_held(held)
    assert "Pellucid failed" not in ran.errors


def test_misspelt_plugin_is_named_by_spark(data, tmp_path):
    """Spark itself reports it and does not start; the plugin is not loaded."""
    started = command("read", tmp_path, text="SELECT 1", conf={"spark.master": "local[1]", "spark.plugins": f"{PLUGIN}s"})
    done = subprocess.run(**started, capture_output=True, timeout=300)
    assert done.returncode and f"ClassNotFoundException: {PLUGIN}s" in done.stderr, done.stderr[-3000:]


def test_jar_targets_java_11_and_has_no_dependencies():
    """Spark 3.5 still runs on Java 11, and bundled third-party classes could shadow Spark's own versions."""
    with zipfile.ZipFile(JAR) as jar:
        classes = [name for name in jar.namelist() if name.endswith(".class")]
        assert classes and all(name.startswith("org/pellucid/spark/") for name in classes), classes
        for name in classes:
            assert int.from_bytes(jar.read(name)[6:8], "big") <= 55, name


MISSING = [
    "core/Tuner",
    "core/Memory",
    "metrics/ThreadClock",
    "driver/StageSite",
    "shuffle/StageShuffles",
    "io/LocalFiles",
    "io/MeasuredInput",
    "io/MeasuredOutput",
]


@pytest.mark.full
@pytest.mark.parametrize("name", MISSING)
def test_missing_class_disables_the_plugin_and_not_the_job(data, tmp_path, name):
    """Simulates an unknown version of Spark or Hadoop."""
    folder = small(data, tmp_path / "data")
    part = tmp_path / "part.jar"
    with zipfile.ZipFile(JAR) as whole, zipfile.ZipFile(part, "w") as jar:
        for entry in whole.namelist():
            if entry != f"org/pellucid/spark/{name}.class":
                jar.writestr(entry, whole.read(entry))
    conf = {"spark.master": "local[2,4]", "spark.jars": f"{part},{HELPER}", "spark.pellucid.mode": "adaptive"}
    ran = run("several", tmp_path, data=str(folder), each={"part": {}}, conf=conf)
    assert ran.answer["part"]["answer"][1] == truth(folder / "slow")
    nothing_held(ran.answer["part"]["held"])
    lines = [line for line in ran.errors.splitlines() if "Pellucid failed in" in line or "lacks a class" in line]
    assert len(lines) == 1, ran.errors[-4000:]
    assert f"NoClassDefFoundError: org/pellucid/spark/{name}" in ran.errors, ran.errors[-4000:]


@pytest.mark.full
def test_gate_limits_tasks_when_slots_cannot_change(data, tmp_path):
    """Simulates a Spark with another scheduler: it sends as many as it likes, and the executor limits them."""
    conf = {"spark.master": "local-cluster[1,8,1024]", "spark.pellucid.mode": "adaptive", "spark.pellucid.fault": "slots",
            "spark.pellucid.concurrency.max": "2"}  # fmt: skip
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=50, executors=1, conf=conf)
    assert ran.answer == [truth(data / "slow")]
    assert "Pellucid cannot change this Spark's slots" in ran.errors
    assert ran.settled("0") == (2, "fixed")
    tasks = ran.tasks(executor="0", stage=ran.longest())
    assert ran.at_once("0") >= 8
    # Two of eight tasks run; the others wait at the gate.
    assert sum(t["queue_ns"] for t in tasks) > 0.5 * sum(t["run_ms"] for t in tasks) * 1e6
    nothing_failed(ran)


@pytest.mark.full
@versions
def test_tpch_and_sort_are_the_same_with_and_without_the_plugin(tmp_path, version):
    folder = binary.ensure_data("tpch", 0.1)
    tables = {path.stem: str(path) for path in folder.glob("*.parquet")}
    conf = {"spark.master": "local-cluster[2,8,1024]", "spark.sql.files.maxPartitionBytes": "2m"}
    answers, orders = [], []
    for mode in ("stock", "adaptive", "monotasks"):
        extra = {} if mode == "stock" else {"spark.pellucid.mode": mode}
        written = tmp_path / mode
        job = {"tables": tables, "texts": oracle.texts("tpch"), "sorted": str(written), "executors": 2}
        ran = run("queries", tmp_path, version, mode != "stock", **job, conf={**conf, **extra})
        answers.append(ran.answer)
        rows = f"read_parquet('{written}/*.parquet', filename = true, file_row_number = true)"
        orders.append(digest_in_order(rows, "filename, file_row_number"))
        assert ("concurrency" in ran.tasks(failed=False)[-1]) == (mode != "stock"), "the plugin must be loaded in its modes only"
        if mode != "stock":
            nothing_failed(ran, 2)
    keys = "l_extendedprice, l_orderkey, l_linenumber"
    right = digest_in_order(f"read_parquet('{tables['lineitem']}')", keys)
    assert orders == [right] * 3
    assert len(answers[0]) == 22 and all(answers[0][str(number)] for number in range(1, 23)), "a query has no answer"
    for number in answers[0]:
        assert answers[0][number] == answers[1][number] == answers[2][number], number


def digest_in_order(rows: str, order: str) -> tuple:
    """Returns count and hash of the sorted rows in their stored order."""
    text = f"""SELECT count(*), md5(string_agg(concat_ws('|', l_extendedprice, l_orderkey, l_linenumber, l_comment), ';' ORDER BY {order}))
        FROM {rows}"""
    return duckdb.sql(text).fetchone()
