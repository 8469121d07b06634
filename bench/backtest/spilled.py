"""Does `whatif --set memory` predict how long a query that spills takes with another budget?

    python -m bench.backtest.spilled [--scale 5] [--seed 1] [--memory 64MiB] [--pairs 7]

Ten queries that spill with little memory are drawn by the seed, and for each a factor. The trace with little memory predicts
the time with more; both runs take turns. Each query is a line of `bench/results/spilled.jsonl`, so a stopped run resumes. The
table is printed from those lines.
"""

import argparse
import random
import statistics
import tempfile
from pathlib import Path

from bench.common import drawn, results
from bench.common.goals import Goal, at_most, of_all
from bench.common.pages import narrow_header, row
from harness import binary, traces

SUITE = "spilled"
QUERIES = 10
FACTORS = (2, 4)
# Shorter queries vary more than what they spill takes.
LEAST_MS = 500
# Goals: median error and the largest one, as by the issue, and the share inside the interval.
ERROR, INSIDE = 0.15, 0.85


def spilled(trace: traces.Trace) -> int:
    """Returns the bytes that a job wrote because they did not fit."""
    (end,) = trace.of["job_end"]
    return end.get("spill", {}).get("write_bytes", 0)


def measure(query: drawn.Query, scale: float, seed: int, memory: str, pairs: int) -> dict:
    """Predicts from runs with little memory, and measures runs with more."""
    little = ("--memory", memory)
    try:
        # The first run also warms up.
        first = drawn.run(query, scale, *little)
    except AssertionError as error:
        return {"unfit": str(error).strip().splitlines()[-1]}
    if not spilled(first):
        return {"unfit": "it spills nothing"}
    if drawn.duration_ms(first) < LEAST_MS:
        return {"unfit": f"it takes {drawn.duration_ms(first):.0f} ms"}
    factor = random.Random(f"{seed} {query}").choice(FACTORS)
    amount, unit = memory[:-3], memory[-3:]
    more = ("--memory", f"{int(amount) * factor}{unit}")
    before, after = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            for has_more in (pair % 2 == 0, pair % 2 == 1):
                if has_more:
                    after.append(drawn.run(query, scale, *more))
                else:
                    kept = Path(folder) / f"{len(before)}.trace"
                    before.append((drawn.run(query, scale, *little, keep=kept), kept))
        _, middle = sorted(before, key=lambda run: drawn.duration_ms(run[0]))[pairs // 2]
        answer = binary.run("whatif", middle, "--set", f"memory=x{factor}", "--json").check().json()
    of_before = [trace for trace, _ in before]
    return {
        "factor": factor,
        "before_ms": [drawn.duration_ms(trace) for trace in of_before],
        "after_ms": [drawn.duration_ms(trace) for trace in after],
        "spilled_bytes": [statistics.median(map(spilled, side)) for side in (of_before, after)],
        "core_ms": [[drawn.core_ms(trace) for trace in side] for side in (of_before, after)],
        "prediction": {key: float(answer["prediction"][key]) for key in ("duration_ms", "low_ms", "high_ms")},
    }


def judged(line: dict) -> tuple[float, bool]:
    """Returns a query's error, and whether the measured time is inside the interval."""
    predicted, measured = line["prediction"], statistics.median(line["after_ms"])
    return abs(predicted["duration_ms"] - measured) / measured, predicted["low_ms"] <= measured <= predicted["high_ms"]


def table(lines: list[dict]) -> list[str]:
    """Returns a Markdown table with a row for each query, and the goals."""
    rows = narrow_header("query", "memory", "spilled, MB", "before, ms", "predicted, ms", "measured, ms", "error", "90 % interval", "inside")
    for line in lines:
        error, inside = judged(line)
        case, said = line["case"], line["prediction"]
        name = f"{case['queries']} {case['query']}{'*' if line['others_cores'] > results.NOISE_CORES else ''}"
        bytes_ = " → ".join(f"{n / 1e6:.0f}" for n in line["spilled_bytes"])
        took = statistics.median(line["before_ms"]), said["duration_ms"], statistics.median(line["after_ms"])
        interval = f"{said['low_ms']:.0f} to {said['high_ms']:.0f}"
        of = [name, f"x{line['factor']}", bytes_, *(f"{ms:.0f}" for ms in took), f"{error:.1%}", interval, "yes" if inside else "**no**"]
        rows.append(row(*of))
    return [*rows, "", *map(str, goals(lines))]


def goals(lines: list[dict]) -> list[Goal]:
    """Returns the goals: median and largest error, and the share outside of the interval."""
    lacks = of_all(len(lines), QUERIES, "queries")
    errors, inside = zip(*map(judged, lines)) if lines else ((), ())
    outside = 1 - sum(inside) / len(inside) if inside else None
    return [
        at_most("Median error", statistics.median(errors) * 100 if errors else None, ERROR * 100, lacks=lacks, unit=" %"),
        at_most("Largest error", max(errors) * 100 if errors else None, ERROR * 100, lacks=lacks, unit=" %"),
        at_most("Queries outside of their interval", outside and outside * 100, (1 - INSIDE) * 100, lacks=lacks, unit=" %"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", default="64MiB", help="a number and MiB or GiB (default 64MiB)")
    parser.add_argument("--pairs", type=int, default=7)
    chosen = parser.parse_args()
    by = results.fingerprint([binary.binary()])
    found = lambda query: measure(query, chosen.scale, chosen.seed, chosen.memory, chosen.pairs)
    case = {"scale": chosen.scale, "memory": chosen.memory}
    print("\n".join(table(drawn.measure(SUITE, QUERIES, case, chosen.seed, by, chosen.pairs, found))))


if __name__ == "__main__":
    main()
