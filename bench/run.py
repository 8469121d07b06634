"""Runs what is missing of the benchmarks and writes the table: `python -m bench.run [SUITE…]`.

Suites: `micro`, `warm`, `recording`, `cold`, `sparklog`, `million`, in this order; none named: all.
Each finished case is appended to `bench/results/SUITE.jsonl`; a run that was stopped goes on where
it was.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench import cold, micro, million, recording, results, sparklog, table, warm
from bench.sessions import example
from lab import memory
from tests import binary

SUITES = ("micro", "warm", "recording", "cold", "sparklog", "million")


def say(case: dict, found: dict) -> None:
    """One line a finished case, on stderr."""
    what = ", ".join(f"{key} {value}" for key, value in case.items())
    times = "; ".join(f"{name} {_short(value)}" for name, value in found.items() if isinstance(value, (dict, list)))
    print(f"{what}: {times}" if times else what, file=sys.stderr, flush=True)


def _short(value) -> str:
    """The times in whatever a suite found."""
    if isinstance(value, dict):
        return value.get("error") or " ".join(f"{ms:.0f}" for ms in value["ms"]) + " ms"
    if value and isinstance(value[0], dict):
        return " ".join(run["error"] or f"{run['ms']:.0f}" for run in value) + " ms"
    return f"{len(value)} pairs"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n")[0])
    parser.add_argument("suites", nargs="*", help="default: all", metavar="SUITE")
    parser.add_argument("--scales", default="1,5", help="TPC-H scale factors of `warm` (default 1,5)")
    parser.add_argument("--runs", type=_positive, metavar="N", help="at most N runs (pairs) of each case; not `micro`")
    parser.add_argument("--again", action="store_true", help="measure what this build has, too")
    parser.add_argument("--queries", default=",".join(map(str, range(1, 23))), help="queries of `warm`")
    chosen = parser.parse_args()
    if unknown := set(chosen.suites) - set(SUITES):
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    suites = set(chosen.suites or SUITES)
    results.since = results.now() if chosen.again else ""
    if "micro" in suites:
        micro.run(say)
    if beside := suites - {"micro"}:
        for path in (binary.binary(), example()):
            if not path.exists():
                print(f"{path} does not exist: cargo build --release --workspace --bins --examples", file=sys.stderr)
                return 1
        with memory.kept() as results.memory:
            if queries := beside - {"sparklog", "million"}:
                beside_peers(queries, chosen)
            if "sparklog" in beside:
                sparklog.run(say, chosen.runs)
            if "million" in beside:
                million.run(say, chosen.runs)
    table.main()
    return 0


def beside_peers(suites: set[str], chosen: argparse.Namespace) -> None:
    """The suites that run queries."""
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
    """A number of runs."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of runs: at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
