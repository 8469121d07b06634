"""Iterative jobs side by side with what installs: `python -m bench.iterate.run`, or `make bench-iterate`.

Each finished case is a line in `bench/results/iterate.jsonl`; a run that was stopped, or that reached its
`--time-limit`, goes on where it was. A peer's line counts as long as its program stays the same, ours as
long as the binary does. `bench/ITERATE.md` is made from the lines. What keeps it fair: all read the same files
and keep their data in memory as they like best; reading is not timed; every one has all cores; the same steps
from the same start, and the loss, inertia or ranks after the last one stand beside the time. Ours is measured
before its peers and once more after them. scikit-learn's and MLlib's regressions have solvers of their own, and
MLlib's k-means starts elsewhere: there a step's time is compared, not the answer.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import results
from bench.iterate import experiments, floors, runs, table
from bench.iterate.data import graph, points
from bench.iterate.runs import HERE, OURS, Case, ours, python, spark
from lab import memory
from tests import binary

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
    """Each application beside its peers."""
    build = results.build()
    by = {
        run: results.fingerprint([HERE / program, HERE / "requirements.txt"])
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
    """All that is asked for, in order."""
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
    """Whether there is a line for a case. What a peer did not end in time is tried again with more of it."""
    lines = (line for line in results.made(SUITE, by) if line["case"] == case)
    return any("error" not in line or line.get("limit_s", limit_s) >= limit_s for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.iterate.run", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the table (default 20 million, 3.4 GB)")
    parser.add_argument("--scale", type=int, default=22, help="of the graph: 2^SCALE vertices (default 22)")
    parser.add_argument("--only", choices=PARTS, action="append", dest="parts", help="a part (default all)")
    parser.add_argument("--without", action="append", default=[], help="a peer to leave out; `spark`: all on Spark")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that a peer may take (default 1800)")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="begin no case after so many seconds")
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
    began, left, failed = time.monotonic(), 0, 0
    with memory.kept() as results.memory:
        for case, by, run in cases(chosen, folder):
            if is_done(case, by, chosen.limit):
                continue
            if time.monotonic() - began > chosen.time_limit:
                left += 1
                continue
            try:
                with results.quiet() as others:
                    found = run()
            except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as error:
                # Ours: it is mended, not recorded. The others go on.
                print(f"{', '.join(map(str, case.values()))}: {error}", file=sys.stderr, flush=True)
                failed += 1
                continue
            results.append(SUITE, case, found | {"others_cores": others()}, by)
            told = found.get("error") or ", ".join(
                f"{statistics.median(value):.4g} {key}" if isinstance(value, list) else f"{key} {value}"
                for key, value in found.items()
                if key in ("iteration_s", "tasks_per_s", "ns", "messages")
            )
            print(f"{', '.join(map(str, case.values()))}: {told}", file=sys.stderr, flush=True)
    if left:
        print(f"{left} cases are left; the same command goes on with them", file=sys.stderr)
    table.main()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
