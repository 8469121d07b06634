"""Measures the cost of recording: its share of core time, and wall-clock time with and without a trace.

The share is computed and precise: events times the measured cost of one, plus the time of the
writing thread, over the job's core time, all from the trace's last record. Operators add two
reads of the wall clock for each call of one, counted from the batches in the trace, and at most
one read of the thread's clock of core time for each 200 µs of core time. The ratio of times is
what users see, and is noisy: 20 pairs in turns, with their interval. A job always collects its
events, since its bottleneck is derived from them; a pair compares `--trace FILE` with no trace file.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache as once
from pathlib import Path

import zstandard

from bench.common import results
from harness import binary, traces
from lab import cache

SUITE = "recording"
PAIRS = 20
# Core time after which the engine reads the thread's clock instead of the wall clock (engine/src/execute/clock.rs).
SHORT_NS = 200_000
# Further reads in each compute monotask: two for its whole time, one for its first operator.
MONOTASK_READS = 3
# Scans, joins and many groups, short enough to repeat forty times.
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
        whole, without = sizes(kept)
        core_ns = trace.total("cpu_ns", "cpu")
        return {
            "events": trace.records,
            "trace_bytes": kept.stat().st_size,
            "core_ns": core_ns,
            "recording_ns": end.get("recording_ns"),
            "writer_ns": end.get("writer_ns"),
            "operators": len(trace.of["operator"]),
            "operator_calls": calls(trace),
            "clock_reads": core_ns // SHORT_NS + MONOTASK_READS * len(list(trace.monotasks("cpu"))),
            "clock_ns": read_ns(time.thread_time_ns),
            "wall_ns": read_ns(time.monotonic_ns),
            # Both compressed alike, since several small blocks are larger than one.
            "bytes_with_and_without_operators": [whole, without],
        }


def sizes(path: Path) -> tuple[int, int]:
    """Returns the compressed bytes of a trace, with and without the records of operators."""
    with open(path, "rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read().splitlines(keepends=True)
    without = [line for line in lines if not line.startswith(b'{"t":"operator"')]
    # The writer's level.
    whole, less = (len(zstandard.ZstdCompressor(level=1).compress(b"".join(part))) for part in (lines, without))
    return whole, less


def calls(trace: traces.Trace) -> int:
    """Returns the number of timed calls of operators: for each compute monotask one that starts it, one for each batch, one that ends it."""
    tasks = Counter(trace.of["multitask"][m["multitask"]]["stage"] for m in trace.monotasks("cpu"))
    batches = {o["operator"]: o.get("batches", 0) for o in trace.of["operator"]}
    taken = lambda o: sum(batches[i] for i in o.get("inputs", []))
    # An operator without batches of its own is called for each batch that it takes.
    return sum(2 * tasks[o["stage"]] + (o["batches"] if "batches" in o else taken(o)) for o in trace.of["operator"])


@once
def read_ns(clock: Callable[[], int]) -> float:
    """Returns the core time of one read of a clock, as Python reads it, which takes a little longer."""
    reads = 100_000

    def read() -> float:
        begin = time.thread_time_ns()
        for _ in range(reads):
            clock()
        return (time.thread_time_ns() - begin) / reads

    return round(min(read() for _ in range(5)), 1)


def pair(data: Path, texts: Path, folder: Path, first_with: bool) -> tuple[float, float]:
    """Returns the milliseconds of all queries with and without a trace, alternating per query."""
    took = {True: 0.0, False: 0.0}
    for query in QUERIES:
        for traced in (first_with, not first_with):
            option = ["--trace", folder / "q.trace"] if traced else []
            arguments = ["sql", "--json", "-f", texts / f"{query:02}.sql", *binary.tables(data), *option]
            took[traced] += float(binary.run(*arguments).check().json()["job"]["duration_ms"])
    return took[True], took[False]
