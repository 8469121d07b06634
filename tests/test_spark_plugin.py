"""The Spark plugin (`spark-plugin/`) on real executors: what it changes, measures, and survives.

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

from tests import binary, oracle, spark
from tests.spark_applications import (
    BENEATH,
    FEW,
    FILES,
    HELPER,
    JAR,
    JOBS,
    PLUGIN,
    REASONS,
    ROOT,
    command,
    end,
    ended,
    environment,
    least_bytes,
    nothing_failed,
    nothing_held,
    reported,
    run,
    runs,
    sink,
    told,
    truth,
    versions,
)
from tests.spark_applications import data, few, jar  # noqa: F401 (fixtures)
from tests.spark_applications import needed as pytestmark
from tests.threads import below

# What the documentation says that there is.
GAUGES = {
    "slots", "tasks.running", "tasks.waiting", "stage", "concurrency", "reason", "index.ns2_per_mb", "read.bytes", "read.wait_ns",
    "write.bytes", "write.wait_ns", "shuffle.read.bytes", "queue_ns", "off",
}  # fmt: skip
OF_DISKS = {"disk.running", "disk.waiting", "disk.permits", "disk.peak", "cores.held"}


@versions
def test_each_executor_finds_its_own_concurrency(data, tmp_path, version):
    """By its own disk, in log, metrics, scheduler and Pellucid's report; off for a job; a barrier stage gets all slots."""
    metrics = tmp_path / "metrics"
    ran = run(
        "tune", tmp_path, version, data=f"{data}/slow", ms=400, executors=2, out=str(tmp_path / "out"), off=True, barrier=30,
        # One head gains nothing from more at once, no head gains all: so wide a margin that a busy machine changes neither. By the
        # default of 0.07 chance was seen to bring the one head to four.
        conf={"spark.master": "local-cluster[2,16,1024]", "spark.pellucid.mode": "adaptive", "spark.pellucid.gain": "0.4", **sink(metrics)},
    )  # fmt: skip
    tuned, off, barrier = ran.answer
    assert tuned == off == truth(data / "slow")
    assert barrier == sum(range(30))
    fast, fast_reason = ran.settled("0")
    slow, slow_reason = ran.settled("1")
    assert fast >= 4 and fast_reason in ("doubled", "at the most", "stepped back"), (fast, fast_reason)
    assert slow == 2 and slow_reason == "stepped back", (slow, slow_reason)
    # The climb is in the log, step by step.
    climb = [t["concurrency"] for t in ran.tasks(executor="0", stage=ran.longest())]
    assert [c for i, c in enumerate(climb) if c not in climb[:i]][:2] == [2, 4], climb
    for executor, found in (("0", fast), ("1", slow)):
        # What each came to is in Spark's metrics, and the way to it in the report.
        gauges, scan = told(metrics, executor), ran.tasks(executor=executor, stage=ran.longest())
        assert gauges.keys() == GAUGES, gauges.keys() ^ GAUGES
        assert found in gauges["concurrency"] and found in gauges["slots"], (executor, found, gauges)
        assert 1 <= max(gauges["tasks.running"]) and not any(gauges["off"]), gauges
        assert ran.longest() in gauges["stage"] and scan[-1]["reason"] in gauges["reason"], gauges
        assert max(gauges["index.ns2_per_mb"]) in {t["index_ns2_per_mb"] for t in ran.tasks(executor=executor) if "index_ns2_per_mb" in t}
        for name in ("read.bytes", "write.bytes", "read.wait_ns", "write.wait_ns"):
            of_tasks = sum(t.get(name.replace(".", "_"), 0) for t in ran.tasks(executor=executor))
            # Beside tasks, Spark itself reads; and the last second may not have been told any more.
            assert 0.5 * of_tasks < max(gauges[name]) < 2 * of_tasks, (name, gauges[name], of_tasks)
        steps = reported(ran.log, ran.longest(), executor)
        assert steps[0] == 2 and steps[-1] == found and len(set(steps)) > 1, (executor, steps)
        # An interval of two tasks at the least, four where it counts: each climb ends some, and their index is in the log.
        assert 3 <= sum("index_ns2_per_mb" in t for t in scan) <= len(scan) / 2, scan
        assert all(0 <= t["run_queue_ns"] < t["run_ms"] * 2e6 for t in scan), scan
    # The scheduler follows: when what was under way has ended it sends no more than run, and they do not stand at the gate.
    of_slow = ran.tasks(executor="1", stage=ran.longest())
    stepped = next(t["end"] for t in of_slow if REASONS[t["reason"]] == "stepped back")
    later = sorted(t["start"] for t in of_slow if t["start"] > stepped)[4:]
    assert len(later) >= 4, "the stage was over too soon to say"
    assert ran.at_once("1", later[0]) <= 3
    late = of_slow[-8:]
    assert sum(t["queue_ns"] for t in late) < 0.2 * sum(t["run_ms"] for t in late) * 1e6, late
    # What a task waited is in the log, and what Spark counts of Parquet is right with the plugin.
    assert (least := least_bytes(data / "slow")) > 60_000, least
    for task in late:
        assert task["io_wait_ns"] >= 150e6, task
        assert task["read_bytes"] >= least and task["read_wait_ns"] >= 0, task
        assert abs(task["read_bytes"] - task["input"]) < 0.1 * task["input"], task
    wrote = ran.tasks(stage=ran.longest(1))
    assert all(t["write_bytes"] >= 32_000 for t in wrote) and sum(t["write_wait_ns"] > 0 for t in wrote) > FILES / 2, wrote
    assert {REASONS[t["reason"]] for t in ran.tasks(stage=ran.longest(2))} == {"fixed"}
    sizes = [len(json.dumps([a for a in e["Task Info"]["Accumulables"] if str(a.get("Name")).startswith("pellucid.")]))
             for e in ran.events if e["Event"] == "SparkListenerTaskEnd"]  # fmt: skip
    assert max(sizes) <= 1500, max(sizes)
    nothing_failed(ran, 2)


