"""What recording costs: its share of core time, and the wall-clock time with and without a trace.

The share is arithmetic, and precise: events times the measured cost of one, and the
writing thread's own time, over the job's core time, all from the trace's last record. The
ratio is what a user would see, and noisy: 15 pairs in turns, with their 90 % interval. A
job always collects its events, as its bottleneck comes from them; what a pair compares is
`--trace FILE` with none.
"""

import tempfile
from pathlib import Path

from bench import results
from lab import cache
from tests import binary, traces

SUITE = "recording"
PAIRS = 15
# Scans, joins, many groups: enough to see a cost, short enough to repeat thirty times.
QUERIES = (1, 3, 6, 9, 13, 18, 21)


def run(data: Path, scale: float, texts: Path, say, most_runs: int | None = None) -> None:
    """Both cases, where this build lacks them; at most so many pairs, but two, if it is said."""
    cache.warm(sorted(data.glob("*.parquet")))
    for query in range(1, 23):
        case = {"scale": scale, "what": "share", "query": query}
        if not results.done(SUITE, case):
            with results.quiet() as others:
                found = share(data, texts / f"{query:02}.sql")
            results.append(SUITE, case, found | {"others_cores": others()})
            say(case, found)
    case = {"scale": scale, "what": "pairs", "queries": list(QUERIES)}
    # An interval needs two.
    runs = min(PAIRS, max(2, most_runs or PAIRS))
    if not results.done(SUITE, case, runs):
        with results.quiet() as others, tempfile.TemporaryDirectory() as folder:
            pairs = [pair(data, texts, Path(folder), first_with=bool(index % 2)) for index in range(runs)]
        results.append(SUITE, case, {"runs": runs, "pairs_ms": pairs, "others_cores": others()})
        say(case, {"pairs_ms": pairs})


def share(data: Path, query: Path) -> dict:
    """One query's recording cost and core time, from its own trace."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "q.trace"
        binary.run("sql", "--json", "-f", query, *binary.tables(data), "--trace", kept).check()
        trace = traces.read(kept)
        (end,) = trace.of["end"]
        return {
            "events": trace.records,
            "trace_bytes": kept.stat().st_size,
            "core_ns": trace.core_ns(),
            "recording_ns": end.get("recording_ns"),
            "writer_ns": end.get("writer_ns"),
        }


def pair(data: Path, texts: Path, folder: Path, first_with: bool) -> tuple[float, float]:
    """Milliseconds of all the queries with a trace and without, one right after the other."""
    took = {True: 0.0, False: 0.0}
    for query in QUERIES:
        for traced in (first_with, not first_with):
            option = ["--trace", folder / "q.trace"] if traced else []
            arguments = ["sql", "--json", "-f", texts / f"{query:02}.sql", *binary.tables(data), *option]
            took[traced] += float(binary.run(*arguments).check().json()["job"]["duration_ms"])
    return took[True], took[False]
