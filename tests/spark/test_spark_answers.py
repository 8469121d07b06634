"""`pellucid sql --on spark` gives the rows of Pellucid's own engine, or refuses: constructs, text files, random SELECTs.

All statements run in one Spark session. Random SELECTs are seeded: sixty by default, 500 with PELLUCID_FULL=1. A failure
prints the statement and its seed, and `PELLUCID_SEED=SEED` repeats the run.
"""

import bz2
import gzip
import os
import re
from collections.abc import Sequence

import pytest

from harness import binary, spark
from harness.spark import checks, constructs
from harness.sql import breadth, compare, oracle, random_functions

pytestmark = pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}")
SEED = os.environ.get("PELLUCID_SEED", "1")
QUERIES = 500 if os.environ.get("PELLUCID_FULL") == "1" else 60
# A larger share would mean that the translation supports too little of everyday SQL.
REFUSED_SHARE = 0.2
# Files that Spark must read by the engine's rules or refuse: quotes, newlines, backslashes and type inference.
TEXTS = {
    "quotes.csv": 'a,b\n1,"x, ""y""\nz"\n2,"back\\"\n3,"x ""y"" z"\n4,\n5,""\n6, spaced \n',
    "types.csv": "i,f,b,d,t,u,v,w,n\n1,1.5,true,2024-01-07,2024-01-07 10:00:00,1d,007,10:30,\n"
    "-2,2,FALSE,2024-02-29,2024-01-07T11:00:00.5,2f,12,2024-01,\n,,,,,,,,\n3,1e3,true,1999-12-31,2024-01-07 10:00:00,x,1,2024,\n",
    "mixed.csv": "a,b,c,d\n1,true,2024-01-07,99999999999999999999\n2.5,1,x,1\n",
    "tabs.tsv": 'a\tb\n1\t"x\ty"\n2\tz, z\n',
    "windows.csv": "a,b\r\n1,x\r\n2,y\r\n",
    # Types come from all of a small file.
    "late.csv": "".join(["code,n,day\n", *(f"{i},{i},2024-01-07\n" for i in range(1500)), "007,1.5,soon\n"]),
    "order.json": '{"z": 1, "a": "x", "m": 1.5}\n{"a": null, "m": 2, "k": true}\n{"z": 3, "a": "\\u00e9", "k": false}\n',
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The tables of the random SELECTs and of the constructs."""
    folder = tmp_path_factory.mktemp("tables")
    duck = oracle.connect()
    edges = f"SELECT id::BIGINT AS id, s, p, i::BIGINT AS i, j::INT AS j, f::DOUBLE AS f, m::DECIMAL(9, 2) AS m, d, t::TIMESTAMP AS t, b FROM ({checks.EDGES})"
    queries = {**random_functions.TABLES, "edges": edges, "lists": constructs.LISTS, "big": constructs.BIG}
    for name, query in queries.items():
        duck.execute(f"COPY ({query}) TO '{folder}/{name}.parquet'")
    return {name: folder / f"{name}.parquet" for name in queries}


@pytest.fixture(scope="module")
def session(tables, tmp_path_factory):
    """A Spark session over the tables."""
    made = spark.Session(tmp_path_factory.mktemp("spark") / "session", tables)
    yield made
    made.close()


def options(tables) -> list[str]:
    """Returns the command's options for the same tables."""
    return [part for name, path in tables.items() for part in ("--table", f"{name}={path}")]


def wrong(query: str, here, there: dict, ordered: Sequence[int] = ()) -> str | None:
    """Describes the difference between both answers to a statement; None if they match or one side refused.

    `ordered` has the columns that define the order, if their names do not.
    """
    if "rows" not in there or isinstance(here, binary.Ran):
        return None
    # Lists are compared as text.
    types, of_spark = (["list" if re.match("List|array", name) else name for name in names] for names in (here.types, there["types"]))
    types = ["DOUBLE" if name.startswith("Float") else name for name in types]
    order = [int(key) for key in re.findall(r"c(\d+) (?:ASC|DESC)", query.rsplit(")", 1)[-1])]
    answer = oracle.Answer(here.columns, types, order or ordered, None, [[shown(value) for value in row] for row in here.rows])
    rows = [[shown(value) for value in row] for row in there["rows"]]
    # Outputs without an alias are named differently by the engines.
    if difference := compare.difference(answer, here.columns, of_spark, rows):
        return f"{query}\n  {difference}\n  on Spark: {there['translated'] or 'as it is'}"
    return None


def shown(value):
    """Formats lists as text, and times without the trailing zeros that one engine writes."""
    if isinstance(value, list):
        return str([shown(one) for one in value])
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return re.sub(r"(\.\d*?)0+$", r"\1", value).rstrip(".")
    return value


def checked_queries() -> list[str]:
    """Returns the constructs as complete statements."""
    return [f"SELECT {text}" + ("" if re.search(r"\bFROM (edges|\()", text) else " FROM edges") for text in checks.CHECKS]


def test_checked_constructs_give_the_same_rows_on_spark(session, tables):
    queries, differences = checked_queries(), []
    for query, here in zip(queries, breadth.answers(queries, options(tables)), strict=True):
        there = session.run(query)
        if isinstance(here, binary.Ran):
            differences.append(f"{query}\n  here: {here.err}")
        elif "rows" not in there:
            differences.append(f"{query}\n  on Spark: {there}")
        elif found := wrong(query, here, there):
            differences.append(found)
    assert not differences, "\n".join(differences)


def test_constructs_that_differ_are_refused_by_name(session):
    for text, words in checks.REFUSED.items():
        there = session.run(f"SELECT {text} FROM edges")
        assert "rows" not in there, f"{text}: {there}"
        assert words in there.get("refused", there.get("failed")), f"{text}: {there}"


def test_constructs_of_the_dialect_are_the_same_or_refused(session, tables):
    """Each gives the rows of the local engine, or an error that names it: never other rows."""
    differences = []
    same = [text for text, words in constructs.CONSTRUCTS.items() if words is constructs.SAME]
    answers = dict(zip(same, breadth.answers(same, options(tables)), strict=True))
    for text, words in constructs.CONSTRUCTS.items():
        there = session.run(text)
        message = there.get("refused") or there.get("failed") or ""
        if words is not constructs.SAME:
            if "rows" in there or words not in message:
                differences.append(f"{text}\n  expected {words!r}, on Spark: {there}")
        elif isinstance(answers[text], binary.Ran):
            differences.append(f"{text}\n  here: {answers[text].err}")
        elif "rows" not in there:
            differences.append(f"{text}\n  on Spark: {message}")
        elif found := wrong(text, answers[text], there, range(len(answers[text].columns)) if breadth.is_ordered(text) else ()):
            differences.append(found)
    assert not differences, "\n".join(differences)


def test_text_files_give_the_same_rows_on_spark(session, tmp_path):
    files = {}
    for name, text in TEXTS.items():
        files[name] = tmp_path / name
        files[name].write_bytes(text.encode())
    for name, pack in (("quotes.csv.gz", gzip.compress), ("tabs.tsv.bz2", bz2.compress), ("order.json.gz", gzip.compress)):
        files[name] = tmp_path / name
        files[name].write_bytes(pack(TEXTS[name.rsplit(".", 1)[0]].encode()))
    (tmp_path / "parts" / "year=2024" / "code=01").mkdir(parents=True)
    (tmp_path / "parts" / "year=2024" / "code=01" / "a.csv").write_text("v\n1\n")
    (tmp_path / "nested" / "below").mkdir(parents=True)
    for name in ("nested/a.csv", "nested/below/b.csv", "nested/_hidden.csv"):
        (tmp_path / name).write_text(f"v\n{len(name)}\n")
    files |= {name: f"{tmp_path}/{name}" for name in ("parts/", "nested/", "parts/*/*/*.csv", "nested/*.csv")}
    differences = []
    for name, path in files.items():
        query = f"SELECT * FROM '{path}'"
        here, there = breadth.answers([query], [])[0], session.run(query)
        assert not isinstance(here, binary.Ran), here.err
        if "rows" not in there or [one.lower() for one in here.columns] != there["columns"] or (found := wrong(query, here, there)):
            differences.append(f"{name}: {here.columns} {here.types} {here.rows}\n  on Spark: {there}")
    assert not differences, "\n".join(differences)
    (found,) = session.run(f"SELECT a FROM '{files['quotes.csv']}' WHERE b = 'x \"y\" z'")["rows"]
    assert found == [3]
    for name, words in (("x.arrow", "cannot read"), ("x.csv.zst", "cannot read")):
        (tmp_path / name).write_bytes(b"x")
        assert words in session.run(f"SELECT * FROM '{tmp_path / name}'")["refused"]
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3\n4,5\n")
    assert "failed" in session.run(f"SELECT count(*) FROM '{tmp_path}/ragged.csv'")
    (tmp_path / "large.csv").write_text("n\n" + "".join(f"{i:08}\n" for i in range(10_000_000, 10_300_000)) + "007\n")
    assert "column n: it is BIGINT" in session.run(f"SELECT count(n) FROM '{tmp_path}/large.csv'")["failed"]
    assert "no such file or directory" in session.run(f"SELECT * FROM '{tmp_path}/none.csv'")["failed"]


def test_random_statements_give_the_same_rows_or_are_refused_on_spark(session, tables):
    queries = []
    for number in range(QUERIES):
        maker = random_functions.Maker(f"{SEED}-{number}")
        queries.append(random_functions.array(maker) if number % 25 == 7 else maker.query())
    differences, refused, failed, engine_errors = [], [], [], 0
    for query, here in zip(queries, breadth.answers(queries, options(tables)), strict=True):
        there = session.run(query)
        if isinstance(here, binary.Ran):
            engine_errors += 1  # the engine itself refuses or fails
        elif "refused" in there:
            refused.append(f"{query}\n  {there['refused']}")
        elif "failed" in there:
            failed.append(f"{query}\n  {there['failed']}")
        elif found := wrong(query, here, there):
            differences.append(found)
    print(f"seed {SEED}: {QUERIES} statements, {len(refused)} refused, {len(failed)} failed on Spark, {engine_errors} in the engine")
    print("\n".join(refused + failed))
    assert not differences, f"PELLUCID_SEED={SEED}:\n" + "\n".join(differences)
    assert len(refused) + len(failed) <= QUERIES * REFUSED_SHARE and engine_errors <= QUERIES * 0.1


def test_listed_functions_are_checked_and_documented():
    names = spark.functions()
    assert len(names) > 100
    calls = " ".join(checks.CHECKS).lower()
    assert [name for name in names if not re.search(rf"\b{name}\b", calls)] == []
    page = (binary.ROOT / "docs" / "spark.md").read_text()
    assert [name for name in names if not re.search(rf"[` ]{name}[` ]", page)] == []
