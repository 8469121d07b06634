"""DuckDB's answers to TPC-H and TPC-DS, over the same files that Pellucid reads.

The queries are those of `tpch_queries()` and `tpcds_queries()` in DuckDB's extensions. DuckDB answers them over the
Parquet files that `pellucid generate` wrote, so a difference between generators has no effect, and a difference between
answers is one of execution. Both extensions are wheels: nothing is downloaded at test time.

An answer is more than DuckDB's rows. With `ORDER BY … LIMIT`, engines may keep different rows of those that tie at the
cut. The oracle therefore runs the query without its LIMIT and with the sort keys as additional columns, and keeps every
row that a correct answer could contain. It rewrites the parsed query (`json_serialize_sql`), not its text.
"""

import copy
import datetime
import decimal
import hashlib
import importlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from harness.binary import ROOT

BENCHMARKS = {"tpch": 22, "tpcds": 99}
# Part of the cache's key: raise it when the content of an answer changes.
ANSWER_VERSION = 1
# Rows kept past the cut in addition to ties: rounding may move a float key past its neighbour.
SLACK = 20
REWRITES = ROOT / "tests" / "rewrites"


@dataclass
class Answer:
    """The rows that a correct answer may contain.

    `rows` are in DuckDB's order, with values as in JSON (decimals and dates as text). Each row has the output columns,
    then the sort keys that are not output columns.
    """

    columns: list[str]
    types: list[str]  # DuckDB's, of output and key columns
    keys: list[int]  # columns of the sort order, most significant first
    limit: int | None
    rows: list[list]

    @property
    def width(self) -> int:
        """Returns the number of output columns."""
        return len(self.columns)


def connect(data: Path | None = None, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Opens DuckDB with both extensions, and a view for each `TABLE.parquet` in a folder."""
    connection = duckdb.connect(config={"threads": threads or os.cpu_count() or 1})
    for name in BENCHMARKS:
        package = importlib.import_module(f"duckdb_extension_{name}")
        folder = Path(str(package.__file__)).parent / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / name}.duckdb_extension'")
    for path in sorted(data.glob("*.parquet")) if data else []:
        connection.execute(f"CREATE VIEW {path.stem} AS FROM read_parquet('{path}')")
    return connection


@cache
def texts(benchmark: str) -> dict[int, str]:
    """Returns the benchmark's queries by number, in DuckDB's wording."""
    found = connect().execute(f"SELECT query_nr, query FROM {benchmark}_queries()").fetchall()
    if len(found) != BENCHMARKS[benchmark]:
        raise RuntimeError(f"{benchmark}: {len(found)} queries instead of {BENCHMARKS[benchmark]}")
    return {number: text.strip().rstrip(";") for number, text in found}


def rewrite_path(benchmark: str, number: int) -> Path:
    """Returns the path of a query's rewrite, which need not exist."""
    return REWRITES / benchmark / f"{number:02}.sql"


def text_for_pellucid(benchmark: str, number: int) -> str:
    """Returns the query for Pellucid: DuckDB's text, or its rewrite if there is one."""
    path = rewrite_path(benchmark, number)
    return path.read_text() if path.exists() else texts(benchmark)[number]


def answer(benchmark: str, number: int, data: Path, text: str | None = None) -> Answer:
    """Returns DuckDB's answer over this data, from the cache in `DATA/../answers` if it is still valid."""
    text = text or texts(benchmark)[number]
    cached = data.parent / "answers" / f"{data.name}-{number:02}-{_fingerprint(text, data)}.json"
    if cached.exists():
        return Answer(**json.loads(cached.read_text()))
    found = compute(_over(data), text)
    cached.parent.mkdir(exist_ok=True)
    partial = cached.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(found)))
    partial.replace(cached)
    return found


@cache
def _over(data: Path) -> duckdb.DuckDBPyConnection:
    """Returns one connection for each folder of data."""
    return connect(data)


