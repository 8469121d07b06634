"""Scores `pellucid backtest --causal` on TPC-H, for which nothing was tuned.

    python -m bench.causal [--scale 1] [--repeats 5]

The command slows the cores and the disk by known factors, predicts each run
from the unchanged one, and measures it. Each finished query is a line of
`bench/results/causal.jsonl`, so a stopped run resumes. The table is printed
from those lines.
"""

import argparse
import json
import statistics
import subprocess
import sys

from bench.common import results
from bench.common.pages import narrow_header
from harness import binary
from harness.sql import oracle
from lab import cache

SUITE = "causal"


def measure(text: str, tables: list[str], repeats: int) -> dict:
    """Returns the cases of one query, as `pellucid backtest --json` reports them."""
    command = [binary.binary(), "backtest", "--causal", text, "--repeats", str(repeats), "--json", "--quiet", *tables]
    with results.quiet() as others:
        found = subprocess.run(command, check=True, capture_output=True, text=True)
    cases = json.loads(found.stdout)["cases"]
    return {"runs": repeats, "cases": cases, "others_cores": others()}


def row(name: str, cases: list[dict]) -> str:
    """Formats a row: the errors of some cases, and the share inside their intervals."""
    errors = sorted(case["error"] for case in cases)
    inside = sum(case["low_ms"] <= case["measured_ms"] <= case["high_ms"] for case in cases)
    ninth = errors[min(len(errors) - 1, len(errors) * 9 // 10)]
    return f"| {name} | {len(errors)} | {statistics.median(errors):.1%} | {ninth:.1%} | {errors[-1]:.1%} | {inside / len(errors):.0%} |"


def table(lines: list[dict]) -> list[str]:
    """Returns a Markdown table with a row for each slowed resource, and one for all."""
    cases = [case for line in lines for case in line["cases"]]
    keys = sorted({next(iter(case["set"])) for case in cases})
    head = narrow_header("slowed", "cases", "median error", "90th percentile", "worst", "inside the 90 % interval")
    return [*head, *(row(key, [case for case in cases if key in case["set"]]) for key in keys), row("all", cases)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    by = results.fingerprint([binary.binary()])
    files = sorted(binary.ensure_data("tpch", chosen.scale).glob("*.parquet"))
    cache.warm(files)
    tables = [option for file in files for option in ("--table", f"{file.stem}={file}")]
    for number in oracle.texts("tpch"):
        case = {"benchmark": "tpch", "query": number, "scale": chosen.scale}
        if any(line["case"] == case and line["runs"] >= chosen.repeats for line in results.made(SUITE, by)):
            continue
        results.append(SUITE, case, measure(oracle.text_for_pellucid("tpch", number), tables, chosen.repeats), by)
        print(f"tpch {number}", file=sys.stderr, flush=True)
    newest = {str(line["case"]): line for line in results.made(SUITE, by)}
    print("\n".join(table(list(newest.values()))))


if __name__ == "__main__":
    main()
