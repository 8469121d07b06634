"""The table of queries under a memory limit."""

import pytest

from bench import limited
from bench.backtest import spilled


def line(query: int, seconds: tuple, peak_bytes: float, duckdb: float | None) -> dict:
    """Returns a finished query: seconds with a limit and with the usual budget, and DuckDB's, which may have failed."""
    made = lambda ms, peak: {"ms": [ms * 1e3], "peak_bytes": [peak], "error": None}
    refused = {"ms": [], "peak_bytes": [], "error": "out of memory"}
    engines = {
        "limited": made(seconds[0], peak_bytes) | {"spill": {"write_bytes": 5_000_000}},
        "usual": made(seconds[1], 9e9) | {"spill": None},
        "duckdb": made(duckdb, 1e9) if duckdb else refused,
    }
    case = {"benchmark": "tpch", "scale": 10.0, "memory": "1GiB", "query": query}
    return {"case": case, "engines": engines, "others_cores": 0.0}


def test_queries_have_their_ratios_and_duckdb_may_fail():
    lines = [line(3, (3.0, 2.0), 1e9, 1.5), line(1, (4.0, 2.0), 2e9, None)]
    rows = limited.table(lines, "tpch", 10.0, "1GiB")
    assert rows[2] == "| 1 | 4.00 | 2.00 | 2.00 | – | – | 5 | 2,000 | – |"
    assert rows[3] == "| 3 | 3.00 | 2.00 | 1.50 | 1.50 | 2.00 | 5 | 1,000 | 1,000 |"
    over_usual, over_duckdb, peak = rows[5:8]
    assert "**1.732**" in over_usual and "not decided: 2 of 22" in over_usual
    assert "**2**" in over_duckdb and "not met" in over_duckdb
    # 2 GB over 1.15 GiB and 200 MB.
    assert "**1.394**" in peak and "not met" in peak


def test_wrong_answer_is_a_failure():
    wrong = line(1, (4.0, 2.0), 2e9, 1.0)
    wrong["engines"]["limited"]["error"] = "rows 0 to 1: ..."
    assert any("failed on 1" in text for text in limited.table([wrong], "tpch", 10.0, "1GiB"))


def test_predictions_for_another_budget_are_judged():
    line = {
        "case": {"queries": "tpch", "query": 7},
        "others_cores": 0.0,
        "factor": 2,
        "spilled_bytes": [9_000_000, 4_000_000],
        "before_ms": [1000, 1100, 1200],
        "after_ms": [800, 900, 2000],
        "prediction": {"duration_ms": 990, "low_ms": 910, "high_ms": 1100},
    }
    error, inside = spilled.judged(line)
    assert error == pytest.approx(0.1) and not inside
    page = "\n".join(spilled.table([line]))
    assert "| tpch 7 | x2 | 9 → 4 | 1100 | 990 | 900 | 10.0% | 910 to 1100 | **no** |" in page
    assert "not decided: 1 of 10 queries" in page and "not measured" in "\n".join(spilled.table([]))
