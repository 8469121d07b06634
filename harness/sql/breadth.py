"""Runs many statements in one process and compares them with DuckDB's answers.

Starting a process costs more than most of the queries of `test_sql.py` and `test_random_sql.py`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from harness import binary
from harness.sql import compare, oracle

# Options that change how a query is split; its answer must not depend on them.
VARIANTS = {
    "default": (),
    "one-core": ("--cores", "1"),
    "one-partition": ("--partitions", "1"),
    "seven-partitions": ("--partitions", "7"),
}
# Divides the build side of every hash join, as of those that are too large for one core.
DIVIDED_JOINS = "SET datafusion.optimizer.hash_join_single_partition_threshold = 0"


@dataclass
class Rows:
    """The answer of one statement."""

    columns: list[str]
    types: list[str]
    rows: list[list]


def results(statements: list[str], *options: str | Path, **settings: Any) -> list[Rows]:
    """Runs statements in order in one process and returns each answer."""
    return split_results(binary.sql(";\n".join(statements), None, *options, **settings), len(statements))


def split_results(ran: binary.Ran, statements: int) -> list[Rows]:
    """Splits a finished process's output into one answer for each statement."""
    document = json.loads(ran.check().out, parse_float=Decimal)
    assert document["format"] == "pellucid.result/1"
    documents = document.get("results", [document])
    assert len(documents) == statements, f"{len(documents)} results of {statements} statements"
    return [Rows([c["name"] for c in d["columns"]], [c["type"] for c in d["columns"]], d["rows"]) for d in documents]


def answers(queries: list[str], options: Sequence[str], before: Sequence[str] = ()) -> list:
    """Returns the answer of each query: its rows, or the process that failed on it. Other statements run `before` them."""
    ran = binary.sql(";\n".join([*before, *queries]), None, *options)
    if ran.code == 0:
        return split_results(ran, len(before) + len(queries))[len(before) :]
    if len(queries) == 1:
        return [ran]
    half = len(queries) // 2
    return answers(queries[:half], options, before) + answers(queries[half:], options, before)


def rows(statement: str, *options: str | Path, **settings: Any) -> list[list]:
    """Returns the rows of the last of one or more statements."""
    statements = [part for part in statement.split(";") if part.strip()]
    return results(statements, *options, **settings)[-1].rows


def expected(connection: duckdb.DuckDBPyConnection, query: str, ordered: bool) -> oracle.Answer:
    """Returns DuckDB's answer. An ordered query must order by all of its columns, so that no rows tie."""
    cursor = connection.execute(query)
    columns = [column[0] for column in cursor.description]
    types = [str(column[1]) for column in cursor.description]
    keys = list(range(len(columns))) if ordered else []
    found = [[oracle.as_json(value) for value in row] for row in cursor.fetchall()]
    return oracle.Answer(columns, types, keys, None, found)


def is_ordered(query: str) -> bool:
    """Returns whether a query ends with ORDER BY (or a LIMIT after it)."""
    return "ORDER BY" in query.rsplit(")", 1)[-1]


def differences(connection: duckdb.DuckDBPyConnection, queries: list[str], *options: str | Path) -> list[str]:
    """Runs the queries in both engines and describes each difference."""
    found = []
    for query, got in zip(queries, results(queries, *options), strict=True):
        answer = expected(connection, query, is_ordered(query))
        wrong = compare.difference(answer, got.columns, got.types, got.rows)
        if wrong:
            found.append(f"{query}\n  {wrong}")
    return found
