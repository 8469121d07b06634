"""Measures warm TPC-H against peers: all queries in one process per engine, and a fresh process per query.

Engines take turns query by query, in rotating order, so that temporary slowness affects all of them. In
one process the first run of a query is a warm-up and is not counted.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from bench.common import results
from bench.engine.sessions import ENGINES, EngineError, Session
from lab import cache

SUITE = "warm"
RUNS = {"one process": 5, "fresh process": 3}


def rotated(run: int, engines: Sequence[str] = ENGINES) -> list[str]:
    """Returns the engines, rotated by the run's number."""
    at = run % len(engines)
    return [*engines[at:], *engines[:at]]


def run(data: Path, scale: float, texts: Path, queries: list[int], say, max_runs: int | None = None) -> None:
    """Measures all cases of one scale that this build lacks, with at most `max_runs` runs of each."""
    cache.warm(sorted(data.glob("*.parquet")))
    for mode, usual in RUNS.items():
        runs = min(usual, max_runs or usual)
        cases = [{"scale": scale, "query": query, "mode": mode} for query in queries]
        missing = [case for case in cases if not results.done(SUITE, case, runs)]
        if not missing:
            continue
        with contextlib.ExitStack() as stack:
            kept = {}
            if mode == "one process":
                kept = {engine: stack.enter_context(Session(engine, data)) for engine in ENGINES}
            for case in missing:
                found = measure(data, texts / f"{case['query']:02}.sql", kept, runs)
                results.append(SUITE, case, found)
                say(case, found["engines"])


def measure(data: Path, query: Path, kept: dict[str, Session], runs: int, names: Sequence[str] = ENGINES) -> dict:
    """Measures one query on some engines, in turns."""
    engines = {engine: {"ms": [], "peak_bytes": [], "rows": None, "error": None} for engine in names}
    with results.quiet([session.process.pid for session in kept.values()]) as others:
        for run in range(runs + bool(kept)):
            for engine in rotated(run, names):
                found = engines[engine]
                if found["error"] is None:
                    try:
                        _once(found, engine, data, query, kept, counted=run > 0 or not kept)
                    except EngineError as error:
                        found["error"] = str(error)
    rows = {found["rows"] for found in engines.values() if found["rows"] is not None}
    return {"runs": runs, "engines": engines, "rows_agree": len(rows) <= 1, "others_cores": others()}


def _once(found: dict, engine: str, data: Path, query: Path, kept: dict[str, Session], counted: bool) -> None:
    """Makes one run, in the kept process or a fresh one; only a fresh process has the query's own peak."""
    if kept:
        answer = kept[engine].ask(query)
    else:
        with Session(engine, data) as session:
            answer = session.ask(query)
        found["peak_bytes"].append(session.peak_bytes)
    if counted:
        found["ms"].append(round(answer.ms, 3))
    found["rows"] = answer.rows
