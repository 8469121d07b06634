"""Looks for causes of what is against the path: `python -m bench.storage.examined` (root; about 12 minutes).

Each composition is probed, reading what is there and is in no memory. Three times more each of Pellucid's reading and writing
workloads runs on each, and Spark's word count, and the trace of the median run, or the log, stays in `bench/results/storage`: what `pellucid
storage doctor` finds there with that probe explains outliers, whichever build makes the page. Of several statements a trace
is of the last, so each TPC-DS query has a command of its own; they run in turn, as within one.

Then the word count runs on volumes, and on HDFS behind the same link, under conditions that differ in one thing each
(`CONDITIONS`). Lines go to `bench/results/storage-examined.jsonl`, so that what was stopped goes on where it was;
`bench/STORAGE.md` is made anew at the end. Its times stay those of `bench.storage.run`, of whichever build that measured.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench import results
from bench.storage import data, predicted, spark, workloads
from bench.storage.causes import CONDITIONS, EXAMINED, TRACES
from bench.storage.rig import Place, Rig, rig
from bench.storage.run import carry_out, keep_trace, pellucid, ready, say, watched
from bench.storage.workloads import TPCDS, WORKLOADS, Workload
from lab.memory import kept
from tests import binary, services

ROUNDS, TRIES = 5, 3
# Copies of the text that a probe reads, and what it may take; runs of a new session's Spark before the one whose log is kept.
COPIES, PROBE, WARMING = 3, ("--seconds", "20", "--bytes", "512MiB"), 3
PLACES = ("GC-V", "GC-VS", "NC")
COUNT = "SELECT count(*) FROM lines"
# The matrix's runs of it were by a build whose tasks were not told apart.
(ITERATES,) = (workload for workload in WORKLOADS if not workload.way)


def put(place: Place) -> None:
    """What the workloads read, and what the probe does."""
    data.put(place)
    predicted.put(place, COPIES)


def by_spark(hardware: Rig, place: Place, folder: Path) -> dict:
    """Spark's word count in a session that has run it before, and its log."""
    asked, name = workloads.asked(WORKLOADS[0], place), f"word-count-{place.name}-spark.zstd"
    try:
        with spark.session("examined", [place], spark.RENAME, folder) as running:
            for _ in range(WARMING):
                running.ask(asked)
            hardware.forget()
            at = time.time()
            answer = running.ask(asked)
    except services.Missing as why:
        return {"error": str(why)}
    if "error" not in answer:
        spark.keep(spark.log_of(running.events), TRACES / name, at, hardware.folder)
        answer = {"s": round(answer["s"], 3), "files": [name]}
    return answer


def traced(hardware: Rig, place: Place, workload: Workload, folder: Path) -> dict:
    """A workload's traces, and what it used in all: of some runs, those of the one whose time is the median."""
    runs = []
    for number in range(TRIES):
        traces = folder / f"try-{number}"
        traces.mkdir(exist_ok=True)
        found = traced_once(hardware, place, workload, traces)
        if "error" in found:
            return found
        runs.append((found, traces))
    found, traces = sorted(runs, key=lambda run: run[0]["s"])[TRIES // 2]
    for name in found["files"]:
        keep_trace(traces / name, TRACES / name, hardware.folder)
    return found | {"tries_s": [each["s"] for each, _ in runs]}


def traced_once(hardware: Rig, place: Place, workload: Workload, traces: Path) -> dict:
    """One run of it, whose traces are left in a folder."""
    hardware.forget()
    found: dict = {"files": [], "s": 0.0, "disk_mb": 0.0, "link_mb": 0.0, "data_core_s": 0.0}
    for number, query in enumerate(TPCDS if workload.name == "TPC-DS" else [None], 1):
        name = f"{workload.name.replace(' ', '-')}-{place.name}{f'-{number}' if query else ''}.trace"
        ran = watched(hardware, place, workloads.command(workload, place, str(traces / name), queries=query))
        if "error" in ran:
            return ran
        found["files"].append(name)
        for key, value in (ran["use"] | {"s": ran["s"]}).items():
            if key in found:
                found[key] = round(found[key] + value, 3)
    return found


@contextlib.contextmanager
def on_cores(pids: list[int], cores: set[int]) -> Iterator[None]:
    """All threads of processes on these cores, and afterwards where they were."""

    def move(to: set[int]) -> None:
        for thread in (int(path.name) for pid in pids for path in Path(f"/proc/{pid}/task").glob("*")):
            # One that has ended by now needs no core.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, to)

    before = os.sched_getaffinity(0)
    move(cores)
    try:
        yield
    finally:
        move(before)


def examined(hardware: Rig, place: Place, condition: str, trace: Path) -> dict:
    """The word count once under a condition."""
    word_count, *_ = WORKLOADS
    command = workloads.command(word_count, place, str(trace))
    first, *rest = sorted(os.sched_getaffinity(0))
    hardware.forget()
    if condition == "eight reads at once":
        kind = "store" if "://" in place.url else "disk"
        return watched(hardware, place, [command[0], "--concurrency", f"{kind}=8", *command[1:]])
    if condition == "lines counted only":
        return watched(hardware, place, [*command[:-1], COUNT])
    if condition == "a core each":
        with on_cores(place.pids, set(rest) or {first}):
            return watched(hardware, place, command, {first})
    return watched(hardware, place, command)


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Everything that is missing, until time is up: the traces, then rounds of the conditions."""
    until = time.monotonic() + chosen.time_limit
    TRACES.mkdir(parents=True, exist_ok=True)
    with rig(set(chosen.only)) as hardware, kept() as results.memory:
        ready(hardware, put)
        for place in hardware.places:
            note(hardware, place, {"probed": place.name}, partial(predicted.probed, hardware, place, PROBE), until)
        for place in hardware.places:
            for workload in WORKLOADS:
                if workload.way:
                    note(hardware, place, {"traced": workload.name}, partial(traced, hardware, place, workload, folder), until)
            note(hardware, place, {"spark": WORKLOADS[0].name}, partial(by_spark, hardware, place, folder), until)
            note(hardware, place, {"tasks": ITERATES.name}, partial(pellucid, hardware, place, ITERATES, folder), until)
        for number in range(ROUNDS):
            for place in hardware.places:
                for condition in CONDITIONS if place.name in PLACES else ():
                    case = {"condition": condition, "round": number}
                    note(hardware, place, case, partial(examined, hardware, place, condition, folder / "run.trace"), until)


def note(hardware: Rig, place: Place, asked: dict, work: Callable[[], dict], until: float) -> None:
    """Does what is missing while there is time, and appends its line."""
    case = asked | {"composition": place.name}
    if time.monotonic() > until or results.done(EXAMINED, case):
        return
    with results.quiet(place.pids) as others:
        found = work()
    if "error" not in found:
        results.append(EXAMINED, case, found | {"hardware": hardware.said, "others_cores": others()})
    say(f"{', '.join(map(str, case.values()))}: {found.get('s') or found.get('error', 'done')}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.storage.examined", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="COMPOSITION", help="default: all")
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS")
    chosen = parser.parse_args()
    results.build = lambda by=results.fingerprint([binary.binary()]): by
    return carry_out(run, chosen)


if __name__ == "__main__":
    sys.exit(main())
