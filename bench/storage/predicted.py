"""Jobs predicted on other storage, beside the same jobs really run there: `python -m bench.storage.predicted`.

A job is recorded on the local disk, and `pellucid whatif --set storage=PROBE` predicts it on every other composition.
What is compared is the job's own time as its traces say, not the command's. Both sides meet the store alike: before each
run and each probe what is on the disk leaves the page cache, and the probe reads the job's own input, no byte twice
(`storage probe --read`). Input and output are larger than the matrix's, since the emulated disk lets the first 25 MB or
so through faster than its rate. Lines go to `bench/results/storage-predicted.jsonl`, so that what was stopped goes on
where it was; `bench/STORAGE.md` is made anew at the end.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from bench import results
from bench.storage import data, table, workloads
from bench.storage.rig import SERVICES, Place, Rig, rig
from bench.storage.run import analysis, carry_out, exported, keep_trace, probed, ready, say
from bench.storage.table import PREDICTED as SUITE
from bench.storage.table import PREDICTED_WORKLOADS, basis
from lab.memory import kept
from tests import binary

REPEATS = 5
PROBE = ("--seconds", "60", "--bytes", "4GiB")


def put(place: Place) -> None:
    """The word count's input."""
    data.put_copies(place, workloads.LARGE["word count"])


def probe(hardware: Rig, place: Place) -> None:
    """Notes what a probe says of a place."""
    with results.quiet(place.pids) as others:
        found = probed(hardware, place, PROBE)
    if "report" in found:
        results.append(SUITE, {"probe": place.name}, found | {"others_cores": others()})
    say(f"probe of {place.name}: {found.get('error', 'done')}")


def job(hardware: Rig, place: Place, workload: str, number: int, folder: Path) -> None:
    """One run; its trace is kept where others are predicted from it."""
    trace = folder / "run.trace"
    (asked,) = (w for w in workloads.WORKLOADS if w.name == workload)
    command = workloads.command(asked, place, str(trace), "large", workloads.LARGE["DFSIO"])
    hardware.forget()
    with results.quiet(place.pids) as others:
        ran = binary.run(*command, env=os.environ | place.environment)
    case = {"workload": workload, "composition": place.name, "round": number}
    if ran.code:
        say(f"{workload}, {place.name}: {ran.err.strip()[:300]}")
        return
    durations = [one["duration_ms"] for one in analysis(trace)["jobs"]]
    # What makes an output of its parts moves no bytes itself.
    rows = exported(trace, monotasks=["phase", "bytes", "service_ns"])["monotasks"]
    ends = [row["service_ns"] for row in rows if row["phase"] == "write" and not row["bytes"]]
    found = {"job_s": max(durations) / 1e3, "publish_s": sum(ends) / 1e9, "others_cores": others(), "hardware": hardware.said}
    results.append(SUITE, case, found)
    if place.name == table.BASIS and number == 0:
        table.TRACES.mkdir(parents=True, exist_ok=True)
        keep_trace(trace, basis(workload), hardware.folder)
    say(f"{workload}, {place.name}, {number}: {found['job_s']:.3f} s")


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Everything that is missing, until time is up: the probes, then rounds."""
    until = time.monotonic() + chosen.time_limit
    rounds = [(number, workload) for number in range(REPEATS) for workload in PREDICTED_WORKLOADS]
    with rig(set(chosen.only) or {table.BASIS, *SERVICES}) as hardware, kept() as results.memory:
        ready(hardware, put)
        for place in hardware.places:
            if place.name != table.BASIS and not results.done(SUITE, {"probe": place.name}):
                probe(hardware, place)
        for number, workload in rounds:
            for place in hardware.places:
                case = {"workload": workload, "composition": place.name, "round": number}
                if time.monotonic() > until:
                    say("time is up; the same command goes on from here")
                    return
                if not results.done(SUITE, case):
                    job(hardware, place, workload, number, folder)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.storage.predicted", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="COMPOSITION", help=f"{table.BASIS} and others (default: it and the services)")
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS")
    chosen = parser.parse_args()
    results.build = lambda by=results.fingerprint([binary.binary()]): by
    return carry_out(run, chosen)


if __name__ == "__main__":
    sys.exit(main())
