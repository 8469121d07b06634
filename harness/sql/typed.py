"""The population of `tests/sql/typed`: statements as analysts type them, and DuckDB's outcome of each.

A group is one file of cases. A case opens with `-- case: ID`, and `(reserved)` if nothing may be tuned to it. The lines
below, up to the next case, are what an analyst types: one or more statements, of which the last one's result counts.
Before them may stand:

- `-- read: QUERY` reads back the files that the statement wrote; its result counts instead.
- `-- error: WORD|WORD -> CANDIDATE` marks a mistake. An error must give the line and column of one of the words (`end`:
  the end of the text), name it, and propose the candidate if there is one.
- `-- duckdb: QUERY` is DuckDB's way to write a statement of PostgreSQL that DuckDB refuses. Its answer is right, and so
  is a clear error.
- `-- data error: WORD|WORD` marks values that do not fit, which are found while running. An error must name one word.

Each case runs in a fresh folder with the files of `typed_files.py`, whose Parquet files are also tables.
"""

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

import duckdb

from harness.binary import ROOT
from harness.sql import breadth, oracle, typed_files, typed_values

FOLDER = ROOT / "tests" / "sql" / "typed"
# Reasons for cases whose answer differs from DuckDB's on purpose, by id.
DELIBERATE = FOLDER / "deliberate.toml"
# Drawn before any case was run in Pellucid; a third of each group is reserved.
SEED = 20261125
HEADER = re.compile(r"-- case: (\w+-\d+)( \(reserved\))?")
NOTE = re.compile(r"-- (read|duckdb|error|data error): (.*)")


@dataclass(frozen=True)
class Case:
    """Statements as typed, and how their outcome is judged."""

    id: str
    reserved: bool
    text: str
    read: str | None = None
    duckdb: str | None = None
    error: str | None = None
    data_error: str | None = None

    @property
    def group(self) -> str:
        """Returns the name of the case's file."""
        return self.id.rsplit("-", 1)[0]

    @property
    def refused(self) -> bool:
        """Returns whether an error is due."""
        return self.error is not None or self.data_error is not None


@dataclass
class Outcome:
    """DuckDB's answer, or its error."""

    answer: oracle.Answer | None
    error: str | None


def load(folder: Path = FOLDER) -> list[Case]:
    """Returns all cases by group and number."""
    return [case for path in sorted(folder.glob("*.sql")) for case in parse(path.read_text())]


def parse(text: str) -> list[Case]:
    """Returns the cases of one file."""
    found: list[Case] = []
    for part in re.split(r"^(?=-- case: )", text, flags=re.MULTILINE)[1:]:
        first, *lines = part.rstrip().split("\n")
        header = HEADER.fullmatch(first)
        if header is None:
            raise ValueError(f"cannot read the case header `{first}`; expected `-- case: ID` or `-- case: ID (reserved)`")
        notes: dict[str, str] = {}
        while note := NOTE.fullmatch(lines[0]):
            notes[note[1].replace(" ", "_")] = note[2]
            del lines[0]
        found.append(Case(header[1], header[2] is not None, "\n".join(lines), **notes))
    return found


def draw(ids: list[str]) -> set[str]:
    """Returns the reserved third of a group's ids."""
    group = ids[0].rsplit("-", 1)[0]
    return set(random.Random(f"{SEED} {group}").sample(sorted(ids), round(len(ids) / 3)))


def run(case: Case) -> Outcome:
    """Returns DuckDB's outcome of a case in the current folder, which has the files."""
    try:
        with connect() as connection:
            found = answer(connection, case.duckdb or case.text)
        return read_outcome(case) if case.read else Outcome(found, None)
    except duckdb.Error as error:
        return Outcome(None, str(error))


def connect() -> duckdb.DuckDBPyConnection:
    """Opens DuckDB with the tables as views, in UTC."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for name in typed_files.TABLES:
        connection.execute(f"CREATE VIEW {name} AS FROM '{name}.parquet'")
    return connection


def read_outcome(case: Case) -> Outcome:
    """Returns the rows that DuckDB reads from the files that a case wrote into the current folder."""
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return Outcome(answer(connection, case.read or ""), None)
    except duckdb.Error as error:
        return Outcome(None, str(error))


def answer(connection: duckdb.DuckDBPyConnection, text: str) -> oracle.Answer:
    """Runs statements and returns the last one's answer, with values as JSON has them."""
    # A PIVOT is split into statements without text.
    last = connection.extract_statements(text)[-1].query or text
    cursor = connection.execute(text)
    columns = [column[0] for column in cursor.description]
    types = [str(column[1]) for column in cursor.description]
    # Unlike Python's rows, Arrow keeps the months of intervals.
    table = cursor.to_arrow_table()
    values = [column.to_pylist() for column in table.columns]
    rows = [[typed_values.expected(value, kind) for value, kind in zip(row, types)] for row in zip(*values)]
    return oracle.Answer(columns, types, named(sort_keys(connection, last), columns), None, rows)


def sort_keys(connection: duckdb.DuckDBPyConnection, statement: str) -> list[str | int] | None:
    """Returns names and positions of the top ORDER BY; an empty list: all columns; None: no order."""
    [[text]] = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    tree = json.loads(text)
    if tree["error"]:
        return [] if breadth.is_ordered(statement) else None
    modifiers = tree["statements"][0]["node"]["modifiers"]
    orders = [order["expression"] for m in modifiers if m["type"] == "ORDER_MODIFIER" for order in m["orders"]]
    if not orders:
        return None
    found: list[str | int] = []
    for expression in orders:
        if expression["class"] == "COLUMN_REF":
            found.append(expression["column_names"][-1])
        elif expression["class"] == "CONSTANT" and isinstance(expression["value"]["value"], int):
            found.append(expression["value"]["value"] - 1)
        else:
            return []
    return found


def named(keys: list[str | int] | None, columns: list[str]) -> list[int]:
    """Returns the positions of sort keys; all columns if a key is not an output."""
    if keys is None:
        return []
    every = list(range(len(columns)))
    lower = [column.lower() for column in columns]
    if not keys or any(isinstance(key, str) and key.lower() not in lower for key in keys):
        return every
    return [key if isinstance(key, int) else lower.index(key.lower()) for key in keys]