@pytest.mark.full
def test_a_like_stage_takes_what_was_found_and_the_next_application_too(data, few, tmp_path):
    """And tasks that only compute get every slot."""
    memory = tmp_path / "memory.tsv"
    conf = {"spark.master": "local-cluster[1,8,1024]", "spark.pellucid.mode": "adaptive", "spark.pellucid.memory": str(memory)}
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=200, executors=1, again=True, compute=str(few), conf=conf)
    assert ran.answer == [truth(data / "slow"), truth(data / "slow"), truth(few)]
    # How far it came is the machine's; that it came to an end is not.
    found, why = ran.settled("0")
    assert why in ("at the most", "stepped back"), (found, why)
    assert ran.settled("0", 1) == (found, "remembered")
    assert ran.settled("0", files=FEW)[0] == 8
    assert memory.read_text().count("\n") >= 4
    nothing_failed(ran)
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=200, executors=1, conf=conf)
    assert ran.settled("0") == (found, "remembered")
    nothing_failed(ran)


def gated(*disks: Path, permits: int = 3, least: int | None = None) -> dict[str, str]:
    """Monotasks on two cores, with so many permits of each of these disks, of the first of which accesses are counted beneath."""
    return {
        "spark.master": "local-cluster[1,2,1024]", "spark.plugins": BENEATH, "spark.pellucid.mode": "monotasks",
        "spark.pellucid.disks": ",".join(map(str, disks)), "spark.slowfiles.folder": str(disks[0]),
        "spark.pellucid.disk.concurrency.min": str(least or permits), "spark.pellucid.disk.concurrency.max": str(permits),
    }  # fmt: skip


def seldom(*values: object):
    """The other of two cases: only with `PELLUCID_FULL`."""
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["adaptive", "monotasks"])
def test_a_killed_task_costs_no_leave(data, tmp_path, mode):
    """Those that are killed hold leaves, or cores, and others wait for them."""
    conf = {"spark.master": "local-cluster[2,4,1024]", "spark.pellucid.mode": mode}
    ran = run("cancel", tmp_path, data=f"{data}/slow", executors=2, tasks=3, conf=conf)
    assert ran.answer == {"failures": [True], "answer": truth(data / "slow")}
    nothing_failed(ran, 2)


@pytest.mark.parametrize("kind", ["read", seldom("write")])
def test_a_task_killed_at_a_disk_costs_no_permit(few, tmp_path, kind):
    """Three are in the disk's reads or writes, which no interrupt ends, and seven in its queue, which they leave at once."""
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


