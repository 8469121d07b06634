"""Does advice on tables hold when it is followed?

    python -m bench.advice                            # what is missing for this build, then the table

Runs TPC-H, TPC-DS and queries over a wide table of web events (`bench/events.py`), asks `pellucid advise` about each, makes
every change that it advises with the printed command, and runs the query before and after in turn. Each finished query is a
line of `bench/results/advice.jsonl`, so a stopped run resumes. A third of the queries, by a hash of their name, is kept
apart: nothing may be tuned to them.
"""

import argparse
import hashlib
import math
import shlex
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bench import events
from bench.common import goals, results, runner, stats
from bench.common.pages import narrow_header, newest, noisy, row
from harness import binary
from harness.sql import oracle
from lab import cache

SUITE = "advice"
# Conditions: the options of a query, and whether its files are in the page cache.
CONDITIONS = {"cached": [], "disk": ["--io", "direct", "--disk-rate", "/=200MB/s"]}
INSIDE, HALF_WIDTH, ERROR, HARM = 0.85, 0.15, 0.08, 1.03


def is_kept_apart(name: str) -> bool:
    """Returns whether a query belongs to the third to which nothing is tuned."""
    return hashlib.sha256(name.encode()).digest()[0] % 3 == 0


def all_queries(scale: float, rows: int) -> list[tuple[str, str, Path]]:
    """Returns each query's name, its text, and the folder of its tables."""
    found = [
        (f"{benchmark}-{number:02}", oracle.text_for_pellucid(benchmark, number), binary.ensure_data(benchmark, scale))
        for benchmark in oracle.BENCHMARKS
        for number in oracle.texts(benchmark)
    ]
    folder = events.ensure_data(rows)
    return found + [(f"events-{name}", text, folder) for name, text in events.queries().items()]


class Query:
    """A query with its tables by name."""

    def __init__(self, text: str, tables: dict[str, Path], options: list[str]):
        self.text, self.tables, self.options = text, tables, options

    def arguments(self) -> list[str]:
        """Returns the options that register the tables."""
        return [part for name, path in self.tables.items() for part in ("--table", f"{name}={path}")]

    def run(self, trace: Path | None = None) -> tuple[float, int]:
        """Runs the query, and returns the job's time in milliseconds and the number of rows."""
        kept = ["--trace", trace] if trace else []
        ran = binary.sql(self.text, None, *self.arguments(), *self.options, *kept)
        result = binary.result(ran)
        return float(result.job["duration_ms"]), len(result.rows)


def rewritten(item: dict, tables: dict[str, Path], by: str) -> tuple[str, Path]:
    """Makes a change with its command, once for each build. Returns the name of the table and its new folder."""
    kind, name, *_ = item["id"].split(":")
    words = shlex.split(item["change"])
    place = hashlib.sha256(f"{by} {tables[name]} {item['id']}".encode()).hexdigest()[:12]
    folder = binary.data_home() / "advice" / f"{name}-{kind}-{place}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        binary.run(*words[1:-1], folder, "--quiet").check()
    return name, folder


def measure(query: Query, rounds: int, by: str) -> dict:
    """Asks for advice on a query, follows each piece, and measures before and after in turn."""
    with tempfile.TemporaryDirectory() as scratch, results.quiet() as others:
        trace = Path(scratch) / "query.trace"
        # The second run finds the files in the page cache and the memory that the first one freed.
        query.run()
        query.run(trace)
        advised = binary.run("advise", trace, *query.arguments(), "--json", "--quiet")
        if advised.code:
            return {"error": advised.err.splitlines()[0][:300]}
        document = advised.json()
        cases = []
        # Other advice is about the query, not its tables.
        for item in [item for item in document["advice"] if item["id"].split(":")[1] in query.tables]:
            name, folder = rewritten(item, query.tables, by)
            cache.warm(sorted(folder.glob("*.parquet")))
            after = Query(query.text, query.tables | {name: folder}, query.options)
            after.run()
            turns = [(query.run(), after.run()) for _ in range(rounds)]
            pairs = [(changed[0], unchanged[0]) for unchanged, changed in turns]
            measured = float(document["measured_ms"])
            cases.append({
                "id": item["id"],
                "predicted": float(item["duration_ms"]) / measured,
                "low": float(item["low_ms"]) / measured,
                "high": float(item["high_ms"]) / measured,
                "ratio": statistics.median(a / b for a, b in pairs),
                "ratio_interval": stats.ratio_interval(pairs)[1:],
                "before_ms": [b for _, b in pairs],
                "after_ms": [a for a, _ in pairs],
                "same_rows": all(unchanged[1] == changed[1] for unchanged, changed in turns),
            })  # fmt: skip
    notes = document["notes"]
    return {"runs": rounds, "measured_ms": float(document["measured_ms"]), "cases": cases, "notes": notes, "others_cores": others()}


