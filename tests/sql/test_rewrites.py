"""Rewritten queries give the same answer as the originals in DuckDB."""

import re

import pytest

from harness.sql import compare, oracle

FILES = sorted(oracle.REWRITES.glob("*/*.sql"))


def query_of(path):
    return path.parent.name, int(path.stem)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rewrite_gives_the_original_answer(path, request):
    benchmark, number = query_of(path)
    text = path.read_text()
    assert re.match(r"-- Reason: \S.{20,}", text), "a rewrite must start with its reason"
    data = request.getfixturevalue(benchmark)
    original, rewritten = oracle.answer(benchmark, number, data), oracle.answer(benchmark, number, data, text)
    rows = [row[: rewritten.width] for row in rewritten.rows]
    limit = rewritten.limit if rewritten.limit is not None else len(rows)
    types = rewritten.types[: rewritten.width]
    assert compare.difference(original, rewritten.columns, types, rows[:limit]) is None


def test_rewrite_belongs_to_a_query_and_differs_from_it():
    for path in oracle.REWRITES.rglob("*.sql"):
        benchmark, number = query_of(path)
        assert path == oracle.rewrite_path(benchmark, number)
        assert oracle.texts(benchmark)[number].split() != path.read_text().split()