@pytest.mark.parametrize("mode", ["adaptive", seldom("monotasks")])
def test_a_lost_executor_costs_no_leave(data, tmp_path, mode):
    conf = {"spark.master": "local-cluster[2,4,1024]", "spark.pellucid.mode": mode}
    ran = run("lose", tmp_path, data=f"{data}/slow", executors=2, mark=str(tmp_path / "died"), conf=conf)
    assert ran.answer == truth(data / "slow")
    lost = [e for e in ran.events if e["Event"] == "SparkListenerExecutorRemoved" and "exited" in e["Removed Reason"]]
    assert lost, "an executor died"
    nothing_failed(ran, 2)


@pytest.mark.full
def test_executors_that_come_and_go_and_tasks_of_two_cores(data, tmp_path):
    """Dynamic allocation with decommissioning, `spark.task.cpus`, and structured streaming's micro-batches."""
    elastic = {"enabled": "true", "shuffleTracking.enabled": "true", "shuffleTracking.timeout": "1s", "executorIdleTimeout": "1s",
               "initialExecutors": "1", "minExecutors": "1", "maxExecutors": "2", "schedulerBacklogTimeout": "1s"}  # fmt: skip
    conf = {"spark.master": "local-cluster[2,8,1024]", "spark.executor.cores": "8", "spark.task.cpus": "2", "spark.decommission.enabled": "true",
            "spark.pellucid.mode": "adaptive", **{f"spark.dynamicAllocation.{key}": value for key, value in elastic.items()}}  # fmt: skip
    ran = run("elastic", tmp_path, data=f"{data}/slow", executors=1, batch=150, conf=conf)
    assert ran.answer["answers"] == [truth(data / "slow")] * 3 and ran.answer["batches"] == 3, ran.answer
    came = [e["Executor ID"] for e in ran.events if e["Event"] == "SparkListenerExecutorAdded"]
    went = [(e["Executor ID"], e["Removed Reason"]) for e in ran.events if e["Event"] == "SparkListenerExecutorRemoved"]
    assert len(came) >= 3 and len(went) >= 2, (came, went)
    assert any("decommission" in why.lower() for _, why in went), went
    # Eight cores are four slots; each executor starts at two, also one that comes later.
    chosen = {executor: {t["concurrency"] for t in ran.tasks(executor=executor, failed=False)} for executor in came}
    assert all(found <= {2, 4} for found in chosen.values()) and any(chosen[executor] for executor in came[2:]), chosen
    nothing_failed(ran)


@pytest.mark.full
def test_tasks_of_half_a_core_are_left_alone(few, tmp_path):
    """As Spark takes them from 4.3 on: all four are sent to two cores, none waits, and what they read is measured."""
    conf = {"spark.master": "local-cluster[1,2,1024]", "spark.task.cpus": "0.5", "spark.pellucid.mode": "monotasks"}
    ran = run("tune", tmp_path, data=str(few), ms=200, executors=1, conf=conf)
    assert ran.answer == [truth(few)]
    assert "Pellucid measures" in ran.errors and "spark.task.cpus=0.5" in ran.errors, ran.errors
    found = ran.tasks(stage=ran.longest(files=FEW))
    assert {(t["concurrency"], REASONS[t["reason"]]) for t in found} == {(4, "fixed")}
    assert ran.at_once("0", files=FEW) >= 4 and all(t["read_bytes"] > 0 and t.get("queue_ns", 0) == 0 for t in found)
    assert "Pellucid failed" not in ran.executors + ran.errors


