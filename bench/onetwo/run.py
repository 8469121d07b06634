"""Measures the missing runs, then makes the page: `python -m bench.onetwo.run` (root, Java).

One executor with 8 slots runs on emulated spinning disks (`lab/hdd.py`). Each job runs on one disk and on two, with every
second input file and shuffle file on the other, with stock Spark and with the plugin in `measure` mode. The four take
turns. Each finished run is a line in `bench/results/onetwo.jsonl` and a log in `bench/results/onetwo/`, so a stopped run
resumes. The command ends by writing `bench/ONETWO.md`.

    python -m bench.onetwo.run --list
    python -m bench.onetwo.run --only sort --time-limit 600
    python -m bench.onetwo.run --only scan --repeats 1 --try-out
"""

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from bench.adaptive.jobs import LINE_BYTES
from bench.adaptive.matrix import Case
from bench.adaptive.run import JAR, PLUGIN, Rig, options, rig, run_matrix, run_spark, spark_settings, version
from bench.common import results
from bench.common.runner import TimeLimit, say
from bench.onetwo import models, table
from bench.onetwo.cases import DISKS, LOGS, SUITE, cases
from bench.spark.rig import keep
from harness import spark
from harness.binary import ROOT
from harness.threads import below, core_seconds
from lab import hdd, kernel
from lab.spark_logs import cleaned

SLOTS = 8
SPARK = spark.versions()["4"]
# Input files, large enough that tasks mostly read instead of being sent and deserialised.
FILES = 32
SAMPLE_S = 0.05
EXECUTOR = b"CoarseGrainedExecutorBackend"


class UsageSampler(threading.Thread):
    """A thread that samples the executor's core time and the disks' counters from outside."""

    def __init__(self, disks: list[hdd.Disk]):
        super().__init__(daemon=True)
        self.devices = [disk.device for disk in disks]
        self.ended = threading.Event()
        self.samples: list[tuple[float, list[float]]] = []

    def run(self):
        executor, count = None, 0
        while not self.ended.wait(SAMPLE_S):
            count += 1
            # The search walks through all processes, so it is rare.
            if executor is None and count % 10 == 0:
                executor = next((pid for pid in below(os.getpid()) if EXECUTOR in command(pid)), None)
            if executor is not None:
                try:
                    used = core_seconds(executor)
                except OSError:
                    return  # the executor has ended
                self.samples.append((time.time(), [used, *(float(sum(kernel.moved_bytes(device))) for device in self.devices)]))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def command(pid: int) -> bytes:
    """Returns a process's command line, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def folders(hardware: Rig, case: Case) -> list[Path]:
    """Returns the input folders, each with half the files. The second half is on both disks, and is read from the last."""
    return [hardware.disks[0].path / "a", hardware.of(case)[-1].path / "b"]


def settings_of(hardware: Rig, case: Case, logs: Path) -> dict[str, str]:
    """Returns the application's settings: those of `bench/adaptive` with `SLOTS` slots."""
    plain = replace(case, setting=f"stock-{SLOTS}")
    found = spark_settings(plain, hardware.folders(case), logs, logs / "nothing") | {"spark.app.name": case.name}
    if case.setting == "measure":
        found |= {"spark.jars": str(JAR), "spark.plugins": PLUGIN, "spark.pellucid.mode": "measure"}
    return found


def application(hardware: Rig, case: Case, request: dict, folder: Path) -> tuple[dict, Path]:
    """Runs an application in a folder, and returns its answer and its event log."""
    logs = folder / "events"
    logs.mkdir()
    said = run_spark(case.name, ["-m", "bench.onetwo.jobs"], request | {"settings": settings_of(hardware, case, logs)}, folder)
    (log,) = [path for path in logs.iterdir() if not path.name.startswith(".")]
    return said, log


def place(hardware: Rig, case: Case) -> None:
    """Makes the input, at memory speed.

    Spark reads long files first, and files of equal length folder by folder. So each file is a little shorter than the
    previous one, and they go to the two folders in turn: files that are read in sequence are on different disks.
    """
    one = replace(case, disk=DISKS[1], setting="stock")
    hardware.clear(one)
    whole, (first, second) = hardware.disks[0].path / "whole", (disk.path for disk in hardware.disks)
    with tempfile.TemporaryDirectory() as own:
        application(hardware, one, {"make": f"file:{whole}", "bytes": case.bytes, "files": FILES}, Path(own))
    for folder in (first / "a", first / "b", second / "b"):
        folder.mkdir()
    for number, path in enumerate(sorted(whole.glob("part-*"))):
        os.truncate(path, path.stat().st_size - 2 * number * LINE_BYTES)
        if number % 2:
            shutil.copyfile(path, second / "b" / path.name)
        path.rename(first / ("b" if number % 2 else "a") / path.name)
    shutil.rmtree(whole)
    # Writes back all pages while the disk is still fast, before it is calibrated.
    hardware.clear(case)


