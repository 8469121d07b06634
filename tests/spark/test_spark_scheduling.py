"""The Spark plugin under speculation, resource profiles and decommissioning.

Spark starts a speculative copy only on another host, so speculation uses a standalone cluster on two loopback addresses.
"""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import binary, spark
from harness.binary import ROOT
from harness.spark.applications import FEW, data, end, few, jar, needed, nothing_failed, run, truth, versions
from harness.threads import below

JOBS = ROOT / "harness" / "spark" / "scheduling_jobs.py"
CORES = 8
MODES = {
    "adaptive": {"spark.pellucid.mode": "adaptive"},
    # Slots cannot be changed: surplus tasks wait at the gate.
    "gate": {"spark.pellucid.mode": "adaptive", "spark.pellucid.fault": "slots", "spark.pellucid.concurrency.max": "2"},
    "monotasks": {"spark.pellucid.mode": "monotasks"},
}

pytestmark = [pytest.mark.full, pytest.mark.alone, needed]


@pytest.fixture
def cluster(version, tmp_path) -> Iterator[str]:
    """A master and two workers on separate hosts; yields the master's URL."""
    started: list[subprocess.Popen] = []

    def start(role: str, host: str, *words: str) -> Path:
        log = tmp_path / f"{role}-{host}"
        where = {"SPARK_HOME": str(spark.home(version)), "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(tmp_path), "SPARK_DAEMON_MEMORY": "256m"}
        program = [spark.home(version) / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", "--host", host, "--port", "0", "--webui-port", "0"]
        with open(log, "w") as out:
            started.append(subprocess.Popen([*program, *words], env=spark.environment(version) | where, cwd=tmp_path, stdout=out, stderr=out))
        return log

    try:
        log = start("master.Master", "127.0.0.1")
        binary.wait_until(lambda: "New state: ALIVE" in log.read_text(), started[0], timeout=120)
        url = re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())[0]
        for host in ("127.0.0.1", "127.0.0.2"):
            log = start("worker.Worker", host, "--cores", str(CORES), "--memory", "1024M", url)
            binary.wait_until(lambda log=log: "Successfully registered with master" in log.read_text(), started[-1], timeout=120)
        yield url
    finally:
        family = {process.pid for process in started}.union(*(below(process.pid) for process in started))
        for process in started:
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        end(family)


# Late enough that the original is in its wait: an interrupt while classes load may be lost, as on stock Spark.
SPECULATION = {"spark.speculation": "true", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.5",
               "spark.speculation.interval": "100ms", "spark.speculation.minTaskRuntime": "2s"}  # fmt: skip


@versions
def test_speculative_copy_wins_on_another_host(few, tmp_path, version, cluster):
    """As on stock Spark, the original is killed, whether it runs or waits at the gate, and leaves nothing behind."""
    host = {"spark.master": cluster, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for mode, conf in {"stock": {}, **MODES}.items():
        ran = run("speculate", tmp_path, version, mode != "stock", jobs=JOBS, data=str(few), executors=2, conf={**host, **SPECULATION, **conf})
        assert ran.answer == [truth(few)] * 3, mode
        ends = [(e["Task Info"], e["Task End Reason"]) for e in ran.events
                if e["Event"] == "SparkListenerTaskEnd" and e["Stage ID"] == ran.longest(1, FEW)]  # fmt: skip
        won = {task["Index"]: task for task, why in ends if why["Reason"] == "Success"}
        copies = {index for index, task in won.items() if task["Speculative"]}
        killed = {task["Index"]: (task, why) for task, why in ends if not task["Speculative"] and why["Reason"] != "Success"}
        assert sorted(won) == list(range(FEW)) and copies and copies == killed.keys(), (mode, copies, killed)
        for index, (task, why) in killed.items():
            assert (task["Executor ID"], why.get("Kill Reason")) == ("0", "another attempt succeeded"), (mode, task, why)
            assert {task["Host"], won[index]["Host"]} == {"127.0.0.1", "127.0.0.2"}, (mode, task, won[index])
        # Two of the eight sent tasks passed the gate.
        assert mode != "gate" or len(killed) == CORES, killed
        if mode != "stock":
            nothing_failed(ran, 2)


@versions
@pytest.mark.parametrize("mode", ["adaptive", "monotasks"])
def test_resource_profile_has_as_many_slots_as_fit(few, tmp_path, version, mode):
    """The next stage has its own number again, whatever slots the last stage left in the scheduler."""
    cpus = [None, 2, None, 4, None]
    conf = {"spark.master": f"local-cluster[1,{CORES},1024]", "spark.executor.cores": str(CORES)}
    ran = run("profiles", tmp_path, version, jobs=JOBS, data=str(few), ms=100, cpus=[None, *cpus], conf=conf | MODES[mode])
    # The first stage warms up the executor: tasks that wait for classes lend their cores.
    for nth, (each, (answer, peak)) in enumerate(zip(cpus, ran.answer[1:], strict=True), 1):
        slots = CORES // (each or 1)
        assert answer == truth(few) and slots / 2 < peak <= slots, (each, ran.answer)
        # Spark counts a task as running until shortly after it sent the next one; `monotasks` sends more than compute.
        assert mode == "monotasks" or ran.on_average(nth, FEW) < slots + 1, each
    nothing_failed(ran)


@versions
@pytest.mark.parametrize("mode", MODES)
def test_tasks_of_a_decommissioned_executor_finish_on_it(few, tmp_path, version, mode):
    """No further task is sent, none runs twice, and then the executor goes."""
    conf = {"spark.master": "local-cluster[2,4,1024]", "spark.decommission.enabled": "true"}
    ran = run("decommission", tmp_path, version, jobs=JOBS, data=str(few), ms=300, tasks=2, executors=2, conf=conf | MODES[mode])
    result = ran.answer
    assert result["agreed"] and result["answer"] == result["again"] == truth(few), result
    scan = ran.tasks(stage=ran.longest(0, FEW))
    assert len(scan) == FEW and not any(t["failed"] for t in scan), scan
    there = [t for t in scan if t["executor"] == "1"]
    under_way = [t for t in there if t["end"] > result["at"]]
    assert under_way and all(t["start"] <= result["at"] for t in there), (result, there)
    # In `gate` mode, a task was still at the gate when the others had ended.
    assert mode != "gate" or max(t["queue_ns"] for t in under_way) > 50e6, under_way
    removed = [e["Removed Reason"] for e in ran.events if e["Event"] == "SparkListenerExecutorRemoved" and e["Executor ID"] == "1"]
    # The master reports the loss once more.
    assert removed and "decommission" in removed[0].lower(), removed
    nothing_failed(ran, 2)
