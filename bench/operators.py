"""Do the core times of operators add up to what the kernel counts?

    python -m bench.operators                         # what is missing for this build, then the table

Runs TPC-H, TPC-DS and random queries over larger tables, with the page cache warm and bypassed, and compares the sum of
the operators' exclusive core times with the core time of the compute threads. Each finished query is a line of
`bench/results/operators.jsonl`, so a stopped run resumes.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from bench.common import results
from bench.common.pages import narrow_header
from harness import binary, traces
from harness.sql import oracle, random_sql
from lab import cache

SUITE = "operators"
RANDOM_QUERIES = 200
RANDOM_ROWS = {"range(400)": "range(8000)", "range(150)": "range(3000)"}
# The goal holds for queries that take at least this much core time, in milliseconds.
LEAST_MS = 50
GOAL = 0.02


def measure(text: str, tables: list[str], options: list[str]) -> dict:
    """Runs a query and sums its core time."""
    with tempfile.TemporaryDirectory() as folder:
        query, path = Path(folder) / "query.sql", Path(folder) / "query.trace"
        query.write_text(text)
        ran = binary.run("sql", "-f", query, "--quiet", "--trace", path, *tables, *options)
        if ran.code:
            return {"error": ran.err.splitlines()[0][:200]}
        trace = traces.read(path)
    operators = trace.of["operator"]
    return {
        "core_ms": sum(m["cpu_ns"] for m in trace.monotasks("cpu")) / 1e6,
        "operators_ms": sum(o["cpu_ns"] for o in operators) / 1e6,
        "operators": len(operators),
    }


def random_tables(folder: Path) -> list[str]:
    """Writes the tables of the random queries with more rows. Returns the options that register them."""
    options = []
    with oracle.connect() as duck:
        for name, query in random_sql.TABLES.items():
            for few, many in RANDOM_ROWS.items():
                query = query.replace(few, many)
            duck.execute(f"COPY ({query}) TO '{folder}/{name}.parquet'")
            options += ["--table", f"{name}={folder}/{name}.parquet"]
    return options


def run(case: dict, text: str, tables: list[str]) -> None:
    """Measures a case that this build has not measured."""
    if not results.done(SUITE, case):
        options = ["--io", "direct"] if case["cold"] else []
        results.append(SUITE, case, measure(text, tables, options))
        print(case, file=sys.stderr, flush=True)


def table(lines: list[dict]) -> list[str]:
    """Returns a Markdown table with a row for each suite."""
    rows = narrow_header("queries", "page cache", "number", f"of {LEAST_MS} ms and more", "median rest", "largest rest", f"within {GOAL:.0%}")
    newest = {str(line["case"]): line for line in lines}.values()
    for suite, cold in sorted({(line["case"]["queries"], line["case"]["cold"]) for line in newest}):
        ran = [n for n in newest if (n["case"]["queries"], n["case"]["cold"]) == (suite, cold) and "error" not in n]
        long = [n for n in ran if n["core_ms"] >= LEAST_MS]
        rest = [abs(n["core_ms"] - n["operators_ms"]) / n["core_ms"] for n in long]
        if rest:
            within = sum(share <= GOAL for share in rest)
            figures = f"{len(long)} | {statistics.median(rest):.2%} | {max(rest):.2%} | {within}"
            rows.append(f"| {suite} | {'bypassed' if cold else 'warm'} | {len(ran)} | {figures} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    chosen = parser.parse_args()
    for benchmark in oracle.BENCHMARKS:
        files = sorted(binary.ensure_data(benchmark, chosen.scale).glob("*.parquet"))
        cache.warm(files)
        tables = [option for file in files for option in ("--table", f"{file.stem}={file}")]
        for cold in (False, True):
            for number in oracle.texts(benchmark):
                case = {"queries": benchmark, "query": number, "cold": cold, "scale": chosen.scale}
                run(case, oracle.text_for_pellucid(benchmark, number), tables)
    with tempfile.TemporaryDirectory() as folder:
        tables = random_tables(Path(folder))
        for seed in range(RANDOM_QUERIES):
            case = {"queries": "random", "query": seed, "cold": False, "scale": chosen.scale}
            run(case, random_sql.Maker(f"operators-{seed}").query(), tables)
    print("\n".join(table(results.made(SUITE, results.build()))))


if __name__ == "__main__":
    main()
