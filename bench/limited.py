"""Compares queries under a memory limit with DuckDB under the same limit, and with themselves with the usual budget.

    python -m bench.limited [--benchmark tpch] [--scale 10] [--memory 1GiB] [--runs 2]

Each query runs in fresh processes, in turns, with the files in the page cache; both engines spill to the same disk. Answers
are compared with DuckDB's without a limit. Each finished query is a line of `bench/results/limited.jsonl`, so a stopped run
resumes. The table is printed from those lines.
"""

import argparse
import json
import os
import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.common import results, stats
from bench.common.goals import Goal, at_most, of_all
from bench.common.pages import narrow_header, newest, noisy, row
from bench.common.runner import say
from bench.engine.sessions import EngineError, Session
from bench.engine.warm import rotated
from harness import binary
from harness.sql import compare, oracle
from lab import cache

SUITE = "limited"
ENGINES = ("usual", "limited", "duckdb")
# Goals: time over that with the usual budget, and over DuckDB's with it, in geometric mean; and the peak beyond the limit.
OVER_USUAL, OVER_DUCKDB = 2.0, 1.0
PEAK_SHARE, PEAK_BYTES = 1.15, 200e6
UNITS = {"MiB": 2**20, "GiB": 2**30}


def limit_bytes(memory: str) -> int:
    return int(memory[:-3]) * UNITS[memory[-3:]]


def run_pellucid(data: Path, query: str, folder: Path, memory: str | None) -> tuple[dict, int]:
    """Runs a query. Returns its document and the peak memory of its process."""
    limit = ["--memory", memory, "--spill-dir", folder] if memory else []
    args = [binary.binary(), "sql", query, "--json", *binary.tables(data), *limit]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(list(map(str, args)), stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode != 0:
            raise EngineError(err.read().strip())
        return json.load(out), usage.ru_maxrss * 1024


def measure(data: Path, case: dict, folder: Path, runs: int) -> dict:
    """Measures one query."""
    benchmark, number, memory = case["benchmark"], case["query"], case["memory"]
    query = oracle.text_for_pellucid(benchmark, number)
    text = folder / "query.sql"
    text.write_text(query)
    # In a process of its own: the peak of a process is at least that of the one which starts it.
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        answer = apart.submit(oracle.answer, benchmark, number, data).result()
    found = {engine: {"ms": [], "peak_bytes": [], "error": None} for engine in ENGINES}
    with results.quiet([]) as others:
        for run in range(runs):
            for engine in rotated(run, ENGINES):
                of_engine = found[engine]
                if of_engine["error"]:
                    continue
                try:
                    if engine == "duckdb":
                        with Session(engine, data, memory, str(folder)) as session:
                            ms = session.ask(text).ms
                        peak = session.peak_bytes
                    else:
                        said, peak = run_pellucid(data, query, folder, memory if engine == "limited" else None)
                        ms, columns = said["job"]["duration_ms"], said["columns"]
                        names, types = [column["name"] for column in columns], [column["type"] for column in columns]
                        of_engine["spill"] = said["job"]["spill"]
                        of_engine["error"] = compare.difference(answer, names, types, said["rows"])
                    of_engine["ms"].append(round(ms, 3))
                    of_engine["peak_bytes"].append(peak)
                except EngineError as error:
                    of_engine["error"] = str(error)
    return {"runs": runs, "engines": found, "left_files": len(os.listdir(folder)) - 1, "others_cores": others()}


def least(line: dict, engine: str, what: str) -> float | None:
    """Returns the smallest of an engine's measurements; None if it failed."""
    of_engine = line["engines"][engine]
    return None if of_engine["error"] else min(of_engine[what])


def table(lines: list[dict], benchmark: str, scale: float, memory: str) -> list[str]:
    """Returns a Markdown table with a row for each query, and the goals."""
    wanted = {"benchmark": benchmark, "scale": scale, "memory": memory}
    lines = [line for line in lines if wanted.items() <= line["case"].items()]
    lines.sort(key=lambda line: line["case"]["query"])
    rows = narrow_header("query", "limited, s", "usual, s", "ratio", "DuckDB, s", "ratio", "spilled, MB", "peak, MB", "DuckDB's, MB")
    slower, of_duckdb, beyond, failed = {}, {}, {}, []
    bound = limit_bytes(memory) * PEAK_SHARE + PEAK_BYTES
    shown = lambda value, scale, digits: "–" if value is None else f"{value / scale:,.{digits}f}"
    for line in lines:
        query = line["case"]["query"]
        usual, limited, duckdb = (least(line, engine, "ms") for engine in ENGINES)
        peaks = [least(line, engine, "peak_bytes") for engine in ENGINES[1:]]
        if limited is None:
            failed.append(str(query))
        else:
            slower[query], beyond[query] = limited / usual, peaks[0] / bound
            if duckdb is not None:
                of_duckdb[query] = limited / duckdb
        spill = (line["engines"]["limited"].get("spill") or {}).get("write_bytes", 0)
        ratios = [shown(of.get(query), 1, 2) for of in (slower, of_duckdb)]
        times = [shown(value, 1e3, 2) for value in (limited, usual, duckdb)]
        rows.append(row(query, *times[:2], ratios[0], times[2], ratios[1], shown(spill, 1e6, 0), *(shown(peak, 1e6, 0) for peak in peaks)))
    return [*rows, "", *map(str, goals(benchmark, memory, slower, of_duckdb, beyond, failed)), noisy(lines)]


def goals(benchmark: str, memory: str, slower: dict, of_duckdb: dict, beyond: dict, failed: list[str]) -> list[Goal]:
    """Returns the goals."""
    mean = lambda values: stats.geometric_mean(list(values.values())) if values else None
    lacks = of_all(len(slower), oracle.BENCHMARKS[benchmark], "queries")
    return [
        at_most(f"Time with {memory} over that with the usual budget, geometric mean", mean(slower), OVER_USUAL, failed, lacks),
        at_most("Time over DuckDB's with the same limit, geometric mean of those that it answers", mean(of_duckdb), OVER_DUCKDB, failed, lacks),
        at_most("Peak over 1.15 times the limit and 200 MB, worst query", max(beyond.values(), default=None), 1.0, failed, lacks),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", choices=oracle.BENCHMARKS, default="tpch")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--memory", default="1GiB", help="whole MiB or GiB")
    parser.add_argument("--runs", type=int, default=2)
    chosen = parser.parse_args()
    data = binary.ensure_data(chosen.benchmark, chosen.scale)
    of = {"benchmark": chosen.benchmark, "scale": chosen.scale, "memory": chosen.memory}
    cases = [of | {"query": query} for query in oracle.texts(chosen.benchmark)]
    missing = [case for case in cases if not results.done(SUITE, case, chosen.runs)]
    cache.warm(sorted(data.glob("*.parquet")) if missing else [])
    for case in missing:
        with tempfile.TemporaryDirectory() as folder:
            results.append(SUITE, case, measure(data, case, Path(folder), chosen.runs))
        say(f"{case['benchmark']} {case['query']} with {case['memory']}: measured")
    lines = newest(results.made(SUITE, results.build()))
    print("\n".join(table(lines, chosen.benchmark, chosen.scale, chosen.memory)))


if __name__ == "__main__":
    main()