def verdicts(cases: list[dict]) -> list[goals.Goal]:
    """Returns the goals for the cases of the queries that were kept apart."""
    if not cases:
        return [goals.at_most("advice on queries kept apart", None, 0)]
    outside = sum(not c["low"] <= c["ratio"] <= c["high"] for c in cases) / len(cases)
    halves = [math.sqrt(c["high"] / c["low"]) - 1 for c in cases]
    errors = [abs(c["predicted"] / c["ratio"] - 1) for c in cases]
    harmful = [c for c in cases if c["ratio_interval"][0] > HARM]
    return [
        goals.at_most("share of new times outside their interval", outside, 1 - INSIDE),
        goals.at_most("median half-width of the interval", statistics.median(halves), HALF_WIDTH),
        goals.at_most("median error of the new time", statistics.median(errors), ERROR),
        goals.at_most(f"pieces of advice whose measured ratio lies above {HARM} for certain", len(harmful), 0),
    ]


def table(lines: list[dict]) -> list[str]:
    """Returns a table of all advice, and the goals."""
    lines = [line for line in newest(lines) if "error" not in line]
    rows = narrow_header("query", "files", "advice", "predicted", "interval", "measured", "95 % interval", "error")
    of: dict[bool, list[dict]] = {False: [], True: []}
    for line in lines:
        apart = is_kept_apart(line["case"]["query"])
        of[apart] += line["cases"]
        for c in line["cases"]:
            name = line["case"]["query"] + (" (apart)" if apart else "")
            low, high = c["ratio_interval"]
            predicted, measured = f"{c['low']:.2f} to {c['high']:.2f}", f"{low:.2f} to {high:.2f}"
            error = f"{c['predicted'] / c['ratio'] - 1:+.1%}"
            rows.append(row(name, line["case"]["files"], c["id"], f"{c['predicted']:.2f}", predicted, f"{c['ratio']:.2f}", measured, error))
    wrong = [line["case"]["query"] for line in lines for c in line["cases"] if not c["same_rows"]]
    asked = len({line["case"]["query"] for line in lines})
    text = [*rows, "", f"{asked} queries were asked about; {len(of[False])} + {len(of[True])} pieces of advice were followed."]
    if wrong:
        text.append(f"Other numbers of rows after a change: {', '.join(wrong)}.")
    for apart, title in ((True, "Queries that were kept apart:"), (False, "The other queries, for comparison:")):
        text += ["", title, "", *map(str, verdicts(of[apart]))]
    return [*text, "", noisy(lines)]


def main() -> None:
    parser = runner.options("advice", __doc__)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the web events")
    parser.add_argument("--runs", type=int, default=9, help="pairs of runs for each piece of advice")
    parser.add_argument("--only", default="", help="run only queries whose name begins so")
    parser.add_argument("--condition", choices=CONDITIONS, action="append")
    parser.add_argument("--apart", action=argparse.BooleanOptionalAction, help="run only the queries that are kept apart, or only the others")
    chosen = parser.parse_args()
    by = results.fingerprint([binary.binary()])
    limit = runner.TimeLimit(chosen.time_limit)
    for name, text, folder in all_queries(chosen.scale, chosen.rows):
        tables = {path.stem: path for path in sorted(folder.glob("*.parquet"))}
        for condition in chosen.condition or CONDITIONS:
            case = {"query": name, "files": condition, "scale": chosen.rows if name.startswith("events") else chosen.scale}
            wanted = name.startswith(chosen.only) and chosen.apart in (None, is_kept_apart(name))
            if not wanted or results.done(SUITE, case, by=by) or not limit.admits():
                continue
            cache.warm(tables.values())
            with limit.case():
                results.append(SUITE, case, measure(Query(text, tables, CONDITIONS[condition]), chosen.runs, by), by)
            print(f"{name} {condition}", file=sys.stderr, flush=True)
    print("\n".join(table(results.made(SUITE, by))))
    shutil.rmtree(binary.data_home() / "advice", ignore_errors=True)


if __name__ == "__main__":
    main()
