"""Compares peak memory with DuckDB, and time across scales.

    python -m bench.memory [--benchmark tpch] [--scale 10] [--runs 2]

Each query runs in a fresh process of either engine, in turns, with the files in the page cache, at scale 1 and at the larger
scale. Each finished query is a line of `bench/results/memory.jsonl`, so a stopped run resumes. The table is printed from
those lines.
"""

import argparse
import math
import tempfile
from pathlib import Path

from bench.common import results, stats
from bench.common.goals import Goal, at_most, of_all
from bench.common.pages import narrow_header, newest, noisy, row
from bench.common.runner import say
from bench.engine import warm
from harness import binary
from harness.sql import oracle
from lab import cache

SUITE = "memory"
ENGINES = ("pellucid", "duckdb")
SMALL = 1.0
# Goals: peak over DuckDB's in geometric mean and in the worst query, time over DuckDB's, and the slope of time from scale 1.
PEAK, WORST, TIME, SLOPE = 1.0, 2.0, 1.12, 1.1


def least(line: dict, engine: str, what: str) -> float | None:
    """Returns the smallest of an engine's measurements; None if it failed."""
    of_engine = line["engines"][engine]
    return None if of_engine["error"] else min(of_engine[what])


def slope(small: dict | None, large: dict, engine: str) -> float | None:
    """Returns the slope of an engine's time over the scale, both in logarithms."""
    times = [least(line, engine, "ms") if line else None for line in (small, large)]
    if None in times:
        return None
    return math.log(times[1] / times[0]) / math.log(large["case"]["scale"] / small["case"]["scale"])


def table(lines: list[dict], benchmark: str, scale: float) -> list[str]:
    """Returns a Markdown table with a row for each query, and the goals."""
    of = {(line["case"]["query"], line["case"]["scale"]): line for line in lines if line["case"]["benchmark"] == benchmark}
    large = [line for (_, at), line in sorted(of.items()) if at == scale]
    rows = narrow_header("query", "ours, s", "DuckDB, s", "ratio", "ours, MB", "DuckDB, MB", "ratio", "slope")
    peaks, times, slopes, failed = {}, {}, {}, []
    for line in large:
        query = line["case"]["query"]
        values = [least(line, engine, what) for what in ("ms", "peak_bytes") for engine in ENGINES]
        grows = slope(of.get((query, SMALL)), line, "pellucid")
        if None in values:
            failed += [f"{query} ({name})" for name in ENGINES if line["engines"][name]["error"]]
            rows.append(row(query, *["–"] * 7))
            continue
        times[query], peaks[query] = values[0] / values[1], values[2] / values[3]
        if grows is not None:
            slopes[query] = grows
        shown = [f"{value / 1e3:.2f}" for value in values[:2]] + [f"{times[query]:.2f}"]
        shown += [f"{value / 1e6:,.0f}" for value in values[2:]] + [f"{peaks[query]:.2f}"]
        rows.append(row(query, *shown, "–" if grows is None else f"{grows:.2f}"))
    return [*rows, "", *map(str, goals(benchmark, peaks, times, slopes, failed)), noisy(large)]


def goals(benchmark: str, peaks: dict, times: dict, slopes: dict, failed: list[str]) -> list[Goal]:
    """Returns the goals."""
    count = oracle.BENCHMARKS[benchmark]
    mean = lambda values: stats.geometric_mean(list(values.values())) if values else None
    lacks = of_all(len(peaks), count, "queries")
    return [
        at_most("Peak memory over DuckDB's, geometric mean", mean(peaks), PEAK, failed, lacks),
        at_most("Peak memory over DuckDB's, worst query", max(peaks.values(), default=None), WORST, failed, lacks),
        at_most("Time over DuckDB's, geometric mean", mean(times), TIME, failed, lacks),
        at_most("Slope of time from scale 1, worst query", max(slopes.values(), default=None), SLOPE, failed, of_all(len(slopes), count, "queries")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", choices=oracle.BENCHMARKS, default="tpch")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--runs", type=int, default=2)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for scale in (SMALL, chosen.scale):
            cases = [{"benchmark": chosen.benchmark, "query": query, "scale": scale} for query in oracle.texts(chosen.benchmark)]
            missing = [case for case in cases if not results.done(SUITE, case, chosen.runs)]
            data = binary.ensure_data(chosen.benchmark, scale) if missing else Path()
            cache.warm(sorted(data.glob("*.parquet")) if missing else [])
            for case in missing:
                query = Path(folder) / f"{case['query']:02}.sql"
                query.write_text(oracle.text_for_pellucid(chosen.benchmark, case["query"]))
                found = warm.measure(data, query, {}, chosen.runs, ENGINES)
                results.append(SUITE, case, found)
                say(f"{chosen.benchmark} {case['query']} at scale {scale:g}: measured")
    lines = newest(results.made(SUITE, results.build()))
    print("\n".join(table(lines, chosen.benchmark, chosen.scale)))


if __name__ == "__main__":
    main()
