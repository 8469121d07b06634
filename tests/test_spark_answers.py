"""`pellucid sql --on spark` gives the rows of Pellucid's own engine, or refuses: checks, text files and random SELECTs.

All in one Spark session. Random SELECTs are seeded: sixty in CI, 500 with PELLUCID_FULL=1; a failure prints the
statement and its seed, and `PELLUCID_SEED=SEED` runs them again.
"""

import bz2
import gzip
import os
import re

import pytest

from tests import binary, breadth, compare, oracle, random_functions, spark, spark_checks

pytestmark = pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}")
SEED = os.environ.get("PELLUCID_SEED", "1")
QUERIES = 500 if os.environ.get("PELLUCID_FULL") == "1" else 60
# More would say that the translation lags behind what people write.
REFUSED_SHARE = 0.2
# Rows that are read by the rules of the engine, or the file is refused; all of quotes, newlines, backslashes and types.
TEXTS = {
    "quotes.csv": 'a,b\n1,"x, ""y""\nz"\n2,"back\\"\n3,"x ""y"" z"\n4,\n5,""\n6, spaced \n',
    "types.csv": "i,f,b,d,t,u,v,w,n\n1,1.5,true,2024-01-07,2024-01-07 10:00:00,1d,007,10:30,\n"
    "-2,2,FALSE,2024-02-29,2024-01-07T11:00:00.5,2f,12,2024-01,\n,,,,,,,,\n3,1e3,true,1999-12-31,2024-01-07 10:00:00,x,1,2024,\n",
    "mixed.csv": "a,b,c,d\n1,true,2024-01-07,99999999999999999999\n2.5,1,x,1\n",
    "tabs.tsv": 'a\tb\n1\t"x\ty"\n2\tz, z\n',
    "windows.csv": "a,b\r\n1,x\r\n2,y\r\n",
    "order.json": '{"z": 1, "a": "x", "m": 1.5}\n{"a": null, "m": 2, "k": true}\n{"z": 3, "a": "\\u00e9", "k": false}\n',
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The tables of the random SELECTs and of the checks."""
    folder = tmp_path_factory.mktemp("tables")
    duck = oracle.connect()
    edges = f"SELECT id::BIGINT AS id, s, p, i::BIGINT AS i, j::INT AS j, f::DOUBLE AS f, m::DECIMAL(9, 2) AS m, d, t::TIMESTAMP AS t, b FROM ({spark_checks.EDGES})"
    for name, query in {**random_functions.TABLES, "edges": edges}.items():
        duck.execute(f"COPY ({query}) TO '{folder}/{name}.parquet'")
    return {name: folder / f"{name}.parquet" for name in (*random_functions.TABLES, "edges")}


@pytest.fixture(scope="module")
def session(tables, tmp_path_factory):
    """A Spark session over them."""
    made = spark.Session(tmp_path_factory.mktemp("spark") / "session", tables)
    yield made
    made.close()


def options(tables) -> list[str]:
    """The same tables for the command."""
    return [part for name, path in tables.items() for part in ("--table", f"{name}={path}")]


def wrong(query: str, here, there: dict) -> str | None:
    """What differs between both answers to a statement, in words; None where nothing does, or Spark refuses."""
    if "rows" not in there or isinstance(here, binary.Ran):
        return None
    # What is in a list is compared as text.
    types, of_spark = (["list" if re.match("List|array", name) else name for name in names] for names in (here.types, there["types"]))
    types = ["DOUBLE" if name.startswith("Float") else name for name in types]
    order = re.findall(r"c(\d+) (?:ASC|DESC)", query.rsplit(")", 1)[-1])
    answer = oracle.Answer(here.columns, types, [int(key) for key in order], None, [[shown(value) for value in row] for row in here.rows])
    rows = [[shown(value) for value in row] for row in there["rows"]]
    # The names of outputs without an alias are each engine's own.
    if said := compare.difference(answer, here.columns, of_spark, rows):
        return f"{query}\n  {said}\n  on Spark: {there['translated'] or 'as it is'}"
    return None


def shown(value):
    """Lists as text, and times without the zeros that one engine writes after the second."""
    if isinstance(value, list):
        return str([shown(one) for one in value])
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return re.sub(r"(\.\d*?)0+$", r"\1", value).rstrip(".")
    return value


def checks() -> list[str]:
    """Whole statements."""
    return [f"SELECT {text}" + ("" if re.search(r"\bFROM (edges|\()", text) else " FROM edges") for text in spark_checks.CHECKS]


def test_checked_constructs_give_the_same_rows(session, tables):
    queries, said = checks(), []
    for query, here in zip(queries, breadth.answers(queries, options(tables)), strict=True):
        there = session.ask(query)
        if isinstance(here, binary.Ran):
            said.append(f"{query}\n  here: {here.err}")
        elif "rows" not in there:
            said.append(f"{query}\n  on Spark: {there}")
        elif found := wrong(query, here, there):
            said.append(found)
    assert not said, "\n".join(said)


def test_what_differs_is_refused_by_name(session):
    for text, words in spark_checks.REFUSED.items():
        there = session.ask(f"SELECT {text} FROM edges")
        assert "rows" not in there, f"{text}: {there}"
        assert words in there.get("refused", there.get("failed")), f"{text}: {there}"


def test_text_files_have_the_same_rows(session, tmp_path):
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
    said = []
    for name, path in files.items():
        query = f"SELECT * FROM '{path}'"
        here, there = breadth.answers([query], [])[0], session.ask(query)
        assert not isinstance(here, binary.Ran), here.err
        if "rows" not in there or [one.lower() for one in here.columns] != there["columns"] or (found := wrong(query, here, there)):
            said.append(f"{name}: {here.columns} {here.types} {here.rows}\n  on Spark: {there}")
    assert not said, "\n".join(said)
    (found,) = session.ask(f"SELECT a FROM '{files['quotes.csv']}' WHERE b = 'x \"y\" z'")["rows"]
    assert found == [3]
    for name, words in (("x.arrow", "cannot read"), ("x.csv.zst", "cannot read")):
        (tmp_path / name).write_bytes(b"x")
        assert words in session.ask(f"SELECT * FROM '{tmp_path / name}'")["refused"]
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3\n4,5\n")
    assert "failed" in session.ask(f"SELECT count(*) FROM '{tmp_path}/ragged.csv'")
    assert "no such file or directory" in session.ask(f"SELECT * FROM '{tmp_path}/none.csv'")["failed"]


def test_random_statements_give_the_same_rows_or_are_refused(session, tables):
    queries = []
    for number in range(QUERIES):
        maker = random_functions.Maker(f"{SEED}-{number}")
        queries.append(random_functions.array(maker) if number % 25 == 7 else maker.query())
    said, refused, failed, nothing = [], [], [], 0
    for query, here in zip(queries, breadth.answers(queries, options(tables)), strict=True):
        there = session.ask(query)
        if isinstance(here, binary.Ran):
            nothing += 1  # the engine itself refuses it, or fails
        elif "refused" in there:
            refused.append(f"{query}\n  {there['refused']}")
        elif "failed" in there:
            failed.append(f"{query}\n  {there['failed']}")
        elif found := wrong(query, here, there):
            said.append(found)
    print(f"seed {SEED}: {QUERIES} statements, {len(refused)} refused, {len(failed)} failed on Spark, {nothing} in the engine")
    print("\n".join(refused + failed))
    assert not said, f"PELLUCID_SEED={SEED}:\n" + "\n".join(said)
    assert len(refused) + len(failed) <= QUERIES * REFUSED_SHARE and nothing <= QUERIES * 0.1


def test_every_function_of_the_list_is_checked_and_documented():
    names = spark.functions()
    assert len(names) > 100
    calls = " ".join(spark_checks.CHECKS).lower()
    assert [name for name in names if not re.search(rf"\b{name}\b", calls)] == []
    page = (binary.ROOT / "docs" / "spark.md").read_text()
    assert [name for name in names if not re.search(rf"[` ]{name}[` ]", page)] == []
