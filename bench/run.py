"""Measures the cases that this build lacks and writes `bench/RESULTS.md`: `python -m bench.run [SUITE…]`.

Suites run in the order `micro`, `warm`, `recording`, `cold`, `sparklog`, `million`; the default is all.
Each finished case is appended to `bench/results/SUITE.jsonl`, so a stopped run resumes.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench import table
from bench.common import results
from bench.engine import cold, micro, million, recording, sparklog, warm
from harness import binary
from lab import memory

SUITES = ("micro", "warm", "recording", "cold", "sparklog", "million")


def say(case: dict, found: dict) -> None:
    """Reports a finished case on stderr, in one line."""
    what = ", ".join(f"{key} {value}" for key, value in case.items())
    times = "; ".join(f"{name} {_short(value)}" for name, value in found.items() if isinstance(value, (dict, list)))
    print(f"{what}: {times}" if times else what, file=sys.stderr, flush=True)


def _short(value) -> str:
    """Formats the times in a suite's result."""
    if isinstance(value, dict):
        return value.get("error") or " ".join(f"{ms:.0f}" for ms in value["ms"]) + " ms"
    if value and isinstance(value[0], dict):
        return " ".join(run["error"] or f"{run['ms']:.0f}" for run in value) + " ms"
    return f"{len(value)} pairs"


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n")[0])
    parser.add_argument("suites", nargs="*", help="default: all", metavar="SUITE")
    parser.add_argument("--scales", default="1,5", help="TPC-H scale factors of `warm` (default 1,5)")
    parser.add_argument("--runs", type=_positive, metavar="N", help="run each case at most N times (N pairs); not for `micro`")
    parser.add_argument("--again", action="store_true", help="also measure the cases that this build has")
    parser.add_argument("--queries", default=",".join(map(str, range(1, 23))), help="TPC-H queries of `warm` (default all)")
    chosen = parser.parse_args()
    if unknown := set(chosen.suites) - set(SUITES):
        parser.error(f"unknown suite {', '.join(sorted(unknown))}; expected one of {', '.join(SUITES)}")
    suites = set(chosen.suites or SUITES)
    results.since = results.now() if chosen.again else ""
    if "micro" in suites:
        micro.run(say)
    if others := suites - {"micro"}:
        for path in (binary.binary(), binary.example()):
            if not path.exists():
                print(f"{path} does not exist; run cargo build --release --workspace --bins --examples", file=sys.stderr)
                return 1
        with memory.kept() as results.memory:
            if queries := others - {"sparklog", "million"}:
                run_queries(queries, chosen)
            if "sparklog" in others:
                sparklog.run(say, chosen.runs)
            if "million" in others:
                million.run(say, chosen.runs)
    return table.main()


def run_queries(suites: set[str], chosen: argparse.Namespace) -> None:
    """Runs the suites that execute TPC-H queries."""
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder)
        cold.duck("--texts", texts)
        if "warm" in suites:
            for scale in map(float, chosen.scales.split(",")):
                data = binary.ensure_data("tpch", scale)
                warm.run(data, scale, texts, [int(number) for number in chosen.queries.split(",")], say, chosen.runs)
        if "recording" in suites:
            recording.run(binary.ensure_data("tpch", 1), 1, texts, say, chosen.runs)
        if "cold" in suites:
            cold.run(texts, say, chosen.runs)


def _positive(text: str) -> int:
    """Parses a number of runs."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"invalid number of runs `{text}`; expected at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
