"""Compares jobs predicted on other storage with the same jobs run there: `python -m bench.storage.predicted`.

A job is recorded on the local disk, and `pellucid whatif --set storage=PROBE` predicts it on every other composition.
The job's own time, from its traces, is compared, not the command's. Probe and job find the store in the same state: the
page cache is emptied before each, and the probe reads the job's own input, no byte twice (`storage probe --read`). Input
and output are larger than the matrix's, since the emulated disk takes the first 25 MB or so faster than its rate. Each
run is a line in `bench/results/storage-predicted.jsonl`, so a stopped run resumes. The command ends by writing
`bench/STORAGE.md`.
"""

import argparse
import os
import sys
from pathlib import Path

from bench.common import results, runner
from bench.common.runner import TimeLimit, say
from bench.storage import data, workloads
from bench.storage.measured import BASIS, PREDICTED_WORKLOADS, TRACES, basis
from bench.storage.measured import PREDICTED as SUITE
from bench.storage.rig import SERVICES, Place, Rig, rig
from bench.storage.run import analysis, carry_out, exported, keep_trace, probed, ready
from harness import binary
from lab.memory import kept

REPEATS = 5
PROBE = ("--seconds", "60", "--bytes", "4GiB")


def put(place: Place) -> None:
    """Writes the word count's input."""
    data.put_copies(place, workloads.LARGE["word count"])


def probe(hardware: Rig, place: Place) -> None:
    """Probes a composition, and appends the report."""
    with results.quiet(place.pids) as others:
        found = probed(hardware, place, PROBE)
    if "report" in found:
        results.append(SUITE, {"probe": place.name}, found | {"others_cores": others()})
    say(f"probe of {place.name}: {found.get('error', 'done')}")


def job(hardware: Rig, place: Place, workload: str, number: int, folder: Path) -> None:
    """Measures a run, and keeps its trace if predictions start from it."""
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
    # The monotask that completes an upload moves no bytes.
    rows = exported(trace, monotasks=["phase", "bytes", "service_ns"])["monotasks"]
    ends = [row["service_ns"] for row in rows if row["phase"] == "write" and not row["bytes"]]
    found = {"job_s": max(durations) / 1e3, "publish_s": sum(ends) / 1e9, "others_cores": others(), "hardware": hardware.said}
    results.append(SUITE, case, found)
    if place.name == BASIS and number == 0:
        TRACES.mkdir(parents=True, exist_ok=True)
        keep_trace(trace, basis(workload), hardware.folder)
    say(f"{workload}, {place.name}, {number}: {found['job_s']:.3f} s")


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Measures everything that is missing, until the time limit: the probes, then rounds."""
    limit = TimeLimit(chosen.time_limit)
    rounds = [(number, workload) for number in range(REPEATS) for workload in PREDICTED_WORKLOADS]
    with rig(set(chosen.only) or {BASIS, *SERVICES}) as hardware, kept() as results.memory:
        ready(hardware, put)
        for place in hardware.places:
            if place.name != BASIS and not results.done(SUITE, {"probe": place.name}):
                probe(hardware, place)
        for number, workload in rounds:
            for place in hardware.places:
                case = {"workload": workload, "composition": place.name, "round": number}
                if not limit.admits(0.0):
                    return
                if not results.done(SUITE, case):
                    job(hardware, place, workload, number, folder)


def main() -> int:
    """Runs the command."""
    parser = runner.options("storage.predicted", __doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="COMPOSITION", help=f"compositions, with {BASIS} (default: it and the services)")
    chosen = parser.parse_args()
    return carry_out(run, chosen)


if __name__ == "__main__":
    sys.exit(main())