def _fingerprint(text: str, data: Path) -> str:
    """Hashes everything that an answer depends on: the text, the files, DuckDB's version, the answer's content."""
    files = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(data.glob("*.parquet"))]
    return hashlib.sha256(repr((ANSWER_VERSION, duckdb.__version__, text, files)).encode()).hexdigest()[:16]


def compute(connection: duckdb.DuckDBPyConnection, text: str) -> Answer:
    """Runs one query for all rows that a correct answer may contain."""
    tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
    if tree["error"]:
        raise RuntimeError(f"DuckDB cannot parse its own query: {tree['error_message']}")
    node = tree["statements"][0]["node"]
    described = connection.execute(f"DESCRIBE {text}").fetchall()
    columns = [name for name, *_ in described]
    keys, extra = _sort_keys(node, columns)
    limit = _take_limit(node)
    node["select_list"] += extra
    whole = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()[0][0]
    cursor = connection.execute(whole)
    types = [str(column[1]) for column in cursor.description]
    return Answer(columns, types, keys, limit, _rows_to_keep(cursor, keys, limit))


def _sort_keys(node: dict, columns: list[str]) -> tuple[list[int], list[dict]]:
    """Returns the columns that order the answer, and expressions to append for keys that are not output columns.

    A key is a position, or an expression in which an output alias stands for its expression: ORDER BY prefers the
    alias, while a select list prefers the table's column.
    """
    orders = [order for m in node["modifiers"] if m["type"] == "ORDER_MODIFIER" for order in m["orders"]]
    aliases = {e["alias"]: e for e in node["select_list"] if e["alias"]}
    keys: list[int] = []
    extra: list[dict] = []
    for order in orders:
        expression = order["expression"]
        if expression["class"] == "CONSTANT":
            keys.append(expression["value"]["value"] - 1)
            continue
        appended = _without_aliases(expression, aliases)
        appended["alias"] = f"sort_key_{len(extra)}"
        keys.append(len(columns) + len(extra))
        extra.append(appended)
    return keys, extra


def _without_aliases(tree: Any, aliases: dict[str, dict]) -> Any:
    """Copies an expression with each alias replaced by its expression."""
    if isinstance(tree, list):
        return [_without_aliases(part, aliases) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("class") == "COLUMN_REF" and len(tree["column_names"]) == 1:
        behind = aliases.get(tree["column_names"][0])
        if behind is not None:
            return copy.deepcopy(behind) | {"alias": ""}
    return {key: _without_aliases(value, aliases) for key, value in tree.items()}


def _take_limit(node: dict) -> int | None:
    """Removes the LIMIT from the tree and returns it. No query has an OFFSET."""
    limits = [m for m in node["modifiers"] if m["type"] == "LIMIT_MODIFIER"]
    node["modifiers"] = [m for m in node["modifiers"] if m["type"] != "LIMIT_MODIFIER"]
    if not limits:
        return None
    (limit,) = limits
    if limit.get("offset") or limit["limit"]["class"] != "CONSTANT":
        raise RuntimeError("the oracle knows only LIMIT with a number and without OFFSET")
    return limit["limit"]["value"]["value"]


def _rows_to_keep(cursor: duckdb.DuckDBPyConnection, keys: list[int], limit: int | None) -> list[list]:
    """Returns all rows without LIMIT or ORDER BY; otherwise the rows to the cut, their ties, and `SLACK` more."""
    rows, cut, past = [], None, 0
    while batch := cursor.fetchmany(10_000):
        for row in batch:
            rows.append([as_json(value) for value in row])
            if limit is None or not keys:
                continue
            if len(rows) == limit:
                cut = [rows[-1][key] for key in keys]
            elif cut is not None and [rows[-1][key] for key in keys] != cut:
                past += 1
                if past == SLACK:
                    return rows
    return rows


def as_json(value: Any) -> Any:
    """Converts a DuckDB value to what `pellucid sql --json` writes; decimals become text, to keep their digits."""
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return value.isoformat()
    return value
