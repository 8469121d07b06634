"""Many statements in one process, and DuckDB's word for what they should give.

Used by `test_sql.py` and `test_random_sql.py`: a process start costs more than most of
their queries.
"""

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb

from tests import binary, compare, oracle

# How the same queries are run: whatever cuts them must not change their answers.
WAYS = {
    "default": (),
    "one-core": ("--cores", "1"),
    "one-partition": ("--partitions", "1"),
    "seven-partitions": ("--partitions", "7"),
}


@dataclass
class Rows:
    """What one statement answered."""

    columns: list[str]
    types: list[str]
    rows: list[list]


def results(statements: list[str], *options: str | Path, **settings) -> list[Rows]:
    """Runs statements one after another in one process; gives what each answered."""
    return of(binary.sql(";\n".join(statements), None, *options, **settings), len(statements))


def of(ran: binary.Ran, statements: int) -> list[Rows]:
    """What a process that ran so many statements answered to each."""
    document = json.loads(ran.check().out, parse_float=Decimal)
    assert document["format"] == "pellucid.result/1"
    documents = document.get("results", [document])
    assert len(documents) == statements, f"{len(documents)} results of {statements} statements"
    return [
        Rows([c["name"] for c in d["columns"]], [c["type"] for c in d["columns"]], d["rows"]) for d in documents
    ]


def answers(queries: list[str], options) -> list:
    """What each of many statements answered: rows, or the process that failed."""
    ran = binary.sql(";\n".join(queries), None, *options)
    if ran.code == 0:
        return of(ran, len(queries))
    if len(queries) == 1:
        return [ran]
    half = len(queries) // 2
    return answers(queries[:half], options) + answers(queries[half:], options)


def rows(statement: str, *options: str | Path, **settings) -> list[list]:
    """The rows of the last of one or more statements."""
    statements = [part for part in statement.split(";") if part.strip()]
    return results(statements, *options, **settings)[-1].rows


def expected(connection: duckdb.DuckDBPyConnection, query: str, ordered: bool) -> oracle.Answer:
    """DuckDB's answer; an ordered one must be ordered by all of its columns, so that nothing ties."""
    cursor = connection.execute(query)
    columns = [column[0] for column in cursor.description]
    types = [str(column[1]) for column in cursor.description]
    keys = list(range(len(columns))) if ordered else []
    found = [[oracle.as_json(value) for value in row] for row in cursor.fetchall()]
    return oracle.Answer(columns, types, keys, None, found)


def is_ordered(query: str) -> bool:
    """Whether the last word of a query is its order (or a limit after it)."""
    return "ORDER BY" in query.rsplit(")", 1)[-1]


def differences(connection, queries: list[str], *options: str | Path) -> list[str]:
    """Runs the queries here and there; says what differs, query by query."""
    found = []
    for query, got in zip(queries, results(queries, *options), strict=True):
        answer = expected(connection, query, is_ordered(query))
        wrong = compare.difference(answer, got.columns, got.types, got.rows)
        if wrong:
            found.append(f"{query}\n  {wrong}")
    return found