def events(log: Path, name: str) -> Iterator[dict]:
    """Yields the events with a name."""
    with open(log) as lines:
        yield from (json.loads(line) for line in lines if f'"{name}"' in line[:100])


def spans(log: Path) -> list[tuple[float, float]]:
    """Returns the start and end of each completed stage, in seconds of the epoch."""
    stages = [event["Stage Info"] for event in events(log, "SparkListenerStageCompleted")]
    return sorted((info["Submission Time"] / 1e3, info["Completion Time"] / 1e3) for info in stages)


def measure(hardware: Rig, case: Case, kept: Path | None) -> dict:
    """Measures a run: its time, each stage's use, and the drives' counters. Keeps its log in `kept`, if given."""
    hardware.clear(case)
    hardware.set_kind(case, case.kind)
    disks = hardware.of(case)
    request = {"job": case.job, "sources": [f"file:{path}" for path in folders(hardware, case)]}
    request["disks"] = [str(folder) for folder in hardware.folders(case)]
    with tempfile.TemporaryDirectory() as own:
        before = [disk.stats() for disk in disks]
        with results.quiet([disk.server for disk in disks] + hardware.idlers) as others, UsageSampler(disks) as sampler:
            said, log = application(hardware, case, request, Path(own))
        drives = [asdict(disk.stats().since(was)) for disk, was in zip(disks, before, strict=True)]
        if not sampler.samples:
            raise RuntimeError(f"{case.name}: found no process of its executor")
        stages = models.uses(spans(log), sampler.samples)
        names = {str(disk.path): f"/disk{number}" for number, disk in enumerate(disks)}
        names |= {event["Executor Info"]["Host"]: "host" for event in events(log, "SparkListenerExecutorAdded")}
        cleaned(log, names | {own: "/own", str(ROOT): ""})
        if kept:
            keep(log, kept)
    hardware.set_kind(case, "memory")
    return {**said, "stages": stages, "drives": drives, "others_cores": others()}


def missing(wanted: list[Case]) -> list[Case]:
    """Returns the cases without a line of this jar; stock Spark is measured again with each jar."""
    done = [line["case"] for line in results.made(SUITE, version()) if (LOGS / line["log"]).exists()]
    return [case for case in wanted if asdict(case) not in done]


def run(wanted: list[Case], limit_s: float, trying_out: bool) -> None:
    """Runs cases until another might exceed the time limit. With `trying_out`, calibrates and keeps nothing."""
    limit = TimeLimit(limit_s)
    both = [replace(case, disk=DISKS[2]) for case in wanted]
    with rig(both) as hardware:
        place(hardware, both[0])
        for case in wanted:
            if not limit.admits():
                return
            if not trying_out:
                hardware.calibrate(case)
            name = f"{case.name.replace('/', '-')}-{version()}.zstd"
            with limit.case() as seconds:
                found = measure(hardware, case, None if trying_out else LOGS / name)
                if not trying_out:
                    found |= {"log": name, "spark": SPARK, "slots": SLOTS, "cores": os.cpu_count(), **hardware.calibration(case)}
                    results.append(SUITE, asdict(case), found, by=version())
            used = "; ".join(f"{s['s']:.1f} s, {s['core_s']:.1f} core s, {sum(s['disk_bytes']) / 1e6:.0f} MB" for s in found["stages"])
            say(f"{case.name}: {found['ms'] / 1000:.1f} s of {seconds():.0f} ({used}; others {found['others_cores']})")


def main() -> int:
    """Runs the command."""
    parser = options(SUITE, __doc__)
    parser.add_argument("--mib", type=int, default=384, help="size of the input in MiB (default 384)")
    chosen = parser.parse_args()
    return run_matrix(SUITE, chosen, cases(chosen.mib << 20, chosen.repeats), missing, run, table.main)


if __name__ == "__main__":
    sys.exit(main())
