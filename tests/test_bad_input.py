"""What bad input gets: a message with path, place and way out, the right exit code, nothing left.

Exit codes: 2 where the request itself is wrong (SQL that does not parse, a column that is
not there, an option's value), 1 where it was right and went wrong.
"""

import bz2
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
import zstandard

from tests import binary, oracle, s3

FAILED, USAGE = 1, 2


@pytest.fixture
def duck():
    """DuckDB, to write inputs with."""
    return oracle.connect(threads=1)


@pytest.fixture
def good(tmp_path, duck):
    """A Parquet file of three row groups with 6 000 rows: `id`, `name`, `amount`."""
    path = tmp_path / "good.parquet"
    duck.execute(
        "COPY (SELECT i AS id, 'name ' || i AS name, i * 1.5 AS amount FROM range(6144) r(i)) "
        f"TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, COMPRESSION zstd)"
    )
    return path


def refused(query, code, *said, options=(), program=None, **settings):
    """Runs the query twice, to the screen and to a file: it must fail properly both ways.

    `said` are patterns that the message must hold. Gives the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        target = Path(folder) / "out.parquet"
        extra = {"program": program} if program else {}
        plain = binary.sql(query, None, *options, **extra, **settings)
        to_file = binary.run("sql", query, "-o", target, *options, **extra, **settings)
        assert os.listdir(folder) == [], "partial output was left"
    for ran in (plain, to_file):
        assert ran.code == code, f"exit {ran.code} instead of {code}: {ran.err}"
        assert not binary.PANIC.search(ran.err + ran.out), ran.err
        assert ran.out == "", f"output beside the error: {ran.out[:200]}"
        for pattern in said:
            assert re.search(pattern, ran.err, re.IGNORECASE), f"{pattern!r} is not in: {ran.err}"
    return plain.err


def test_missing_file(tmp_path):
    path = tmp_path / "nowhere.parquet"
    refused(
        f"SELECT * FROM '{path}'",
        FAILED,
        re.escape(str(path)),
        "no such file|not found|does not exist|no files?",
        "check",
    )


def test_missing_file_of_a_named_table(tmp_path):
    path = tmp_path / "nowhere.parquet"
    refused("SELECT * FROM t", FAILED, re.escape(str(path)), "check", options=("--table", f"t={path}"))


def test_glob_that_matches_nothing(tmp_path):
    refused(f"SELECT * FROM '{tmp_path}/*.parquet'", FAILED, re.escape(f"{tmp_path}/*.parquet"), "match|no .*file")


@pytest.fixture
def as_nobody():
    """Settings that run the binary as the user `nobody`, from a place that it can read."""
    if os.geteuid() != 0:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = Path(folder) / "pellucid"
        shutil.copy(binary.binary(), program)
        program.chmod(0o755)
        yield {"program": str(program), "user": "nobody", "group": "nogroup", "extra_groups": [], "cwd": "/"}


def test_directory_without_read_permission(as_nobody, good):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        closed = Path(folder) / "closed"
        closed.mkdir()
        shutil.copy(good, closed / "a.parquet")
        closed.chmod(0)
        try:
            query = f"SELECT * FROM '{closed}/'"
            # the query's own file would not be readable to nobody either
            ran = binary.run("sql", query, **as_nobody)
        finally:
            closed.chmod(stat.S_IRWXU)
    assert ran.code == FAILED, ran.err
    assert ran.out == "" and not binary.PANIC.search(ran.err)
    assert str(closed) in ran.err and re.search("permission", ran.err, re.IGNORECASE), ran.err


@pytest.mark.parametrize("ending", ["parquet", "json", "arrow"])
def test_empty_file(tmp_path, ending):
    path = tmp_path / f"empty.{ending}"
    path.touch()
    refused(f"SELECT * FROM '{path}'", FAILED, re.escape(str(path)), "empty|0 bytes")


def test_empty_file_among_others(tmp_path, good):
    folder = tmp_path / "table"
    folder.mkdir()
    shutil.copy(good, folder / "a.parquet")
    (folder / "b.parquet").touch()
    refused(f"SELECT sum(id) FROM '{folder}/'", FAILED, re.escape("b.parquet"), "empty|0 bytes")


def overwrite(path, at, garbage):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(garbage)


def test_corrupt_footer(good):
    size = good.stat().st_size
    overwrite(good, size - 120, b"\xff" * 100)
    refused(f"SELECT * FROM '{good}'", FAILED, re.escape(str(good)), "footer|metadata|corrupt|parquet")


def test_file_that_is_no_parquet(tmp_path):
    path = tmp_path / "text.parquet"
    path.write_text("this is a text, and a fairly long one at that\n" * 10)
    refused(f"SELECT * FROM '{path}'", FAILED, re.escape(str(path)), "footer|magic|not a parquet")


def test_truncated_file(good):
    os.truncate(good, good.stat().st_size // 2)
    refused(f"SELECT * FROM '{good}'", FAILED, re.escape(str(good)), "footer|magic|truncated|not a parquet")


def test_corrupt_page_in_the_middle(good, duck):
    offset = duck.execute(
        f"SELECT data_page_offset FROM parquet_metadata('{good}') WHERE row_group_id = 1 AND path_in_schema = 'name'"
    ).fetchone()[0]
    overwrite(good, offset, b"\xff" * 64)
    # a maximum of the name itself would come from the footer
    refused(
        f"SELECT max(length(name)) FROM '{good}'",
        FAILED,
        re.escape(str(good)),
        "row group 1|row group|page|offset|column",
    )
    # the rest of the file is sound, and says so
    found = binary.result(binary.sql(f"SELECT sum(id) FROM '{good}'"))
    assert found.rows == [[6143 * 6144 // 2]]


def test_csv_line_with_too_many_fields(tmp_path):
    path = tmp_path / "wide.csv"
    lines = ["a,b"] + [f"{i},{i}" for i in range(5000)]
    lines[4321] = "1,2,3"
    path.write_text("\n".join(lines) + "\n")
    # the header is line 1 of the file
    refused(f"SELECT sum(a) FROM '{path}'", FAILED, re.escape(str(path)), r"line:? 43(21|22)", "fields|columns")


def test_files_of_one_table_with_different_schemas(tmp_path, duck):
    folder = tmp_path / "table"
    folder.mkdir()
    duck.execute(f"COPY (SELECT 1 AS x, 'a' AS y) TO '{folder}/a.parquet'")
    duck.execute(f"COPY (SELECT 'text' AS x, 'a' AS y) TO '{folder}/b.parquet'")
    refused(f"SELECT sum(x) FROM '{folder}/'", FAILED, r"[ab]\.parquet", "schema|type", r"\bx\b")


def test_unknown_column_names_the_nearest(good):
    refused(f"SELECT amuont FROM '{good}'", USAGE, "amuont", r"\bamount\b")


def test_unknown_table_names_the_nearest(good):
    refused("SELECT * FROM oders", USAGE, "oders", r"\borders\b", options=("--table", f"orders={good}"))


def test_sql_that_does_not_parse_says_where():
    refused("SELECT 1,\n  FROM WHERE 2", USAGE, r"line:? 2", r"column:? \d+")


def test_option_values_that_are_wrong(good):
    for options in (["--memory", "much"], ["--cores", "0"], ["--disk-rate", "fast"], ["--table", "nameonly"]):
        ran = binary.run("sql", "SELECT 1", *options)
        assert ran.code == USAGE and ran.out == "", f"{options}: {ran.code} {ran.err}"
        assert options[0] in ran.err and not binary.PANIC.search(ran.err), ran.err


def test_s3_bucket_that_refuses():
    with s3.refusing() as (environment, asked):
        ran = binary.sql("SELECT count(*) FROM 's3://closed/table/a.parquet'", env=os.environ | environment)
    assert asked, "the bucket was never asked"
    assert len(asked) <= 4, f"a refusal was retried: {asked}"
    assert ran.code == FAILED and ran.out == "" and not binary.PANIC.search(ran.err), ran.err
    assert "s3://closed" in ran.err and re.search("denied|403|refused|forbidden", ran.err, re.IGNORECASE), ran.err
    assert re.search("AWS_|credential|permission", ran.err), "no way out is named"


def test_memory_below_what_the_query_needs(tmp_path, duck):
    path = tmp_path / "big.parquet"
    duck.execute(f"COPY (SELECT hash(i) AS k, i AS v FROM range(2000000) r(i)) TO '{path}'")
    refused(
        f"SELECT k, sum(v) AS s FROM '{path}' GROUP BY k ORDER BY s",
        FAILED,
        "memory",
        "--memory",
        options=("--memory", "8MiB"),
    )


def test_a_failed_query_leaves_a_trace_that_says_why(tmp_path, good, duck):
    offset = duck.execute(f"SELECT max(data_page_offset) FROM parquet_metadata('{good}')").fetchone()[0]
    overwrite(good, offset, b"\xff" * 64)
    kept = tmp_path / "failed.trace"
    ran = binary.sql(f"SELECT max(length(name)), sum(id), sum(amount) FROM '{good}'", None, "--trace", kept)
    assert ran.code == FAILED, ran.err
    analysis = binary.run("analyze", "--json", kept).check().json()
    assert analysis["format"] == "pellucid.analysis/1" and analysis["source"]["complete"] is True


def test_output_that_cannot_be_written(tmp_path, good):
    target = good / "out.parquet"  # in a folder that is a file
    ran = binary.run("sql", f"SELECT * FROM '{good}'", "-o", target)
    assert ran.code == FAILED and str(target.parent) in ran.err and not binary.PANIC.search(ran.err), ran.err
    ran = binary.run("sql", f"SELECT * FROM '{good}'", "-o", tmp_path / "out.xyz")
    assert ran.code == USAGE and re.search(r"\.parquet", ran.err), ran.err
    assert sorted(os.listdir(tmp_path)) == ["good.parquet"]


def test_help_has_an_example_and_no_command_is_usage():
    for command in ("sql", "analyze", "generate", "demo"):
        ran = binary.run(command, "--help").check()
        assert re.search(rf"pellucid {command}\b", ran.out), f"{command}: no example"
    assert binary.run("no-such-command").code == USAGE
    assert subprocess.run([binary.binary()], capture_output=True, stdin=subprocess.DEVNULL).returncode in (0, USAGE)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "it is empty"),
        (bz2.compress(b"{}"), "compressed with bzip2; decompress it first"),
        (b"# notes\n", "neither a Pellucid trace nor a Spark event log: it begins with `# notes"),
    ],
)
def test_files_that_are_no_traces_are_said_to_be_what_they_are(tmp_path, content, said):
    path = tmp_path / "input"
    path.write_bytes(content)
    ran = binary.run("analyze", path)
    assert ran.code == FAILED and said in ran.err and str(path) in ran.err, ran.err


def test_a_log_with_a_byte_order_mark_is_read_and_one_cut_at_its_start_says_so(tmp_path):
    whole = (binary.ROOT / "tests" / "event_logs" / "spark-4.3.0" / "own-none").read_bytes()
    marked, cut = tmp_path / "marked", tmp_path / "cut.zstd"
    marked.write_bytes(b"\xef\xbb\xbf" + whole)
    ran = binary.run("analyze", marked, "--json").check().json()
    assert ran["source"]["kind"] == "spark-event-log" and ran["source"]["tasks"] > 0
    cut.write_bytes(zstandard.compress(whole)[:40])
    ran = binary.run("analyze", cut)
    assert ran.code == FAILED and "cut" in ran.err and str(cut) in ran.err, ran.err
