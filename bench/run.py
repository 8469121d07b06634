"""Runs what is missing of the benchmarks and writes the table: `python -m bench.run [SUITE…]`.

Suites: `warm`, `cold`, `recording`; none named: all. Each finished case is appended to
`bench/results/SUITE.jsonl`; a run that was stopped goes on where it was.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench import cold, recording, table, warm
from bench.sessions import example
from tests import binary

SUITES = ("warm", "cold", "recording")


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
    parser.add_argument("--queries", default=",".join(map(str, range(1, 23))), help="queries of `warm`")
    chosen = parser.parse_args()
    if unknown := set(chosen.suites) - set(SUITES):
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    for path in (binary.binary(), example()):
        if not path.exists():
            print(f"{path} does not exist: cargo build --release --workspace --examples", file=sys.stderr)
            return 1
    suites = chosen.suites or SUITES
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder)
        cold.duck("--texts", texts)
        if "warm" in suites:
            for scale in map(float, chosen.scales.split(",")):
                data = binary.ensure_data("tpch", scale)
                warm.run(data, scale, texts, [int(number) for number in chosen.queries.split(",")], say)
        if "recording" in suites:
            recording.run(binary.ensure_data("tpch", 1), 1, texts, say)
        if "cold" in suites:
            cold.run(texts, say)
    table.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
