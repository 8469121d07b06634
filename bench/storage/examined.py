"""Tests causes of slow compositions: `python -m bench.storage.examined` (root, 7 minutes).

The word count runs on volumes, and on HDFS behind the same link, under conditions that differ in one thing each
(`CONDITIONS`). Each run is a line in `bench/results/storage-examined.jsonl`, so a stopped run resumes. The command
ends by writing `bench/STORAGE.md`.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.common import results, runner
from bench.common.runner import TimeLimit, say
from bench.storage import workloads
from bench.storage.causes import CONDITIONS, EXAMINED
from bench.storage.rig import Place, Rig, rig
from bench.storage.run import carry_out, ready, watched
from bench.storage.workloads import WORKLOADS
from lab.memory import kept

ROUNDS = 5
PLACES = ("GC-V", "GC-VS", "NC")
COUNT = "SELECT count(*) FROM lines"


@contextlib.contextmanager
def on_cores(pids: list[int], cores: set[int]) -> Iterator[None]:
    """Moves all threads of processes to these cores, and back afterwards."""

    def move(to: set[int]) -> None:
        for thread in (int(path.name) for pid in pids for path in Path(f"/proc/{pid}/task").glob("*")):
            # The thread may have ended.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, to)

    before = os.sched_getaffinity(0)
    move(cores)
    try:
        yield
    finally:
        move(before)


def examined(hardware: Rig, place: Place, condition: str, trace: Path) -> dict:
    """Runs the word count once under a condition."""
    word_count, *_ = WORKLOADS
    command = workloads.command(word_count, place, str(trace))
    first, *rest = sorted(os.sched_getaffinity(0))
    hardware.forget()
    if condition == "eight reads at once":
        kind = "store" if "://" in place.url else "disk"
        return watched(hardware, place, [[command[0], "--concurrency", f"{kind}=8", *command[1:]]])
    if condition == "lines counted only":
        return watched(hardware, place, [[*command[:-1], COUNT]])
    if condition == "a core each":
        with on_cores(place.pids, set(rest) or {first}):
            return watched(hardware, place, [command], {first})
    return watched(hardware, place, [command])


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Measures everything that is missing, in rounds, until the time limit."""
    limit = TimeLimit(chosen.time_limit)
    with rig(set(chosen.only)) as hardware, kept() as results.memory:
        ready(hardware)
        for number in range(ROUNDS):
            for place in hardware.places:
                for condition in CONDITIONS:
                    case = {"condition": condition, "round": number, "composition": place.name}
                    if not results.done(EXAMINED, case) and limit.admits(0.0):
                        note(hardware, place, case, folder / "run.trace")


def note(hardware: Rig, place: Place, case: dict, trace: Path) -> None:
    """Measures a run, and appends its line."""
    with results.quiet(place.pids) as others:
        found = examined(hardware, place, case["condition"], trace)
    if "error" not in found:
        results.append(EXAMINED, case, found | {"hardware": hardware.said, "others_cores": others()})
    say(f"{', '.join(map(str, case.values()))}: {found.get('s') or found['error']}")


def main() -> int:
    """Runs the command."""
    parser = runner.options("storage.examined", __doc__)
    parser.add_argument("--only", nargs="*", default=PLACES, metavar="COMPOSITION", help=f"compositions (default {', '.join(PLACES)})")
    chosen = parser.parse_args()
    return carry_out(run, chosen)


if __name__ == "__main__":
    sys.exit(main())
