"""A rewrite changes how a query is worded, never what it asks: DuckDB gives both the same answer."""

import re

import pytest

from tests import compare, oracle

FILES = sorted(oracle.REWRITES.glob("*/*.sql"))


def of(path):
    return path.parent.name, int(path.stem)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rewrite(path, request):
    benchmark, number = of(path)
    text = path.read_text()
    assert re.match(r"-- Reason: \S.{20,}", text), "a rewrite opens with its reason"
    data = request.getfixturevalue(benchmark)
    original, rewritten = oracle.answer(benchmark, number, data), oracle.answer(benchmark, number, data, text)
    rows = [row[: rewritten.width] for row in rewritten.rows]
    limit = rewritten.limit if rewritten.limit is not None else len(rows)
    types = rewritten.types[: rewritten.width]
    assert compare.difference(original, rewritten.columns, types, rows[:limit]) is None


def test_every_rewrite_is_of_a_query_and_differs_from_it():
    for path in oracle.REWRITES.rglob("*.sql"):
        benchmark, number = of(path)
        assert path == oracle.rewrite_path(benchmark, number)
        assert oracle.texts(benchmark)[number].split() != path.read_text().split()
