"""Iceberg and Delta tables that Spark wrote, read by the engine: every version, beside the rows that Spark read from it.

The tables have partitions, deleted and changed rows (position deletes, deletion vectors), and columns that were renamed, added,
dropped and widened; Iceberg's also change their partitions, and Delta's have checkpoints.
"""

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from harness import binary, spark
from harness.spark import lakes
from harness.sql import breadth, compare
from harness.stores import services

pytestmark = pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}")
MORE = ("by_partition", "delta_v2") if os.environ.get("PELLUCID_FULL") == "1" else ()
TABLES = ("by_file", "delta_classic", *MORE)
# `{word}`: the column `s`, which some versions call `word`.
QUESTIONS = [
    "SELECT id, p, {word}, d, CAST(t AS TIMESTAMP) AS t, n, b, l[1], st.x, st.y, m['k'] FROM {t}",
    "SELECT count(*), sum(id), count({word}), min(d), max(n) FROM {t}",
    "SELECT p, count(*), sum(id) FROM {t} GROUP BY p",
    "SELECT count(*), sum(id) FROM {t} WHERE p = 1 AND d >= DATE '2020-02-01'",
    "SELECT id, {word} FROM {t} WHERE id BETWEEN 95 AND 125 AND {word} IS NOT NULL",
    "SELECT count(*) FROM {t} a JOIN {t} b ON a.id = b.id + 1",
]
CHANGED = "SELECT extra, count(*), min(id), max(id) FROM {t} GROUP BY extra"
DROPPED = "SELECT count(f), sum(f) FROM {t} WHERE f < 70"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The tables."""
    try:
        return lakes.write(tmp_path_factory.mktemp("lakes"), TABLES)
    except services.Missing as why:
        pytest.skip(f"no jars for Spark {lakes.SPARK}: {why}")


def scan(table: str, place: Path, version: int) -> str:
    return f"delta_scan('{place}', version => {version})" if table.startswith("delta_") else f"iceberg_scan('{place}', snapshot_from_id => {version})"


def differences(there: str, rows: str) -> list[str]:
    """Compares the answers about a table with those of DuckDB about its rows."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute(f"CREATE VIEW t AS FROM '{rows}'")
    columns = [name for name, *_ in duck.execute("DESCRIBE t").fetchall()]
    word = "word" if "word" in columns else "s"
    questions = [*QUESTIONS, *([CHANGED] if "extra" in columns else []), *([DROPPED] if "f" in columns else [])]
    found = []
    for question, got in zip(questions, breadth.results([one.format(t=there, word=word) for one in questions]), strict=True):
        expected = breadth.expected(duck, question.format(t="t", word=word), False)
        if wrong := compare.difference(expected, got.columns, got.types, got.rows):
            found.append(f"{question} of {there}\n  {wrong}")
    [names] = breadth.results([f"SELECT * FROM {there} LIMIT 1"])
    return found if names.columns == columns else [*found, f"{there}: {names.columns}, expected {columns}"]


@pytest.mark.parametrize("table", TABLES)
def test_every_version_has_the_rows_that_spark_reads(written, table):
    versions, place = written.versions[table], written.place(table)
    assert len(versions) >= 6
    found = [one for version in versions for one in differences(scan(table, place, version), written.rows(table, version))]
    found += differences(f"'{place}'", written.rows(table, versions[-1]))
    assert not found, "\n".join(found)
    deletes = "deletion_vector_*.bin" if table.startswith("delta_") else "*-deletes.parquet"
    assert list(place.rglob(deletes)), "the rows were deleted by rewriting their files"


@pytest.mark.parametrize("table", TABLES)
def test_pruned_files_are_not_read(written, table, tmp_path):
    place = tmp_path / "t"
    shutil.copytree(written.place(table), place)
    [all_rows] = breadth.rows(f"SELECT count(*) FROM '{place}'")
    [[fewer, total]] = breadth.rows(f"SELECT count(*), sum(id) FROM '{place}' WHERE p < 2")
    removed = [path for path in place.rglob("*=2/**/*") if path.is_file() and "_delta_log" not in path.parts]
    removed = [path for path in removed if next(part for part in path.relative_to(place).parts if "=" in part).endswith("=2")]
    for path in removed:
        path.unlink()
    assert len(removed) > 4 and fewer < all_rows[0]
    assert breadth.rows(f"SELECT count(*), sum(id) FROM '{place}' WHERE p < 2") == [[fewer, total]]
    assert breadth.rows(f"SELECT count(*), sum(id) FROM '{place}' WHERE p IN (0, 1)") == [[fewer, total]]
    broken = binary.run("sql", f"SELECT sum(id) FROM '{place}'")
    assert broken.code == 1 and "=2" in broken.err, broken.err


def test_files_are_pruned_by_their_bounds(written, tmp_path):
    """The newest files of the Iceberg table, which lie in folders of their own, have other ids."""
    place = tmp_path / "t"
    shutil.copytree(written.place("by_file"), place)
    question = f"SELECT count(*), sum(id) FROM '{place}' WHERE id BETWEEN 20 AND 199"
    before = breadth.rows(question)
    newest = list(place.rglob("id_bucket*/*.parquet"))
    for path in newest:
        path.unlink()
    assert newest and breadth.rows(question) == before
    assert binary.run("sql", question.replace("199", "200")).code == 1
