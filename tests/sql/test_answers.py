"""Answers of all TPC-H and TPC-DS queries against DuckDB's, and invariants of their traces.

All 121 run once with default options. Twenty of them also run with 7, 16 and 64 partitions and on one core; the rest of
that matrix runs with `PELLUCID_FULL=1`.
"""

import pytest

from harness import binary, traces
from harness.binary import SCALE
from harness.sql import compare, oracle

QUERIES = [(name, number) for name, count in oracle.BENCHMARKS.items() for number in range(1, count + 1)]
# Chosen for the shapes of their plans: many groups, joins of every kind, semi and anti joins, scalar and correlated
# subqueries, rollups, windows, set operations, a CTE used twice.
CHOSEN = [("tpch", n) for n in (1, 4, 9, 11, 13, 15, 16, 18, 21, 22)] + [("tpcds", n) for n in (5, 14, 24, 38, 47, 51, 67, 77, 88, 97)]
PATHS = {
    "7-partitions": ("--partitions", "7"),
    "16-partitions": ("--partitions", "16"),
    "64-partitions": ("--partitions", "64"),
    "1-core": ("--cores", "1"),
}
# Maximum share of core time in operators that were not split into single-resource work.
NOT_SPLIT = 0.05


def name(query):
    return f"{query[0]}-{query[1]:02}"


def matrix():
    """Yields the chosen queries, and the others marked for the full run."""
    for path in PATHS:
        for query in QUERIES:
            marks = [] if query in CHOSEN else [pytest.mark.full]
            yield pytest.param(query, path, marks=marks, id=f"{name(query)}-{path}")


@pytest.fixture(scope="module")
def core_time():
    """Core time of the queries run so far: (total, not split) in ns, by query."""
    return {}


def check(query, data, tmp_path, *options):
    """Runs one query, checks its answer and trace, and returns the trace."""
    benchmark, number = query
    path = tmp_path / "query.trace"
    ran = binary.sql(oracle.text_for_pellucid(benchmark, number), data, "--trace", path, *options)
    got = binary.result(ran)
    expected = oracle.answer(benchmark, number, data)
    wrong = compare.difference(expected, got.columns, got.types, got.rows)
    assert wrong is None, f"{name(query)}: {wrong}"
    trace = traces.read(path)
    assert traces.violations(trace) == []
    (end,) = trace.of["job_end"]
    assert end.get("outcome", "ok") == "ok" and end["rows"] == len(got.rows)
    return trace


@pytest.mark.parametrize("query", QUERIES, ids=name)
def test_query_matches_duckdb(query, request, tmp_path, core_time):
    trace = check(query, request.getfixturevalue(query[0]), tmp_path)
    core_time[query] = (trace.core_ns(), trace.total("not_split_ns", "cpu"))


@pytest.mark.parametrize("query, path", list(matrix()))
def test_query_matches_duckdb_on_other_paths(query, path, request, tmp_path):
    check(query, request.getfixturevalue(query[0]), tmp_path, *PATHS[path])


@pytest.mark.parametrize("benchmark", oracle.BENCHMARKS)
def test_nearly_all_core_time_is_split(benchmark, core_time):
    """Covers a whole benchmark; a query that failed above is not counted."""
    ran = [times for (of, _), times in core_time.items() if of == benchmark]
    if not ran:
        pytest.skip("needs the answers of this run: do not select it alone")
    share = sum(unsplit for _, unsplit in ran) / sum(whole for whole, _ in ran)
    assert share < NOT_SPLIT, f"{share:.1%} of the core time was not split"


@pytest.mark.skipif(SCALE < 1, reason="TPC-DS picks its constants for scale 1 and more")
def test_generated_data_gives_nonempty_answers(tpch, tpcds):
    """An empty answer matches too easily: nearly every query must have rows in DuckDB."""
    empty = [query for query in QUERIES if not oracle.answer(*query, tpch if query[0] == "tpch" else tpcds).rows]
    assert len(empty) <= 3, f"empty: {[name(query) for query in empty]}"
