"""Compares two builds on TPC-H and TPC-DS, planned and run, in fresh processes.

    python -m bench.builds OLD NEW [--scale 1] [--runs 5]

The binaries take turns, query by query. Each finished query is a line of
`bench/results/builds.jsonl`, so a stopped run resumes. The table is printed
from those lines: for each suite the geometric mean of new over old, from each
query's medians, with a 95 % interval.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.common import results, stats
from bench.common.pages import narrow_header
from harness import binary
from harness.sql import oracle
from lab import cache

SUITE = "builds"


def timed(program: Path, query: Path, tables: list[str]) -> float:
    """Returns the seconds of one process."""
    start = time.perf_counter()
    command = [program, "sql", "-f", query, "--quiet", *tables]
    # No timeout: with one, Python polls the process in steps of up to 50 ms.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(programs: dict[str, Path], query: Path, tables: list[str], runs: int) -> dict:
    """Returns the seconds of each binary's runs, with alternating order; the first run is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    with results.quiet() as others:
        for run in range(runs + 1):
            for name in sorted(programs, reverse=run % 2 == 1):
                took = timed(programs[name], query, tables)
                if run > 0:
                    seconds[name].append(round(took, 6))
    return {"runs": runs, "seconds": seconds, "others_cores": others()}


def table(lines: list[dict]) -> list[str]:
    """Returns a Markdown table with a row for each suite."""
    rows = narrow_header("suite", "queries", "old, s", "new, s", "new over old", "95 %", "slowest query")
    suites = sorted({(line["case"]["benchmark"], line["case"]["what"]) for line in lines})
    for benchmark, what in suites:
        of_suite = [line for line in lines if (line["case"]["benchmark"], line["case"]["what"]) == (benchmark, what)]
        pairs = [(statistics.median(line["seconds"]["new"]), statistics.median(line["seconds"]["old"])) for line in of_suite]
        mean, low, high = stats.ratio_interval(pairs)
        new, old = (sum(pair[at] for pair in pairs) for at in (0, 1))
        ratio, slowest = max((a / b, line["case"]["query"]) for (a, b), line in zip(pairs, of_suite, strict=True))
        rows.append(f"| {benchmark}, {what} | {len(pairs)} | {old:.2f} | {new:.2f} | {mean:.3f} | {low:.3f} to {high:.3f} | {slowest}: {ratio:.2f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    by = results.fingerprint([chosen.old.resolve(), chosen.new.resolve()])
    with tempfile.TemporaryDirectory() as folder:
        # Copies made alike: a process starts up to a fifth faster from a file that lies well in the page cache.
        programs = {name: Path(shutil.copy(program, f"{folder}/{name}")) for name, program in (("old", chosen.old), ("new", chosen.new))}
        for benchmark in oracle.BENCHMARKS:
            data = binary.ensure_data(benchmark, chosen.scale)
            files = sorted(data.glob("*.parquet"))
            cache.warm(files)
            tables = [option for file in files for option in ("--table", f"{file.stem}={file}")]
            for number in oracle.texts(benchmark):
                text = oracle.text_for_pellucid(benchmark, number)
                for what, statement in [("run", text), ("planned", f"EXPLAIN {text}")]:
                    case = {"benchmark": benchmark, "query": number, "what": what, "scale": chosen.scale}
                    if results.done(SUITE, case, chosen.runs, by):
                        continue
                    query = Path(folder) / "query.sql"
                    query.write_text(statement)
                    results.append(SUITE, case, measure(programs, query, tables, chosen.runs), by)
                    print(f"{benchmark} {number} {what}", file=sys.stderr, flush=True)
    newest = {str(line["case"]): line for line in results.made(SUITE, by)}
    print("\n".join(table(list(newest.values()))))


if __name__ == "__main__":
    main()
