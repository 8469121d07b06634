"""Random SELECTs against DuckDB: seeded, a few hundred by default, thousands with PELLUCID_FULL=1.

A failure prints the query and its seed; `PELLUCID_SEED=SEED` repeats the run.
"""

import os

import pytest

from harness import binary
from harness.sql import breadth, compare, oracle, random_ctes, random_sql

SEED = os.environ.get("PELLUCID_SEED", "1")
ROUNDS = 80 if os.environ.get("PELLUCID_FULL") == "1" else 8
QUERIES = 50
# Errors of DataFusion on valid queries: its optimizer drops the aliases of expressions that it makes equal, or does not
# recognise the order of a union that it sorted.
REFUSED = ("Projections require unique expression names", "SanityCheckPlan")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The tables in several files each, and DuckDB over the same rows."""
    folder = tmp_path_factory.mktemp("random")
    duck = oracle.connect()
    options = []
    for name, query in random_sql.TABLES.items():
        duck.execute(f"CREATE TABLE {name} AS {query}")
        (folder / name).mkdir()
        for part in range(3):
            duck.execute(f"COPY (SELECT * FROM {name} WHERE id % 3 = {part}) TO '{folder / name}/{part}.parquet'")
        options += ["--table", f"{name}={folder / name}"]
    return duck, options


@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_queries_match_duckdb(tables, number):
    compared(tables, number, [random_sql.Maker(f"{SEED}-{number}-{i}").query() for i in range(QUERIES)])


@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_ctes_match_duckdb(tables, number):
    """Those of queries that name each in several places."""
    compared(tables, number, [random_ctes.Maker(f"{SEED}-{number}-{i}").query() for i in range(QUERIES)])


def compared(tables, number: int, made: list[str]) -> None:
    duck, options = tables
    variant_options = list(breadth.VARIANTS.values())[number % len(breadth.VARIANTS)]
    before = [breadth.DIVIDED_JOINS] if number // len(breadth.VARIANTS) % 2 else []
    expected, queries = [], []
    for query in made:
        try:
            expected.append(breadth.expected(duck, query, breadth.is_ordered(query)))
            queries.append(query)
        except oracle.duckdb.Error as error:
            # For example an overflow; the assertion below limits their number.
            print(f"DuckDB refuses {query}: {error}")
    assert len(queries) >= QUERIES * 0.9, "too many generated queries fail in DuckDB"
    wrong = []
    got_of_each = breadth.answers(queries, [*options, *variant_options], before)
    for query, answer, got in zip(queries, expected, got_of_each, strict=True):
        if isinstance(got, binary.Ran) and any(words in got.err for words in REFUSED):
            continue
        message = got.err if isinstance(got, binary.Ran) else compare.difference(answer, got.columns, got.types, got.rows)
        if message:
            wrong.append(f"{query}\n  {message}")
    assert not wrong, f"PELLUCID_SEED={SEED}, round {number}, options {variant_options}, {before}:\n" + "\n".join(wrong)
