"""Measures the missing runs, then makes the page: `python -m bench.spark.run`.

There are two suites, `causes` and `pairs`. The configurations of the pairs take turns for three rounds, each starting
with another one. Each job with a known cause runs once per version of Spark. Every finished run is kept: its log in
`bench/results/spark/`, a line in `bench/results/spark.jsonl`, so a stopped run resumes. A run that another process
disturbed (the canary of `lab/cores.py`) does not count, and is repeated.

Spark is PySpark, installed on first use (`harness/spark/__init__.py`), version 4 by default.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.common import results, runner
from bench.common.runner import TimeLimit, carry_out, say
from bench.spark import table
from bench.spark.cases import CAUSES, ROUNDS, RUN_S, cause_of, ways
from bench.spark.rig import Rig, rig
from harness import spark
from lab.cores import CANARY
from lab.disks import LabError
from lab.memory import kept

SUITE = "spark"
LOGS = results.FOLDER / SUITE
SUITES = ("causes", "pairs")
ATTEMPTS = 3


def wanted(suites: set[str], version: str) -> list[dict]:
    """Returns every run of these suites, in order."""
    runs = []
    if "pairs" in suites:
        all_ways = ways()
        for turn in range(ROUNDS):
            turned = all_ways[turn:] + all_ways[:turn]
            runs += [{"suite": "pairs", "way": way.name, "spark": version, "round": turn} for way in turned]
    if "causes" in suites:
        runs += [{"suite": "causes", "way": cause_of(job).name, "spark": version, "round": 0} for job in CAUSES]
    # An early stop should leave runs of both suites.
    return sorted(runs, key=lambda run: run["round"])


def counts(line: dict) -> bool:
    """Returns whether a run was undisturbed and its log exists."""
    return line["canary"] >= CANARY and (LOGS / line["log"]).exists()


def missing(runs: list[dict], lines: list[dict]) -> list[dict]:
    """Returns the runs without a valid line."""
    done = [line["case"] for line in lines if counts(line)]
    return [run for run in runs if run not in done]


def expected_s(run: dict, lines: list[dict]) -> float:
    """Estimates a run's time from earlier ones."""
    known = [line["took_s"] for line in lines if line["case"]["way"] == run["way"]]
    return statistics.median(known) if known else RUN_S


def measure(hardware: Rig, run: dict, by: str) -> dict | None:
    """Measures a run, with a few attempts to get an undisturbed one."""
    way = next(way for way in [*ways(), *map(cause_of, CAUSES)] if way.name == run["way"])
    log = f"{run['suite']}-{run['spark']}-{way.name}-{run['round']}.zstd"
    for attempt in range(ATTEMPTS):
        begin = time.monotonic()
        try:
            found = hardware.run(way, LOGS / log)
        except LabError as error:
            say(f"  {error}")
            time.sleep(1 + attempt)
            continue
        found |= {"log": log, "took_s": round(time.monotonic() - begin, 1)}
        results.append(SUITE, run, found, by)
        if found["canary"] >= CANARY:
            return found
        say(f"  another process computed (canary {found['canary']:.2f})")
    return None


def spark_version(python: Path) -> str:
    """Returns the version of this Python's PySpark."""
    command = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run(left: list[dict], lines: list[dict], limit_s: float, python: Path, version: str) -> None:
    """Measures runs until another might exceed the time limit."""
    limit = TimeLimit(limit_s)
    with kept() as results.memory, rig(python) as hardware:
        for run in left:
            if not limit.admits(expected_s(run, lines)):
                return
            found = measure(hardware, run, f"spark-{version}")
            say(f"{run['suite']} {run['way']} {run['round']}: {found['ms']:.0f} ms" if found else f"{run['way']}: not measured")


def main() -> int:
    """Runs the command."""
    parser = runner.options("spark.run", __doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"{' or '.join(SUITES)} (default both)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only runs whose configuration's name contains this")
    parser.add_argument("--spark", choices=sorted(spark.versions()), default="4", help="version of Spark (default 4)")
    parser.add_argument("--list", action="store_true", help="report the missing runs and their estimated time")
    chosen = parser.parse_args()
    if unknown := set(chosen.suites) - set(SUITES):
        parser.error(f"unknown suite {', '.join(sorted(unknown))}; expected one of {', '.join(SUITES)}")
    python = spark.python(chosen.spark)
    version = spark_version(python)
    runs = [run for run in wanted(set(chosen.suites or SUITES), version) if chosen.only in run["way"]]
    lines = results.load(SUITE)
    left = missing(runs, lines)
    say(f"Spark {version}: {len(left)} of {len(runs)} runs are missing, about {sum(expected_s(r, lines) for r in left):.0f} s")
    if chosen.list or not left:
        return table.main()
    return carry_out(SUITE, lambda: run(left, lines, chosen.time_limit, python, version), table.main)


if __name__ == "__main__":
    sys.exit(main())
