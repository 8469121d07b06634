"""Measures the cost of recording: its share of core time, and wall-clock time with and without a trace.

The share is computed and precise: events times the measured cost of one, plus the time of the
writing thread, over the job's core time, all from the trace's last record. The ratio of times is
what users see, and is noisy: 15 pairs in turns, with their interval. A job always collects its
events, since its bottleneck is derived from them; a pair compares `--trace FILE` with no trace file.
"""

import tempfile
from pathlib import Path

from bench.common import results
from harness import binary, traces
from lab import cache

SUITE = "recording"
PAIRS = 15
# Scans, joins and many groups, short enough to repeat thirty times.
QUERIES = (1, 3, 6, 9, 13, 18, 21)


def run(data: Path, scale: float, texts: Path, say, max_runs: int | None = None) -> None:
    """Measures both cases if this build lacks them, with at most `max_runs` pairs, but at least two."""
    cache.warm(sorted(data.glob("*.parquet")))
    for query in range(1, 23):
        case = {"scale": scale, "what": "share", "query": query}
        if not results.done(SUITE, case):
            with results.quiet() as others:
                found = share(data, texts / f"{query:02}.sql")
            results.append(SUITE, case, found | {"others_cores": others()})
            say(case, found)
    case = {"scale": scale, "what": "pairs", "queries": list(QUERIES)}
    # An interval needs two pairs.
    runs = min(PAIRS, max(2, max_runs or PAIRS))
    if not results.done(SUITE, case, runs):
        with results.quiet() as others, tempfile.TemporaryDirectory() as folder:
            pairs = [pair(data, texts, Path(folder), first_with=bool(index % 2)) for index in range(runs)]
        results.append(SUITE, case, {"runs": runs, "pairs_ms": pairs, "others_cores": others()})
        say(case, {"pairs_ms": pairs})


def share(data: Path, query: Path) -> dict:
    """Returns one query's recording cost and core time, from its trace."""
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
    """Returns the milliseconds of all queries with and without a trace, alternating per query."""
    took = {True: 0.0, False: 0.0}
    for query in QUERIES:
        for traced in (first_with, not first_with):
            option = ["--trace", folder / "q.trace"] if traced else []
            arguments = ["sql", "--json", "-f", texts / f"{query:02}.sql", *binary.tables(data), *option]
            took[traced] += float(binary.run(*arguments).check().json()["job"]["duration_ms"])
    return took[True], took[False]