@versions
def test_monotasks_gates_files_until_it_is_switched_off(few, tmp_path, version):
    """No more threads are in accesses than there are permits, by what lies beneath; and for a job that switches the plugin off
    there are no gate, no queue and no more slots than cores."""
    conf = gated(few, permits=1) | {"spark.slowfiles.ms": "5"}
    ran = run("switch", tmp_path, version, data=str(few), ms=30, executors=1, conf=conf)
    answers, most, accesses = zip(*ran.answer, strict=True)
    assert list(answers) == [truth(few)] * 3
    # Of two tasks on two cores both are in accesses, once nothing is gated.
    assert most == (1, 2, 1) and all(count >= FEW for count in accesses), ran.answer
    # Two cores, a permit, four on the network, one.
    at_once = [ran.on_average(nth, FEW) for nth in range(3)]
    assert at_once[1] < 3 < 7 < min(at_once[0], at_once[2]), at_once
    on, off, again = (ran.tasks(stage=ran.longest(nth, FEW))[FEW // 4 :] for nth in range(3))
    assert all(t["queue_ns"] > 0 for t in on + again) and not any(t["queue_ns"] for t in off), (on, off, again)
    # One more, since when shuffle files were read their disk was met.
    assert [{t["concurrency"] for t in each} for each in (on, off, again)] == [{8}, {2}, {9}], (on, off, again)
    assert {t["disk_permits"] for t in on + again} == {1} and not any("disk_permits" in t for t in off), (on, off, again)
    nothing_failed(ran)


@pytest.mark.full
@versions
def test_monotasks_says_what_it_gates(few, tmp_path, version):
    """Permits are found, and Spark's metrics and log say how many there are, how many are used, and what that costs."""
    metrics, out = tmp_path / "metrics", tmp_path / "out"
    out.mkdir()
    conf = gated(few, out, least=1) | {"spark.slowfiles.ms": "5", **sink(metrics)}
    ran = run("tune", tmp_path, version, data=str(few), out=str(out / "rows"), ms=50, executors=1, counted=True, conf=conf)
    answer, (most, accesses) = ran.answer
    assert answer == truth(few)
    gauges, scan, wrote = told(metrics, "0"), *(ran.tasks(stage=ran.longest(nth, FEW)) for nth in range(2))
    of_disk = {folder: "disk." + "_".join(str(folder).strip("/").split("/")) for folder in (few, out)}
    assert gauges.keys() >= GAUGES | OF_DISKS | {f"{name}.{what}" for name in of_disk.values() for what in ("permits", "reason", "peak", "over")}
    # One more permit than one pays where nothing disturbs anything; what lies beneath saw no other number than the plugin.
    assert 2 <= most <= 3 and ran.held["0"]["peak"] >= most and accesses >= FEW, (ran.answer, ran.held)
    # Gauges are looked at each second: what was for less than that they may not have seen.
    assert set(gauges[f"{of_disk[few]}.over"]) == {0}
    assert max(gauges[f"{of_disk[few]}.permits"]) <= 3 and 1 <= max(gauges[f"{of_disk[few]}.peak"]) <= most, gauges
    assert most == max(t["disk_permits"] for t in scan), scan
    assert max(gauges["disk.permits"]) <= 9 and max(gauges["disk.waiting"]) >= 4 and max(gauges["disk.running"]) >= 1, gauges
    # Two cores, three permits of each disk, four on the network, one; and of the disk of shuffle files, when they have been read.
    assert {t["concurrency"] for t in scan} == {13} and {t["concurrency"] for t in wrote} == {16} and max(gauges["slots"]) == 16
    assert 1 <= max(gauges["cores.held"]) <= 16, gauges
    queued = sum(t["queue_ns"] for t in ran.tasks())
    assert 0.5 * queued < max(gauges["queue_ns"]) < 2 * queued, (gauges["queue_ns"], queued)
    for task in scan[FEW // 4 :]:
        assert 0 < task["queue_ns"] <= task["run_ms"] * 1.1e6 and task["read_wait_ns"] >= 5e6, task
    # What is written is forced.
    for task in wrote:
        assert task["write_bytes"] >= 32_000 and task["write_wait_ns"] >= 0 and task["queue_ns"] > 0, task
    # Of one task reads may have taken all that it was off its core for.
    assert sum(t["write_wait_ns"] > 0 for t in wrote) > FEW / 2, wrote
    nothing_failed(ran)


@pytest.mark.parametrize("mode", ["adaptive", seldom("monotasks")])
def test_executors_end_with_their_driver(few, tmp_path, mode):
    """As on stock Spark: nothing of the plugin keeps an executor whose driver was killed, though tasks hold leaves, or are in a disk's reads,
    and others wait."""
    executor, hold = b"CoarseGrainedExecutorBackend", tmp_path / "hold"
    hold.mkdir()
    conf, options = {"spark.master": "local-cluster[2,4,1024]", "spark.pellucid.mode": mode}, {"tasks": 4}
    if mode == "monotasks":
        conf = gated(few) | {"spark.master": "local-cluster[2,2,1024]", "spark.slowfiles.hold": str(hold)}
        options = {"tasks": 20, "permits": 6, "hold": str(hold / "read")}
    started = command("hang", tmp_path, data=str(few), executors=2, **options, conf=conf)
    executors: set[int] = set()
    said = tmp_path / "said"
    with open(said, "w") as out, subprocess.Popen(**started, stdout=out, stderr=out) as process:
        try:
            binary.wait_until(lambda: "running\n" in said.read_text(), process, timeout=300)
            family = below(process.pid)
            executors = {pid for pid in family if runs(pid, executor)}
            assert len(executors) == 2, family
            (driver,) = (pid for pid in family - executors if runs(pid, b"SparkSubmit"))
            os.kill(driver, signal.SIGKILL)
            until = time.monotonic() + 120
            while left := {pid for pid in executors if runs(pid, executor)}:
                assert time.monotonic() < until, f"executors {left} outlived their driver"
                time.sleep(0.1)
        finally:
            end({process.pid} | below(process.pid) | executors)
    for log in Path(json.loads(started["args"][-1])["conf"]["spark.eventLog.dir"]).iterdir():
        shutil.rmtree(spark.home() / "work" / log.name.partition(".")[0], ignore_errors=True)


# Every callback and every guarded part; each trips the failsafe of a whole process.
FAULTS = ("init", "onTaskStart", "onTaskCompletion", "onTaskSucceeded", "onTaskFailed", "shutdown", "read", "write", "core", "disk",
          "disks", "force", "message", "driver.init", "driver.listener", "driver.receive")  # fmt: skip

def small(data: Path, folder: Path) -> Path:
    """The rows, and 20 of the files of one row."""
    shutil.copytree(data / "rows", folder / "rows")
    shutil.copytree(data / "slow", folder / "slow", ignore=lambda _, names: sorted(names)[20:])
    return folder


@versions
def test_no_failure_of_the_plugin_is_one_of_the_job(data, tmp_path, version):
    """Nor do other modes, wrong settings, or others' plugins change a result: one application each, in which one task fails."""
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
    assert len({json.dumps(said["answer"]) for said in ran.answer.values()}) == 1, ran.answer
    assert ran.answer["stock"]["answer"][1] == truth(folder / "slow")
    for said in ran.answer.values():
        nothing_held(said["held"])
    assert "spark.pellucid.mode=fast: expected one of [adaptive, monotasks, measure, off]" in ran.errors
    assert "unknown setting spark.pellucid.moed" in ran.errors
    assert "Pellucid only measures: spark.pellucid.policy has no effect without spark.pellucid.mode=adaptive or monotasks" in ran.errors
    assert "/proc/version, line 1" in ran.errors
    # A scan, a write and the asking were seen by both.
    seen = int(ran.errors.split("the other plugin saw ")[1].split()[0])
    assert seen > 20 and "Pellucid is not the only one of spark.plugins=" in ran.errors, seen
    assert ran.errors.count("not with spark.shuffle.manager=org.pellucid.spark.OtherShuffle") == 2
    failures = defaultdict(int)
    for line in ran.errors.splitlines():
        if "Pellucid failed in" in line:
            failures[line.split("Pellucid failed in ")[1].split(" ")[0]] += 1
    assert dict(failures) == {fault: 1 for fault in FAULTS}, dict(failures)


@pytest.mark.parametrize("mode", ["adaptive", "monotasks"])
def test_after_a_failure_executors_have_their_own_slots(few, tmp_path, mode):
    """As many tasks run at once as on stock Spark, whether it were fewer or more before."""
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


@pytest.mark.parametrize("line", ["documented", seldom("printed")])
def test_the_documented_line_is_enough(data, tmp_path, line):
    """By PySpark's own `spark-submit`, with nothing else of ours: all is measured, and every slot has its task as on stock Spark.
    Likewise what `pellucid spark conf` prints, split at spaces as an unquoted `$(…)` is."""
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
    ran = ended({"args": command, "env": {**environment(), "PYSPARK_DRIVER_PYTHON": str(spark.python())}, "cwd": tmp_path, "text": True}, logs)
    assert ran.answer == truth(data / "slow")
    tasks = ran.tasks()
    assert tasks and {(task["concurrency"], REASONS[task["reason"]]) for task in tasks} == {(8, "fixed")}, tasks
    assert not any(task.get("queue_ns") for task in tasks), tasks
    # Spark would say so where its slots had been changed.
    assert "Ignoring update with state" not in ran.errors and "Pellucid failed" not in ran.executors + ran.errors


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted by root alone")
def test_a_full_disk_fails_the_job_as_without_the_plugin(data, tmp_path):
    """With the same words, of output and of shuffle files; the next job runs, and nothing is held."""
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
    for mode, said in ran.answer.items():
        assert ["No space left on device" in words for words in said["said"]] == [True, True], (mode, said["said"])
        assert said["answer"] == truth(folder / "slow"), mode
        for held in said["held"]:
            nothing_held(held)
    assert "Pellucid failed" not in ran.errors


def test_a_plugin_spelt_wrong_is_named(data, tmp_path):
    """By Spark itself, which does not start: nothing of ours is there to say it."""
    started = command("read", tmp_path, text="SELECT 1", conf={"spark.master": "local[1]", "spark.plugins": f"{PLUGIN}s"})
    done = subprocess.run(**started, capture_output=True, timeout=300)
    assert done.returncode and f"ClassNotFoundException: {PLUGIN}s" in done.stderr, done.stderr[-3000:]


def test_the_jar_is_of_java_11_and_brings_nothing():
    """Spark 3.5 still runs on Java 11; a class of somebody else's would be another version's of Spark's own."""
    with zipfile.ZipFile(JAR) as jar:
        classes = [name for name in jar.namelist() if name.endswith(".class")]
        assert classes and all(name.startswith("org/pellucid/spark/") for name in classes), classes
        for name in classes:
            assert int.from_bytes(jar.read(name)[6:8], "big") <= 55, name


@pytest.mark.full
@pytest.mark.parametrize("name", ["core/Tuner", "core/Memory", "ThreadClock", "StageSite", "StageShuffles", "LocalFiles", "MeasuredInput", "MeasuredOutput"])
def test_a_class_that_is_missing_costs_the_plugin_and_not_the_job(data, tmp_path, name):
    """As where Spark or Hadoop is another than those known."""
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
def test_slots_that_cannot_be_moved_leave_the_gate(data, tmp_path):
    """As on a Spark whose scheduler is another: it sends what it likes, and the executor runs as many as it should."""
    conf = {"spark.master": "local-cluster[1,8,1024]", "spark.pellucid.mode": "adaptive", "spark.pellucid.fault": "slots",
            "spark.pellucid.concurrency.max": "2"}  # fmt: skip
    ran = run("tune", tmp_path, data=f"{data}/slow", ms=50, executors=1, conf=conf)
    assert ran.answer == [truth(data / "slow")]
    assert "Pellucid cannot change this Spark's slots" in ran.errors
    assert ran.settled("0") == (2, "fixed")
    tasks = ran.tasks(executor="0", stage=ran.longest())
    assert ran.at_once("0") >= 8
    # Of eight that are there two run: the others stand at the gate.
    assert sum(t["queue_ns"] for t in tasks) > 0.5 * sum(t["run_ms"] for t in tasks) * 1e6
    nothing_failed(ran)


@pytest.mark.full
@versions
def test_tpch_and_a_sort_are_the_same_with_and_without(tmp_path, version):
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
        assert ("concurrency" in ran.tasks(failed=False)[-1]) == (mode != "stock"), "the plugin is there"
        if mode != "stock":
            nothing_failed(ran, 2)
    keys = "l_extendedprice, l_orderkey, l_linenumber"
    right = digest_in_order(f"read_parquet('{tables['lineitem']}')", keys)
    assert orders == [right] * 3
    assert len(answers[0]) == 22 and all(answers[0][str(number)] for number in range(1, 23)), "every query has an answer"
    for number in answers[0]:
        assert answers[0][number] == answers[1][number] == answers[2][number], number


def digest_in_order(rows: str, order: str) -> tuple:
    """Of the sorted rows, as they lie."""
    text = f"""SELECT count(*), md5(string_agg(concat_ws('|', l_extendedprice, l_orderkey, l_linenumber, l_comment), ';' ORDER BY {order}))
        FROM {rows}"""
    return duckdb.sql(text).fetchone()
