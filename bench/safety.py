"""Measures the cost of safety: synced outputs, encrypted iterative jobs, and strangers at a job's ports.

    python -m bench.safety [--pairs 15]

Each case runs a command with and without one of the three, in turns, and prints the ratio of their times with its 95 %
interval. Outputs are compared with the same command under libeatmydata, which turns syncs into no-ops
(Debian: eatmydata). Each finished case is a line of `bench/results/safety.jsonl`, so a stopped run resumes.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from bench import strangers
from bench.common import results, stats
from bench.iterate import data as inputs
from harness import binary
from lab import cache

SUITE = "safety"
# Half of lineitem, sorted: as much written as read.
WIDE = "SELECT * FROM lineitem WHERE l_orderkey % 2 = 0 ORDER BY l_shipdate"
GROUPS = "SELECT l_partkey, sum(l_quantity) AS quantity, avg(l_extendedprice) AS price FROM lineitem GROUP BY 1"
ANSWER = "SELECT l_returnflag, sum(l_quantity) AS quantity FROM lineitem GROUP BY 1"
# Two processes, so that messages cross a connection. Of these, gradient descent sends the smallest messages and waits for each.
JOBS = {
    "kmeans": ["--k", 10, "--tolerance", 1e-300],
    "pagerank": ["--tolerance", 1e-300],
    "logistic-regression": ["--label", "y", "--solver", "gd", "--tolerance", 1e-300, "--partitions", 4],
}
# Iterations, and how many times as many beside strangers: their own process takes 0.2 s to start.
ITERATIONS = {"kmeans": 200, "pagerank": 200, "logistic-regression": 6000}
LONGER = 6
Run = Callable[[], float]


def unsynced() -> dict[str, str]:
    """Returns the environment of a process whose syncs do nothing."""
    library = next(Path("/usr/lib").glob("*/libeatmydata.so"), None)
    if library is None:
        sys.exit("bench.safety: cannot find libeatmydata; install it (apt-get install eatmydata)")
    return {"LD_PRELOAD": str(library)}


def writers(folder: Path, data: Path) -> Iterator[tuple[str, list]]:
    """Yields the commands that write, by name."""
    tables = ["--table", f"lineitem={data / 'lineitem.parquet'}"]
    trace, points = folder / "job.trace", inputs.points(folder, 500_000)
    binary.run("sql", ANSWER, *tables, "--trace", trace).check()
    for name, query in (("half of lineitem", WIDE), ("200,000 groups", GROUPS), ("3 rows", ANSWER)):
        yield f"sql -o, {name}", ["sql", query, *tables, "-o", folder / "answer.parquet"]
    yield "sql --trace", ["sql", ANSWER, *tables, "--trace", folder / "new.trace"]
    yield "generate tpch --scale 0.2", ["generate", "tpch", folder / "generated", "--scale", "0.2"]
    yield "report", ["report", trace, "-o", folder / "page.html"]
    yield "export --to perfetto", ["export", trace, "-o", folder / "spans.json", "--to", "perfetto"]
    kmeans = ["iterate", "kmeans", points, "--k", 10, "--iterations", 200, "--tolerance", 1e-300]
    yield "iterate -o", [*kmeans, "-o", folder / "clusters.parquet"]
    for each in (20, 100):
        name = f"iterate --snapshot, every {each} of 200 iterations"
        yield name, [*kmeans, "--snapshot", folder / "snapshots", "--snapshot-every", each]


def jobs(folder: Path) -> Iterator[tuple[str, list, list]]:
    """Yields the iterative jobs, by name, and longer ones of the same kind."""
    # PageRank ends when its ranks no longer change, so its longer job has a larger graph.
    data = {
        "kmeans": [inputs.points(folder, 1_000_000)] * 2,
        "pagerank": [inputs.graph(folder, 19), inputs.graph(folder, 21)],
        "logistic-regression": [inputs.points(folder, 200_000)] * 2,
    }
    for name, options in JOBS.items():
        commands = (
            ["iterate", name, file, *options, "--iterations", count, "--processes", 2, "--workers", 1]
            for file, count in zip(data[name], (ITERATIONS[name], ITERATIONS[name] * LONGER), strict=True)
        )
        yield name, *commands


def timed(folder: Path, command: list, environment: dict[str, str] | None = None, strangers_at: list[int] | Literal["job"] | None = None) -> float:
    """Returns the milliseconds of a command, with 300 strangers at these ports, or at those of the job that it runs."""
    for name in ("snapshots", "generated"):
        shutil.rmtree(folder / name, ignore_errors=True)
    # The pages of the run before are not this run's to write.
    os.sync()
    begin = time.perf_counter()
    words = [str(word) for word in (binary.binary(), *command, "--quiet")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    with contextlib.ExitStack() as stack:
        if strangers_at is not None:
            while len(found := strangers.ports(process.pid)) < 3 and process.poll() is None:
                time.sleep(0.01)
            opened = stack.enter_context(strangers.beside(found if strangers_at == "job" else strangers_at))
        code = process.wait()
        took = (time.perf_counter() - begin) * 1000
        if code or strangers_at is not None and not opened.value:
            sys.exit(f"bench.safety: {' '.join(words)} ended with {code}" + f", {opened.value} strangers" * (strangers_at is not None))
    return took


def cases(folder: Path, data: Path, decoys: list[int]) -> Iterator[tuple[dict, Run, Run]]:
    """Yields each case, with its run with and without the protection or the strangers."""
    environment = unsynced()
    for name, command in writers(folder, data):
        case = {"protection": "synced outputs", "command": name}
        yield case, lambda c=command: timed(folder, c), lambda c=command: timed(folder, c, environment)
    for name, command, longer in jobs(folder):
        yield (
            {"protection": "encryption", "command": f"iterate {name}"},
            lambda c=command: timed(folder, [*c, "--encrypt"]),
            lambda c=command: timed(folder, c),
        )
        yield (
            {"protection": "300 strangers", "command": f"iterate {name}, longer"},
            lambda c=longer: timed(folder, c, strangers_at="job"),
            lambda c=longer: timed(folder, c),
        )
        yield (
            {"protection": "300 strangers at the job instead of a decoy", "command": f"iterate {name}, longer"},
            lambda c=longer: timed(folder, c, strangers_at="job"),
            lambda c=longer: timed(folder, c, strangers_at=decoys),
        )


def pairs(count: int, safe: Run, bare: Run) -> list[tuple[float, float]]:
    """Returns the times with and without, alternating the first of each pair. A pair before them warms up."""
    safe(), bare()
    found = []
    for index in range(count):
        if index % 2:
            found.append((safe(), bare()))
        else:
            without = bare()
            found.append((safe(), without))
    return found


def table(lines: list[dict]) -> list[str]:
    """Returns a Markdown table with a row for each case."""
    newest = {str(line["case"]): line for line in lines}
    rows = ["| safety | command | without, ms | with : without | 95 % interval |", "|---|---|---|---|---|"]
    for line in newest.values():
        ratio, low, high = stats.ratio_interval(line["pairs_ms"])
        bare = statistics.median(without for _, without in line["pairs_ms"])
        case = line["case"]
        rows.append(f"| {case['protection']} | `{case['command']}` | {bare:.0f} | {ratio:.3f} | {low:.3f}–{high:.3f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    chosen = parser.parse_args()
    by = results.fingerprint([binary.binary()])
    data = binary.ensure_data("tpch", 1)
    cache.warm(sorted(data.glob("*.parquet")))
    # Beside the data, on a disk: /tmp may be in memory, where a sync costs nothing.
    with tempfile.TemporaryDirectory(dir=data.parent) as folder, strangers.decoy() as decoys:
        for case, safe, bare in cases(Path(folder), data, decoys):
            if any(line["case"] == case and line["runs"] >= chosen.pairs for line in results.made(SUITE, by)):
                continue
            with results.quiet() as others:
                found = pairs(chosen.pairs, safe, bare)
            results.append(SUITE, case, {"runs": chosen.pairs, "pairs_ms": found, "others_cores": others()}, by)
            print(case, file=sys.stderr, flush=True)
    print("\n".join(table(results.made(SUITE, by))))


if __name__ == "__main__":
    main()
