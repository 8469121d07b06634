"""Compares iterative jobs with other systems: `python -m bench.iterate.run`, or `make bench-iterate`.

Each finished case is a line in `bench/results/iterate.jsonl`, so a stopped run resumes. A peer's line counts while its
program is unchanged, Pellucid's while the binary is. The command ends by writing `bench/ITERATE.md`.

All programs read the same files, keep their data in memory in their preferred form, and use all cores; reading is not
timed. They take the same steps from the same start, and the table shows the loss, inertia or ranks after the last one.
Pellucid is measured before and after its peers. The regressions of scikit-learn and MLlib use other solvers, and MLlib's
k-means starts from other centers: there only the time of a step is comparable.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.common import results, runner
from bench.common.runner import TimeLimit, carry_out, say
from bench.iterate import experiments, floors, runs, table
from bench.iterate.data import graph, points
from bench.iterate.runs import HERE, OURS, Case, ours, python, spark
from harness import binary
from lab import memory

SUITE = "iterate"
PYTHON = {
    "regression": ["numba", "numpy, blocked", "scikit-learn", "Ray with numpy"],
    "kmeans": ["scikit-learn", "numpy, blocked"],
    "pagerank": ["scipy"],
}
SPARK = {
    "regression": ["Spark, hand-tuned", "Spark MLlib"],
    "kmeans": ["Spark MLlib"],
    "pagerank": ["GraphX"],
}
ITERATIONS = {"Pellucid": 20, "Spark MLlib": 5, "GraphX": 3}
PARTS = [*OURS, "floors", "workers", "whatif", "uneven", "scaling", "micropartitions"]


def applications(chosen: argparse.Namespace, folder: Path) -> Iterator[Case]:
    """Yields the cases of each application and its peers."""
    build = results.build()
    by = {
        run: results.fingerprint([HERE / program, binary.ROOT / "requirements" / "bench-iterate.in"])
        for run, program in ((python, "peers.py"), (spark, "spark.scala"))
    }
    for application in [part for part in OURS if part in chosen.parts]:
        pagerank = application == "pagerank"
        data = graph(folder, chosen.scale) if pagerank else points(folder, chosen.rows)
        size = {"scale": chosen.scale} if pagerank else {"rows": chosen.rows}

        def own(precision, turn):
            case = {"application": application, "peer": f"Pellucid {precision}", **size, "turn": turn}
            options = ["--precision", precision, "--bandwidth"]
            return Case(case, build, lambda: ours(application, data, ITERATIONS["Pellucid"], *options))

        yield from (own(precision, 1) for precision in ("f64", "f32"))
        for run, names in ((python, PYTHON), (spark, SPARK)):
            for peer in names[application]:
                if peer in chosen.without or run is spark and "spark" in chosen.without:
                    continue
                steps = ITERATIONS.get(peer, 5)
                case = {"application": application, "peer": peer, **size, "turn": 1}
                yield Case(case, by[run], lambda: run(application, peer, data, steps, chosen.limit))
        yield from (own(precision, 2) for precision in ("f64", "f32"))


def cases(chosen: argparse.Namespace, folder: Path) -> Iterator[Case]:
    """Yields all chosen cases, in order."""
    yield from applications(chosen, folder)
    if "floors" in chosen.parts:
        yield from floors.cases()
    if "workers" in chosen.parts:
        yield from experiments.workers(folder, chosen)
    if "whatif" in chosen.parts:
        yield from experiments.whatif(folder)
    if "uneven" in chosen.parts:
        yield from experiments.uneven()
    if "scaling" in chosen.parts:
        yield from experiments.scaling()
    if "micropartitions" in chosen.parts:
        yield from experiments.micropartitions(folder, chosen)


def is_done(case: dict, by: str, limit_s: float) -> bool:
    """Returns whether a case has a line. A peer that timed out is repeated with a longer limit."""
    lines = (line for line in results.made(SUITE, by) if line["case"] == case)
    return any("error" not in line or line.get("limit_s", limit_s) >= limit_s for line in lines)


def run(chosen: argparse.Namespace, folder: Path, failed: list[dict]) -> None:
    """Measures the missing cases until the time limit. Failures of Pellucid are reported and collected, not recorded."""
    limit, left = TimeLimit(chosen.time_limit), 0
    with memory.kept() as results.memory:
        for case, by, measure in cases(chosen, folder):
            if is_done(case, by, chosen.limit):
                continue
            if not limit.admits(0.0):
                left += 1
                continue
            try:
                with results.quiet() as others:
                    found = measure()
            except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as error:
                say(f"{', '.join(map(str, case.values()))}: {error}")
                failed.append(case)
                continue
            results.append(SUITE, case, found | {"others_cores": others()}, by)
            summary = found.get("error") or ", ".join(
                f"{statistics.median(value):.4g} {key}" if isinstance(value, list) else f"{key} {value}"
                for key, value in found.items()
                if key in ("iteration_s", "tasks_per_s", "ns", "messages")
            )
            say(f"{', '.join(map(str, case.values()))}: {summary}")
    if left:
        say(f"{left} cases are left")


def main() -> int:
    parser = runner.options("iterate.run", __doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the table (default 20 million, 3.4 GB)")
    parser.add_argument("--scale", type=int, default=22, help="the graph has 2^SCALE vertices (default 22)")
    parts = f"run this part, repeatable: {', '.join(PARTS)} (default all)"
    parser.add_argument("--only", choices=PARTS, action="append", dest="parts", metavar="PART", help=parts)
    parser.add_argument("--without", action="append", default=[], metavar="PEER", help="leave out a peer; `spark` for all on Spark")
    parser.add_argument("--limit", type=float, default=1800.0, metavar="SECONDS", help="time limit of a peer (default 1800)")
    parser.add_argument("--data-only", action="store_true", help="make the data and measure nothing")
    chosen = parser.parse_args()
    chosen.parts = chosen.parts or PARTS
    for part in {"scaling", "uneven"} & set(chosen.parts):
        runs.built(part)
    results.build = lambda: results.fingerprint([binary.binary()])
    folder = binary.data_home() / "iterate"
    folder.mkdir(parents=True, exist_ok=True)
    if chosen.data_only:
        for scale in (experiments.SCALE, experiments.SMALL_SCALE):
            experiments.data(folder, scale)
        points(folder, chosen.rows), graph(folder, chosen.scale)
        return 0
    failed: list[dict] = []
    code = carry_out(SUITE, lambda: run(chosen, folder, failed), table.main)
    return code or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
