"""Does `whatif --set operator.N.time` predict how long a query takes whose operator N is slower?

    python -m bench.slowed [--scale 5] [--seed 1] [--pairs 9]

Ten queries, an operator of each with 10 to 50 % of its core time, and a factor are drawn by the seed. The trace of the
normal run predicts the time with that operator slowed; `--slow-operator` slows it for real. Both runs take turns. Each
query is a line of `bench/results/slowed.jsonl`, so a stopped run resumes. The table is printed from those lines.
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

SUITE = "slowed"
QUERIES = 10
# Shares of core time from which operators are drawn, and factors.
SHARES, FACTORS = (0.1, 0.5), (1.5, 2, 3)
# Queries with less core time, in milliseconds, vary more than what a slower operator changes.
LEAST_MS = 1000
# Goals: median error, share inside the interval, median half-width.
ERROR, INSIDE, HALF_WIDTH = 0.07, 0.85, 0.15


def operator_ns(trace: traces.Trace, number: int) -> int:
    """Returns an operator's core time."""
    return next(o["cpu_ns"] for o in trace.of["operator"] if o["operator"] == number)


def measure(query: drawn.Query, scale: float, seed: int, pairs: int) -> dict:
    """Draws an operator and a factor, predicts from normal runs, and measures slowed ones."""
    # The first run also warms up.
    first = drawn.run(query, scale)
    core_ms = drawn.core_ms(first)
    if core_ms < LEAST_MS:
        return {"unfit": f"{core_ms:.0f} ms of core time"}
    low, high = (share * core_ms * 1e6 for share in SHARES)
    large = [o for o in first.of["operator"] if low <= o["cpu_ns"] <= high]
    if not large:
        return {"unfit": "its largest operators have other shares"}
    draw = random.Random(f"{seed} {query}")
    operator, factor = draw.choice(large), draw.choice(FACTORS)
    number = operator["operator"]
    normal, slowed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            for slow in (pair % 2 == 0, pair % 2 == 1):
                if slow:
                    slowed.append(drawn.run(query, scale, "--slow-operator", f"{number}=x{factor}"))
                else:
                    kept = Path(folder) / f"{len(normal)}.trace"
                    normal.append((drawn.run(query, scale, keep=kept), kept))
        _, middle = sorted(normal, key=lambda run: drawn.duration_ms(run[0]))[pairs // 2]
        answer = binary.run("whatif", middle, "--set", f"operator.{number}.time=x{factor}", "--json").check().json()
    of_normal = [trace for trace, _ in normal]
    return {
        "operator": number,
        "name": operator["name"],
        "share": operator["cpu_ns"] / 1e6 / core_ms,
        "factor": factor,
        "normal_ms": [drawn.duration_ms(trace) for trace in of_normal],
        "slowed_ms": [drawn.duration_ms(trace) for trace in slowed],
        "operator_ms": [[operator_ns(trace, number) / 1e6 for trace in side] for side in (of_normal, slowed)],
        "core_ms": [[drawn.core_ms(trace) for trace in side] for side in (of_normal, slowed)],
        "prediction": {key: float(answer["prediction"][key]) for key in ("duration_ms", "low_ms", "high_ms")},
    }


def judged(line: dict) -> tuple[float, float, bool]:
    """Returns a query's error, the half-width of its interval, and whether the measured time is inside."""
    predicted, measured = line["prediction"], statistics.median(line["slowed_ms"])
    error = abs(predicted["duration_ms"] - measured) / measured
    half = (predicted["high_ms"] - predicted["low_ms"]) / 2 / predicted["duration_ms"]
    return error, half, predicted["low_ms"] <= measured <= predicted["high_ms"]


def table(lines: list[dict]) -> list[str]:
    """Returns a Markdown table with a row for each query, and the goals."""
    rows = narrow_header(
        "query", "operator slowed", "share", "factor", "its time", "normal, ms", "predicted, ms", "measured, ms", "error", "interval", "inside"
    )
    for line in lines:
        error, half, inside = judged(line)
        times = [statistics.median(side) for side in line["operator_ms"]]
        case = f"{line['case']['queries']} {line['case']['query']}{'*' if line['others_cores'] > results.NOISE_CORES else ''}"
        slowed = f"{line['operator']} {line['name']}", f"{line['share']:.0%}", f"x{line['factor']:g}", f"x{times[1] / times[0]:.2f}"
        took = statistics.median(line["normal_ms"]), line["prediction"]["duration_ms"], statistics.median(line["slowed_ms"])
        rows.append(row(case, *slowed, *(f"{ms:.0f}" for ms in took), f"{error:.1%}", f"± {half:.1%}", "yes" if inside else "**no**"))
    return [*rows, "", *map(str, goals(lines))]


def goals(lines: list[dict]) -> list[Goal]:
    """Returns the goals: error, share inside the interval, half-width."""
    lacks = of_all(len(lines), QUERIES, "queries")
    errors, halves, inside = zip(*map(judged, lines)) if lines else ((), (), ())
    middle = lambda values: statistics.median(values) * 100 if values else None
    outside = 1 - sum(inside) / len(inside) if inside else None
    return [
        at_most("Median error", middle(errors), ERROR * 100, lacks=lacks, unit=" %"),
        at_most("Queries outside of their interval", outside and outside * 100, (1 - INSIDE) * 100, lacks=lacks, unit=" %"),
        at_most("Median half-width", middle(halves), HALF_WIDTH * 100, lacks=lacks, unit=" %"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=9)
    chosen = parser.parse_args()
    by = results.fingerprint([binary.binary()])
    found = lambda query: measure(query, chosen.scale, chosen.seed, chosen.pairs)
    lines = drawn.measure(SUITE, QUERIES, {"scale": chosen.scale}, chosen.seed, by, chosen.pairs, found)
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
