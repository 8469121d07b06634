"""Queries of TPC-H and TPC-DS in the order of a draw, and their runs.

Suites that need ten queries with some property take the first ten of the order that have it: a draw, not a choice.
"""

import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from bench.common import results
from bench.common.runner import say
from harness import binary, traces
from harness.sql import oracle
from lab import cache as pages

# A query of a benchmark, by number.
Query = tuple[str, int]


@cache
def tables(benchmark: str, scale: float) -> list[str]:
    """Returns the options that register a benchmark's tables, after reading them into the page cache."""
    data = binary.ensure_data(benchmark, scale)
    pages.warm(sorted(data.glob("*.parquet")))
    return binary.tables(data)


def queries(seed: int) -> Iterator[Query]:
    """Yields all queries in the order that a seed draws, in turns from each benchmark until one ends."""
    draw = random.Random(seed)
    orders = [draw.sample(range(1, count + 1), count) for count in oracle.BENCHMARKS.values()]
    for numbers in zip(*orders):
        yield from zip(oracle.BENCHMARKS, numbers)


def arguments(query: Query, scale: float, folder: Path) -> list[str | Path]:
    """Returns the arguments that run a query and write `folder/query.trace`."""
    text = folder / "query.sql"
    text.write_text(oracle.text_for_pellucid(*query))
    return ["sql", "-f", text, "--quiet", "--trace", folder / "query.trace", *tables(query[0], scale)]


def run(query: Query, scale: float, *options: str, keep: Path | None = None) -> traces.Trace:
    """Runs a query and returns its trace, which it also writes to `keep`."""
    with tempfile.TemporaryDirectory() as folder:
        binary.run(*arguments(query, scale, Path(folder)), *options).check()
        written = Path(folder) / "query.trace"
        if keep:
            keep.write_bytes(written.read_bytes())
        return traces.read(written)


def core_ms(trace: traces.Trace) -> float:
    """Returns the core time of a job's compute threads, as the kernel counts it."""
    return trace.total("cpu_ns", "cpu") / 1e6


def duration_ms(trace: traces.Trace) -> float:
    """Returns the time of a trace's only job."""
    (job,), (end,) = trace.of["job"], trace.of["job_end"]
    return (end["ended_ns"] - job["submitted_ns"]) / 1e6


def measure(suite: str, count: int, case: dict, seed: int, by: str, runs: int, found: Callable[[Query], dict]) -> list[dict]:
    """Measures queries in the order of the draw until `count` lines of this build are fit, and returns these lines.

    `found` measures a query, or says under the key `unfit` why it does not count. Both are lines, so a stopped run resumes.
    """
    fit: list[dict] = []
    for query in queries(seed):
        if len(fit) == count:
            break
        this = {"queries": query[0], "query": query[1], **case, "seed": seed}
        if not results.done(suite, this, runs, by):
            with results.quiet() as others:
                line = found(query)
            results.append(suite, this, {"runs": runs, **line, "others_cores": others()}, by)
            say(f"{query[0]} {query[1]}: {line.get('unfit', 'measured')}")
        fit += [line for line in results.made(suite, by) if line["case"] == this and "unfit" not in line][-1:]
    return fit
