"""The table of memory beside DuckDB."""

from bench import memory


def line(query: int, scale: float, ours: tuple | None, duckdb: tuple) -> dict:
    """Returns a finished query, with each engine's milliseconds and bytes; None for one that failed."""
    made = lambda runs: {"ms": runs[0], "peak_bytes": runs[1], "error": None} if runs else {"ms": [], "peak_bytes": [], "error": "refused"}
    case = {"benchmark": "tpch", "query": query, "scale": scale}
    return {"case": case, "engines": {"pellucid": made(ours), "duckdb": made(duckdb)}, "others_cores": 0.0}


def test_smallest_runs_count_and_times_grow_with_the_scale():
    lines = [line(1, 1.0, ([110, 100], [1e8, 2e8]), ([100], [1e8])), line(1, 10.0, ([1000, 1200], [4e8, 3e8]), ([500], [1e8]))]
    rows = memory.table(lines, "tpch", 10.0)
    assert rows[2] == "| 1 | 1.00 | 0.50 | 2.00 | 300 | 100 | 3.00 | 1.00 |"
    verdicts = [goal.verdict for goal in memory.goals("tpch", {1: 3.0}, {1: 2.0}, {1: 1.0}, [])]
    assert verdicts == ["not met: 1 of 22 queries"] * 3 + ["not decided: 1 of 22 queries"]
    every = range(1, 23)
    met = memory.goals("tpch", dict.fromkeys(every, 0.9), dict.fromkeys(every, 1.0), dict.fromkeys(every, 1.05), [])
    assert [goal.verdict for goal in met] == ["met"] * 4


def test_failed_query_has_no_figures():
    rows = memory.table([line(2, 10.0, None, ([1], [1]))], "tpch", 10.0)
    assert rows[2] == "| 2 | – | – | – | – | – | – | – |"
    assert all("failed on 2 (pellucid)" in text or "–" in text for text in rows[4:8])
    # Without the query at scale 1 its slope is not known.
    assert memory.slope(None, line(2, 10.0, ([1], [1]), ([1], [1])), "pellucid") is None
