"""`advise` and `rewrite`: advice is measured, its command can be pasted, and the rewritten table gives the same answers."""

import shlex

import duckdb
import pytest

from harness import binary

ROWS = 600_000
QUERY = "SELECT kind, count(*) AS n, sum(amount) AS total FROM 'events.parquet' WHERE day < DATE '2026-01-08' GROUP BY 1 ORDER BY 1"
# The disk limits the query, so that fewer bytes take less time on any machine.
SLOW = ("--io", "direct", "--disk-rate", ".=5MB/s")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with events in no order of their day, some of it NULL."""
    folder = tmp_path_factory.mktemp("events")
    duckdb.execute(
        f"""COPY (SELECT i AS id, CASE WHEN i % 1000 <> 0 THEN DATE '2026-01-01' + CAST(hash(i) % 365 AS INTEGER) END AS day,
        'kind ' || hash(i + 1) % 7 AS kind, CAST(hash(i + 2) % 100000 / 100.0 AS DECIMAL(12, 2)) AS amount,
        'it''s text ' || hash(i + 3) AS note FROM range({ROWS}) t(i))
        TO '{folder}/events.parquet' (COMPRESSION zstd, ROW_GROUP_SIZE 61440)"""
    )
    return folder


@pytest.fixture(scope="module")
def advice(folder):
    """The advice on a query that the disk limits."""
    binary.run("sql", QUERY, *SLOW, "--trace", "events.trace", cwd=folder).check()
    return binary.run("advise", "events.trace", "--json", cwd=folder).check().json()


def paste(command, folder, *more):
    """Runs a printed command."""
    name, *words = shlex.split(command)
    assert name == "pellucid"
    return binary.run(*words, *more, cwd=folder)


def test_advice_has_an_interval_that_is_faster(advice):
    assert set(advice) == {"format", "measured_ms", "advice", "notes"} and advice["format"] == "pellucid.advice/1"
    ids = [item["id"] for item in advice["advice"]]
    assert ids[0] == "sort:events:day", advice
    for item in advice["advice"]:
        assert 0 < item["low_ms"] <= item["duration_ms"] <= item["high_ms"] < advice["measured_ms"], item
        assert float(item["saves_ms"]) == pytest.approx(float(advice["measured_ms"] - item["duration_ms"]))
        assert item["id"].split(":")[1] == "events" and item["title"] and item["evidence"]


def test_settings_of_advice_are_those_of_whatif(advice, folder):
    item = advice["advice"][0]
    settings = [word for setting in item["set"] for word in ("--set", setting)]
    predicted = binary.run("whatif", "events.trace", *settings, "--json", cwd=folder).check().json()["prediction"]
    assert float(predicted["duration_ms"]) == pytest.approx(float(item["duration_ms"]))


def test_pasted_command_gives_the_same_answers(advice, folder):
    item = advice["advice"][0]
    document = paste(item["change"], folder, "--json").check().json()
    assert document["format"] == "pellucid.rewritten/1"
    assert (document["rows"], document["verified"], document["like"]) == (ROWS, True, [item["id"]])
    path = document["path"]
    sorted_query = QUERY.replace("events.parquet", path)
    before, after = (
        binary.run("sql", "--format", "csv", query, *SLOW, "--trace", "sorted.trace", cwd=folder).check() for query in (QUERY, sorted_query)
    )
    assert before.out == after.out and len(before.out.splitlines()) == 8
    days = duckdb.execute(f"SELECT day FROM '{folder}/{path}/*.parquet'").fetchnumpy()["day"]
    known = days[~days.mask] if hasattr(days, "mask") else days
    assert (known[1:] >= known[:-1]).all()
    # Nothing is left to advise on the order of the rows.
    again = binary.run("advise", "sorted.trace", "--json", cwd=folder).check().json()
    assert not any(one["id"].startswith("sort:") for one in again["advice"]), again


def advised(folder, table, query, *options):
    """Returns the advice on a query over a table that DuckDB writes."""
    duckdb.execute(
        f"COPY (SELECT i, 'the text of visit ' || i || ' and much that repeats' AS note FROM range(400000) t(i)) TO '{folder}/t.parquet' ({table})"
    )
    binary.run("sql", query, *options, "--trace", folder / "t.trace", cwd=folder).check()
    return binary.run("advise", folder / "t.trace", "--json", cwd=folder).check().json()["advice"]


def test_compression_is_advised_where_the_disk_limits(tmp_path):
    item, *_ = advised(tmp_path, "COMPRESSION uncompressed", "SELECT sum(length(note)) FROM 't.parquet'", *SLOW)
    assert item["id"] == "zstd:t" and any(".bytes=x0." in setting for setting in item["set"]), item
    paste(item["change"], tmp_path).check()
    answers = [binary.result(binary.sql(f"SELECT sum(length(note)), sum(i) FROM '{tmp_path}/{name}'")).rows for name in ("t.parquet", "t-zstd")]
    assert answers[0] == answers[1]


def test_division_is_advised_where_one_core_decodes_a_row_group(tmp_path):
    query = "SELECT sum(length(note)), count(DISTINCT upper(note)) FROM 't.parquet'"
    all_of_them = advised(tmp_path, "ROW_GROUP_SIZE 1000000", query, "--cores", "2")
    divided = [item for item in all_of_them if any(".multitasks=" in setting for setting in item["set"])]
    assert divided, all_of_them
    paste(divided[0]["change"], tmp_path).check()


@pytest.mark.parametrize("like, options", [
    (["none:events"], []),
    (["zstd:events", "rows:events:100000"], []),
    (["sort:events:day"], ["--memory", "20MiB"]),
    (["sort:events:note", "lz4:events"], ["--memory", "40MiB", "--no-verify"]),
    (["sort:events:amount"], []),
    (["dictionary:events"], []),
])  # fmt: skip
def test_rewrite_keeps_every_row(like, options, folder, tmp_path):
    changes = [word for change in like for word in ("--like", change)]
    binary.run("rewrite", folder / "events.parquet", *changes, *options, "-o", tmp_path / "new").check()
    [file] = (tmp_path / "new").iterdir()
    assert file.name == "events.parquet"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    one, other = f"FROM '{folder}/events.parquet'", f"FROM '{file}'"
    assert duckdb.execute(f"({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one})").fetchall() == []
    assert duckdb.execute(f"SELECT count(*) {other}").fetchall() == [(ROWS,)]
    assert duckdb.execute(f"DESCRIBE {other}").fetchall() == duckdb.execute(f"DESCRIBE {one}").fetchall()
    metadata = duckdb.execute(f"SELECT DISTINCT compression FROM parquet_metadata('{file}')").fetchall()
    codec = {"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}.get(like[-1].split(":")[0], "ZSTD")
    assert metadata == [(codec,)]
    for change in like:
        kind, _, *argument = change.split(":")
        if kind == "sort":
            [column] = argument
            rows = (
                f"SELECT {column} AS key, lag({column}) OVER (ORDER BY file_row_number) AS last FROM read_parquet('{file}', file_row_number = true)"
            )
            assert duckdb.execute(f"SELECT count(*) FROM ({rows}) WHERE key < last").fetchall() == [(0,)]
        if kind == "rows":
            groups = duckdb.execute(f"SELECT DISTINCT row_group_num_rows FROM parquet_metadata('{file}')").fetchall()
            assert groups == [(int(argument[0]),)]


def test_narrower_types_keep_every_value(tmp_path):
    file, new = tmp_path / "t.parquet", tmp_path / "new"
    duckdb.execute(
        f"""COPY (SELECT CASE WHEN i % 7 > 0 THEN strftime(DATE '1999-12-01' + CAST(i AS INTEGER), '%Y-%m-%d') END AS day,
        CAST(i AS DECIMAL(12, 2)) AS whole, CAST(i / 4.0 AS DECIMAL(12, 2)) AS part FROM range(100) t(i)) TO '{file}'"""
    )
    binary.run("rewrite", file, "--like", "date:t:day", "--like", "integer:t:whole", "-o", new).check()
    types = [kind for _, kind, *_ in duckdb.execute(f"DESCRIBE FROM '{new}/t.parquet'").fetchall()]
    assert types[:2] == ["DATE", "BIGINT"]
    [[other]] = duckdb.execute(f"SELECT count(*) FROM (SELECT day::DATE, whole, part FROM '{file}' EXCEPT ALL FROM '{new}/t.parquet')").fetchall()
    assert other == 0
    for change, why in (("integer:t:part", "a value of part is not a whole number"), ("date:t:whole", "cannot be narrowed to date")):
        ran = binary.run("rewrite", file, "--like", change, "-o", tmp_path / "other")
        assert ran.code == binary.FAILED and why in ran.err and not (tmp_path / "other").exists(), ran.err


@pytest.mark.parametrize("options, message", [
    (["--like", "sort:events:nothing"], "it has no column nothing"),
    (["--like", "lz4:orders"], "the table's name is events"),
    (["--like", "faster:events"], "sort:TABLE:COLUMN"),
    (["--like", "lz4:events", "-o", "full"], "not an empty folder"),
])  # fmt: skip
def test_invalid_rewrite_writes_nothing(options, message, folder, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    output = [] if "-o" in options else ["-o", "new"]
    ran = binary.run("rewrite", folder / "events.parquet", *options, *output, cwd=tmp_path)
    assert ran.code == binary.USAGE and message in " ".join(ran.err.split()), ran.err
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["full", "full/mine"]


def test_damaged_table_leaves_no_folder(folder, tmp_path):
    damaged = bytearray((folder / "events.parquet").read_bytes())
    damaged[4:2000] = bytes(1996)
    (tmp_path / "events.parquet").write_bytes(damaged)
    ran = binary.run("rewrite", tmp_path / "events.parquet", "--like", "lz4:events", "-o", tmp_path / "new")
    assert ran.code == binary.FAILED and "cannot read" in ran.err, ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["events.parquet"]


def test_advice_needs_the_query_and_its_tables(folder, tmp_path):
    binary.run("sql", "SELECT 1", "--trace", tmp_path / "one.trace").check()
    assert binary.run("advise", tmp_path / "one.trace", "--json").check().json()["advice"] == []
    query = "SELECT count(*) FROM e WHERE day < DATE '2026-01-08'"
    binary.run("sql", query, "--table", f"e={folder}/events.parquet", "--trace", tmp_path / "e.trace").check()
    missing = binary.run("advise", tmp_path / "e.trace")
    assert missing.code == binary.USAGE and "e" in missing.err
    binary.run("advise", tmp_path / "e.trace", "--table", f"e={folder}/events.parquet").check()
