"""The benchmarks' pure parts: statistics, resuming, and the page."""

import json

import pytest

from bench import results, stats, table, warm
from bench.sessions import ENGINES


def test_geometric_mean_cancels():
    assert stats.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_ratio_of_medians():
    assert stats.median_ratio([1, 2, 90], [4, 4, 4]) == 0.5


def test_interval_by_hand():
    # logarithms 0.1 and 0.3: mean 0.2, deviation 0.1414, half width 6.314 * 0.1
    e = 2.718281828459045
    ratio, low, high = stats.ratio_interval([(e**0.1, 1), (e**0.3, 1)])
    assert ratio == pytest.approx(e**0.2)
    assert (low, high) == (pytest.approx(e ** (0.2 - 0.6314)), pytest.approx(e ** (0.2 + 0.6314)))


def test_interval_needs_two():
    with pytest.raises(ValueError, match="two pairs"):
        stats.ratio_interval([(1, 1)])


def test_resolved_means_without_one():
    assert stats.resolved(1.001, 1.02) and stats.resolved(0.8, 0.9) and not stats.resolved(0.99, 1.01)


def test_each_engine_is_first_in_turn():
    assert {warm.rotated(run)[0] for run in range(len(ENGINES))} == set(ENGINES)
    assert sorted(warm.rotated(3)) == sorted(ENGINES)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of results of its own, and a build that needs no binary."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(results, "build", lambda: "b1")


def test_a_case_is_done_once_it_is_appended(kept, monkeypatch):
    case = {"scale": 1.0, "query": 6, "mode": "one process"}
    assert not results.done("warm", case)
    results.append("warm", case, {"others_cores": 0.0})
    assert results.done("warm", json.loads(json.dumps(case)))
    assert not results.done("warm", case | {"query": 7})
    monkeypatch.setattr(results, "build", lambda: "b2")
    assert not results.done("warm", case)


def line(case, others_cores=0.0, **found):
    return {
        "case": case,
        "build": "b1",
        "machine": "m",
        "at": "2026-01-01T00:00:00",
        "others_cores": others_cores,
    } | found


def warm_line(query, pellucid, plain, **more):
    engines = {e: {"ms": [10.0], "peak_bytes": [], "rows": 1, "error": None} for e in ENGINES}
    engines["pellucid"] |= {"ms": [pellucid], "peak_bytes": [150]}
    engines["datafusion"] |= {"ms": [plain], "peak_bytes": [100]}
    return line({"scale": 1, "query": query, "mode": "fresh process"}, engines=engines, rows_agree=True, **more)


def test_the_page_of_nothing_says_so():
    assert table.page({}).count("No results of") == len(table.SECTIONS)


def test_warm_page_has_means_goals_and_marks():
    page = table.page(
        {"warm": [warm_line(1, 99, 100), warm_line(1, 80, 100), warm_line(2, 125, 100, others_cores=0.5)]}
    )
    assert "| Q1 | 80 | 100 | 10 | 10 | 0.80 |" in page, "the newest line of a case counts"
    assert "Q2*" in page
    assert "**1.000** (goal: at most 0.85; missed)" in page
    assert "**1.25** (goal: at most 1.2; missed)" in page
    assert "**1.50** (goal: at most 1.5; reached)" in page


def test_an_engine_that_failed_is_named_and_not_counted():
    broken = warm_line(1, 80, 100)
    broken["engines"]["polars"] |= {"ms": [], "error": "no such function"}
    page = table.page({"warm": [broken]})
    assert "| Q1 | 80 | 100 | 10 | – | 0.80 |" in page and "Q1 Polars: no such function" in page


def cold_run(ms, moved, kind="disk"):
    return {"ms": ms, "moved_bytes": moved, "error": None, "bottleneck": {"kind": kind, "name": "loop0"}}


def test_cold_page():
    engines = {"pellucid": [cold_run(5100, 102), cold_run(5200, 102)], "duckdb": [cold_run(None, 0)]}
    page = table.page(
        {
            "cold": [
                line(
                    {"scale": 5, "query": 6, "read_ahead_kb": 128},
                    engines=engines,
                    ideal_ms=5000,
                    needed_bytes=100,
                    disk="a disk, read_ahead_kb 128",
                    warm=cold_run(1, 0, "cpu"),
                )
            ]
        }
    )
    assert "| 1.03, 1.02 | failed | disk; cpu |" in page
    assert "**1.03** (goal: at most 1.05; reached)" in page


def test_two_disks_page():
    runs = {"one disk": [cold_run(10_000, 1)], "two disks": [cold_run(5_200, 1)]}
    page = table.page({"two-disks": [line({"scale": 5, "query": 1}, runs=runs, disks=["a", "b"])]})
    assert "| Q1 | 10.00 | 5.20 | 0.52 |" in page and "reached" in page


def test_recording_page():
    share = line(
        {"scale": 1, "what": "share", "query": 1},
        events=100,
        trace_bytes=3000,
        core_ns=10**9,
        recording_ns=10**6,
        writer_ns=10**6,
    )
    pairs = line({"scale": 1, "what": "pairs", "queries": [1]}, pairs_ms=[[101, 100], [99, 100], [100, 100]])
    page = table.page({"recording": [share, pairs]})
    assert "**0.00200** (goal: at most 0.01; reached)" in page
    assert "100 events, 30 bytes each" in page and "not resolved" in page
