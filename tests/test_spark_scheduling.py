"""The Spark plugin where Spark's scheduler does more than send tasks: speculation, resource profiles, decommissioning.

Spark tries a copy of a task on another host alone, so that speculation has a standalone cluster of its own, on two of
loopback's addresses.
"""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import binary, spark
from tests.spark_applications import FEW, end, environment, needed, nothing_failed, run, truth, versions
from tests.spark_applications import data, few, jar  # noqa: F401 (fixtures)
from tests.threads import below

JOBS = Path(__file__).parent / "spark_scheduling_jobs.py"
CORES = 8
MODES = {
    "adaptive": {"spark.pellucid.mode": "adaptive"},
    # Slots that cannot be moved: what is sent too many stands at the gate.
    "gate": {"spark.pellucid.mode": "adaptive", "spark.pellucid.fault": "slots", "spark.pellucid.concurrency.max": "2"},
    "monotasks": {"spark.pellucid.mode": "monotasks"},
}

pytestmark = [pytest.mark.full, needed]


@pytest.fixture
def cluster(version, tmp_path) -> Iterator[str]:
    """A master, and two workers as on two hosts: the master's address."""
    started: list[subprocess.Popen] = []

    def start(role: str, host: str, *words: str) -> Path:
        said = tmp_path / f"{role}-{host}"
        where = {"SPARK_HOME": str(spark.home(version)), "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(tmp_path), "SPARK_DAEMON_MEMORY": "256m"}
        program = [spark.home(version) / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", "--host", host, "--port", "0", "--webui-port", "0"]
        with open(said, "w") as out:
            started.append(subprocess.Popen([*program, *words], env=environment(version) | where, cwd=tmp_path, stdout=out, stderr=out))
        return said

    try:
        said = start("master.Master", "127.0.0.1")
        binary.wait_until(lambda: "New state: ALIVE" in said.read_text(), started[0], timeout=120)
        url = re.search(r"spark://127\.0\.0\.1:\d+", said.read_text())[0]
        for host in ("127.0.0.1", "127.0.0.2"):
            said = start("worker.Worker", host, "--cores", str(CORES), "--memory", "1024M", url)
            binary.wait_until(lambda said=said: "Successfully registered with master" in said.read_text(), started[-1], timeout=120)
        yield url
    finally:
        family = {process.pid for process in started}.union(*(below(process.pid) for process in started))
        for process in started:
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        end(family)


# So late that an original is within its wait: an interrupt while classes are loaded may be lost, as on stock Spark.
SPECULATION = {"spark.speculation": "true", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.5",
               "spark.speculation.interval": "100ms", "spark.speculation.minTaskRuntime": "2s"}  # fmt: skip


@versions
def test_a_speculative_copy_wins_on_another_host(few, tmp_path, version, cluster):
    """As on stock Spark; the original is killed, whether it runs or stands at the gate, and leaves nothing."""
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
        # Of eight that were sent two were let in.
        assert mode != "gate" or len(killed) == CORES, killed
        if mode != "stock":
            nothing_failed(ran, 2)


@versions
@pytest.mark.parametrize("mode", ["adaptive", "monotasks"])
def test_a_profile_has_as_many_slots_as_its_tasks_fit(few, tmp_path, version, mode):
    """And the next stage has its own number again, whatever the plugin left the scheduler when the last ended."""
    cpus = [None, 2, None, 4, None]
    conf = {"spark.master": f"local-cluster[1,{CORES},1024]", "spark.executor.cores": str(CORES)}
    ran = run("profiles", tmp_path, version, jobs=JOBS, data=str(few), ms=100, cpus=[None, *cpus], conf=conf | MODES[mode])
    # The first warms the executor up: of tasks that wait for classes the cores are lent.
    for nth, (each, (answer, most)) in enumerate(zip(cpus, ran.answer[1:], strict=True), 1):
        slots = CORES // (each or 1)
        assert answer == truth(few) and slots / 2 < most <= slots, (each, ran.answer)
        # A task ends a little after the next was sent; in `monotasks` more are sent than compute.
        assert mode == "monotasks" or ran.on_average(nth, FEW) < slots + 1, each
    nothing_failed(ran)


@versions
@pytest.mark.parametrize("mode", MODES)
def test_tasks_of_a_decommissioned_executor_end_there(few, tmp_path, version, mode):
    """No other is sent, none runs twice, and then the executor goes."""
    conf = {"spark.master": "local-cluster[2,4,1024]", "spark.decommission.enabled": "true"}
    ran = run("decommission", tmp_path, version, jobs=JOBS, data=str(few), ms=300, tasks=2, executors=2, conf=conf | MODES[mode])
    said = ran.answer
    assert said["agreed"] and said["answer"] == said["again"] == truth(few), said
    scan = ran.tasks(stage=ran.longest(0, FEW))
    assert len(scan) == FEW and not any(t["failed"] for t in scan), scan
    there = [t for t in scan if t["executor"] == "1"]
    under_way = [t for t in there if t["end"] > said["at"]]
    assert under_way and all(t["start"] <= said["at"] for t in there), (said, there)
    # It stood at the gate when the others had ended, too.
    assert mode != "gate" or max(t["queue_ns"] for t in under_way) > 50e6, under_way
    went = [e["Removed Reason"] for e in ran.events if e["Event"] == "SparkListenerExecutorRemoved" and e["Executor ID"] == "1"]
    # The master says once more that it is gone.
    assert went and "decommission" in went[0].lower(), went
    nothing_failed(ran, 2)
