"""Bad input gets a message with path, place and remedy, the right exit code, and leaves no files.

Exit codes: 2 if the request itself is wrong (SQL that does not parse, an unknown column, an option's value), 1 if a valid
request failed.
"""

import bz2
import json
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from random import Random

import pytest
import zstandard

from harness import binary, traces
from harness.binary import FAILED, USAGE
from harness.event_logs import events
from harness.sql import oracle
from harness.stores import s3
from harness.terminal import on_terminal


@pytest.fixture
def duck():
    """A DuckDB connection, to write inputs."""
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


def refused(query, code, *patterns, options=(), program=None, **settings):
    """Runs the query twice, to the screen and to a file, and asserts that both fail properly.

    The message must match each of `patterns`. Returns the message.
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
        assert ran.out == "", f"output despite the error: {ran.out[:200]}"
        for pattern in patterns:
            assert re.search(pattern, ran.err, re.IGNORECASE), f"{pattern!r} is not in: {ran.err}"
    return plain.err


def test_missing_file_is_named(tmp_path):
    path = tmp_path / "nowhere.parquet"
    refused(
        f"SELECT * FROM '{path}'",
        FAILED,
        re.escape(str(path)),
        "no such file|not found|does not exist|no files?",
        "check",
    )


def test_missing_file_of_registered_table_is_named(tmp_path):
    path = tmp_path / "nowhere.parquet"
    refused("SELECT * FROM t", FAILED, re.escape(str(path)), "check", options=("--table", f"t={path}"))


def test_glob_without_matches_is_named(tmp_path):
    refused(f"SELECT * FROM '{tmp_path}/*.parquet'", FAILED, re.escape(f"{tmp_path}/*.parquet"), "match|no .*file")


@pytest.fixture
def unprivileged():
    """Settings that run the binary as the user `nobody`, from a readable folder."""
    if os.geteuid() != 0:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = Path(folder) / "pellucid"
        shutil.copy(binary.binary(), program)
        program.chmod(0o755)
        yield {"program": str(program), "user": "nobody", "group": "nogroup", "extra_groups": [], "cwd": "/"}


def test_unreadable_directory_is_named(unprivileged, good):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        closed = Path(folder) / "closed"
        closed.mkdir()
        shutil.copy(good, closed / "a.parquet")
        closed.chmod(0)
        try:
            query = f"SELECT * FROM '{closed}/'"
            # `nobody` could not read a query file either.
            ran = binary.run("sql", query, **unprivileged)
        finally:
            closed.chmod(stat.S_IRWXU)
    assert ran.code == FAILED, ran.err
    assert ran.out == "" and not binary.PANIC.search(ran.err)
    assert str(closed) in ran.err and re.search("permission", ran.err, re.IGNORECASE), ran.err


@pytest.mark.parametrize("ending", ["parquet", "json", "arrow"])
def test_empty_file_is_named(tmp_path, ending):
    path = tmp_path / f"empty.{ending}"
    path.touch()
    refused(f"SELECT * FROM '{path}'", FAILED, re.escape(str(path)), "empty|0 bytes")


def test_empty_file_among_others_is_named(tmp_path, good):
    folder = tmp_path / "table"
    folder.mkdir()
    shutil.copy(good, folder / "a.parquet")
    (folder / "b.parquet").touch()
    refused(f"SELECT sum(id) FROM '{folder}/'", FAILED, re.escape("b.parquet"), "empty|0 bytes")


def overwrite(path, at, garbage):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(garbage)


def test_corrupt_footer_is_reported(good):
    size = good.stat().st_size
    overwrite(good, size - 120, b"\xff" * 100)
    refused(f"SELECT * FROM '{good}'", FAILED, re.escape(str(good)), "footer|metadata|corrupt|parquet")


def test_text_file_named_parquet_is_refused(tmp_path):
    path = tmp_path / "text.parquet"
    path.write_text("this is a text, and a fairly long one at that\n" * 10)
    refused(f"SELECT * FROM '{path}'", FAILED, re.escape(str(path)), "footer|magic|not a parquet")


def test_truncated_file_is_refused(good):
    os.truncate(good, good.stat().st_size // 2)
    refused(f"SELECT * FROM '{good}'", FAILED, re.escape(str(good)), "footer|magic|truncated|not a parquet")


def test_corrupt_page_is_located(good, duck):
    offset = duck.execute(f"SELECT data_page_offset FROM parquet_metadata('{good}') WHERE row_group_id = 1 AND path_in_schema = 'name'").fetchone()[0]
    overwrite(good, offset, b"\xff" * 64)
    # The maximum of the name itself would come from the footer.
    refused(
        f"SELECT max(length(name)) FROM '{good}'",
        FAILED,
        re.escape(str(good)),
        "row group 1|row group|page|offset|column",
    )
    # The rest of the file can still be read.
    found = binary.result(binary.sql(f"SELECT sum(id) FROM '{good}'"))
    assert found.rows == [[6143 * 6144 // 2]]


def test_csv_line_with_too_many_fields_is_located(tmp_path):
    path = tmp_path / "wide.csv"
    lines = ["a,b"] + [f"{i},{i}" for i in range(5000)]
    lines[4321] = "1,2,3"
    path.write_text("\n".join(lines) + "\n")
    # The header is line 1 of the file.
    refused(f"SELECT sum(a) FROM '{path}'", FAILED, re.escape(str(path)), r"line:? 43(21|22)", "fields|columns")


def test_files_with_conflicting_schemas_are_refused(tmp_path, duck):
    folder = tmp_path / "table"
    folder.mkdir()
    duck.execute(f"COPY (SELECT 1 AS x, 'a' AS y) TO '{folder}/a.parquet'")
    duck.execute(f"COPY (SELECT 'text' AS x, 'a' AS y) TO '{folder}/b.parquet'")
    refused(f"SELECT sum(x) FROM '{folder}/'", FAILED, r"[ab]\.parquet", "schema|type", r"\bx\b")


def test_unknown_column_suggests_nearest_name(good):
    refused(f"SELECT amuont FROM '{good}'", USAGE, "amuont", r"\bamount\b")


def test_unknown_table_suggests_nearest_name(good):
    refused("SELECT * FROM oders", USAGE, "oders", r"\borders\b", options=("--table", f"orders={good}"))


def test_syntax_error_is_located():
    refused("SELECT 1,\n  FROM WHERE 2", USAGE, r"line:? 2", r"column:? \d+")


def test_invalid_option_value_is_a_usage_error(good):
    for options in (["--memory", "much"], ["--cores", "0"], ["--disk-rate", "fast"], ["--table", "nameonly"]):
        ran = binary.run("sql", "SELECT 1", *options)
        assert ran.code == USAGE and ran.out == "", f"{options}: {ran.code} {ran.err}"
        assert options[0] in ran.err and not binary.PANIC.search(ran.err), ran.err


def test_s3_denial_is_not_retried_and_names_remedy():
    with s3.denying() as (environment, requests):
        ran = binary.sql("SELECT count(*) FROM 's3://closed/table/a.parquet'", env=os.environ | environment)
    assert requests, "the bucket got no requests"
    assert len(requests) <= 4, f"a denial was retried: {requests}"
    assert ran.code == FAILED and ran.out == "" and not binary.PANIC.search(ran.err), ran.err
    assert "s3://closed" in ran.err and re.search("denied|403|refused|forbidden", ran.err, re.IGNORECASE), ran.err
    assert re.search("AWS_|credential|permission", ran.err), "the message names no remedy"


def test_insufficient_memory_budget_names_its_option(tmp_path, duck):
    path = tmp_path / "big.parquet"
    duck.execute(f"COPY (SELECT hash(i) AS k, i AS v FROM range(2000000) r(i)) TO '{path}'")
    refused(
        f"SELECT k, sum(v) AS s FROM '{path}' GROUP BY k ORDER BY s",
        FAILED,
        "not enough memory: the query needs [0-9.]+ MB more for (groups|sort|exchange)",
        "it takes at least [0-9.]+ MB; raise --memory",
        options=("--memory", "8MiB"),
    )


def test_failed_query_leaves_a_readable_trace(tmp_path, good, duck):
    offset = duck.execute(f"SELECT max(data_page_offset) FROM parquet_metadata('{good}')").fetchone()[0]
    overwrite(good, offset, b"\xff" * 64)
    path = tmp_path / "failed.trace"
    ran = binary.sql(f"SELECT max(length(name)), sum(id), sum(amount) FROM '{good}'", None, "--trace", path)
    assert ran.code == FAILED, ran.err
    analysis = binary.run("analyze", "--json", path).check().json()
    assert analysis["format"] == "pellucid.analysis/1" and analysis["source"]["complete"] is True


def test_trace_with_contradicting_records_is_reported_on_request(tmp_path):
    path = tmp_path / "count.trace"

    def violations(*options):
        analysis = binary.run("analyze", "--json", *options, path).check().json()
        return [warning for warning in analysis["source"]["warnings"] if warning.startswith("invalid trace: ")]

    binary.sql("SELECT sum(value) FROM range(100000)", None, "--trace", path).check()
    assert violations("--check") == []
    records = [record | {"submitted_ns": 0} if record["t"] == "stage" else record for record in traces.lines(path)]
    path.write_bytes(zstandard.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    assert "invalid trace: stage 0: a stage is not submitted before its job" in violations("--check")
    assert violations() == []


def test_unwritable_output_is_named(tmp_path, good):
    target = good / "out.parquet"  # in a folder that is a file
    ran = binary.run("sql", f"SELECT * FROM '{good}'", "-o", target)
    assert ran.code == FAILED and str(target.parent) in ran.err and not binary.PANIC.search(ran.err), ran.err
    ran = binary.run("sql", f"SELECT * FROM '{good}'", "-o", tmp_path / "out.xyz")
    assert ran.code == USAGE and re.search(r"\.parquet", ran.err), ran.err
    assert sorted(os.listdir(tmp_path)) == ["good.parquet"]


def test_help_has_an_example_and_unknown_command_is_a_usage_error():
    for command in ("sql", "analyze", "generate", "demo"):
        ran = binary.run(command, "--help").check()
        assert re.search(rf"pellucid {command}\b", ran.out), f"{command}: no example"
    assert binary.run("no-such-command").code == USAGE
    # Without a terminal, statements come from standard input, which is empty.
    bare = binary.run()
    assert bare.code == USAGE and not bare.out and "no statement to run" in bare.err, bare


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"", "it is empty"),
        (bz2.compress(b"{}"), "compressed with bzip2; decompress it first"),
        (b"# notes\n", "neither a Pellucid trace nor a Spark event log: it begins with `# notes"),
    ],
)
def test_unreadable_analyze_input_is_identified(tmp_path, content, expected):
    path = tmp_path / "input"
    path.write_bytes(content)
    ran = binary.run("analyze", path)
    assert ran.code == FAILED and expected in ran.err and str(path) in ran.err, ran.err


def test_log_with_byte_order_mark_is_read_and_truncated_log_is_reported(tmp_path):
    whole = (binary.ROOT / "tests" / "event_logs" / "spark-4.3.0" / "own-none").read_bytes()
    marked, cut = tmp_path / "marked", tmp_path / "cut.zstd"
    marked.write_bytes(b"\xef\xbb\xbf" + whole)
    ran = binary.run("analyze", marked, "--json").check().json()
    assert ran["source"]["kind"] == "spark-event-log" and ran["source"]["tasks"] > 0
    cut.write_bytes(zstandard.compress(whole)[:40])
    ran = binary.run("analyze", cut)
    assert ran.code == FAILED and "cut" in ran.err and str(cut) in ran.err, ran.err


def generated(terms):
    """Statements that nest as many operators as they have terms, with their answers over `t(a)` of 0 to 99."""
    return [
        ("SELECT count(*) FROM t WHERE " + " OR ".join(f"a = {term}" for term in range(terms)), 100),
        (f"SELECT sum({' + '.join(['a'] * terms)}) FROM t", terms * 4950),
        ("SELECT sum(x) FROM (" + " UNION ALL ".join(f"SELECT {term} AS x" for term in range(terms)) + ")",
         terms * (terms - 1) // 2),
    ]  # fmt: skip


def run_generated(tmp_path, statement):
    table, text = tmp_path / "t.csv", tmp_path / "generated.sql"
    table.write_text("a\n" + "".join(f"{number}\n" for number in range(100)))
    text.write_text(statement)
    return binary.run("sql", "-f", text, "--table", f"t={table}", "--format", "csv")


# The time to plan a sum of terms grows with their cube, since each checked operator asks for the types below it.
@pytest.mark.parametrize("kind, terms", [(0, 2000), (1, 400), (2, 3000)])
def test_generated_sql_answers_when_it_nests_thousands_of_operators(tmp_path, kind, terms):
    statement, answer = generated(terms)[kind]
    ran = run_generated(tmp_path, statement).check()
    assert ran.out.split()[-1] == str(answer), ran.out


@pytest.mark.parametrize("kind", range(3))
def test_generated_sql_is_refused_when_it_nests_too_deep(tmp_path, kind):
    ran = run_generated(tmp_path, generated(20_000)[kind][0])
    assert ran.code == USAGE and ran.out == "", ran.err[-1000:]
    assert re.search(r"nests more than 10000 operators at line 1, column \d+; write x IN", ran.err), ran.err[-1000:]


def arrow_file(path, stream, codec):
    """Writes 5 000 rows as Arrow IPC."""
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"id": list(range(5000)), "name": [f"name {row % 7}" for row in range(5000)]})
    options = pyarrow.ipc.IpcWriteOptions(compression=codec)
    new = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=1000)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("codec, magic", [("lz4", b"\x04\x22\x4d\x18"), ("zstd", b"\x28\xb5\x2f\xfd")])
def test_arrow_file_is_damaged_when_a_length_lies(tmp_path, stream, codec, magic):
    path = tmp_path / "table.arrow"
    arrow_file(path, stream, codec)
    query = f"SELECT sum(id), max(name) FROM '{path}'"
    assert "12497500" in binary.sql(query, None).check().out
    overwrite(path, path.read_bytes().index(magic) - 8, (1 << 60).to_bytes(8, "little"))
    refused(query, FAILED, re.escape(f"cannot read {path}: the file is damaged (it claims 1152921504606846976 bytes"))


@pytest.mark.parametrize("stream", [False, True])
def test_damaged_arrow_file_never_ends_the_process(tmp_path, stream):
    good, path, random = tmp_path / "good.arrow", tmp_path / "bad.arrow", Random(30)
    arrow_file(good, stream, "lz4")
    content, failures = good.read_bytes(), 0
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(len(damaged))] = random.choice((0, 0x7F, 0xFF, random.randrange(256)))
        path.write_bytes(damaged)
        ran = binary.run("sql", f"SELECT count(id), max(name) FROM '{path}'", "--format", "csv")
        assert ran.code in (0, FAILED, USAGE), f"exit {ran.code}: {ran.err}"
        assert "please report" not in ran.err, ran.err
        if ran.code == FAILED:
            failures += 1
            assert "bad.arrow" in ran.err, ran.err
    assert failures > 5, failures


def test_endless_device_is_refused_when_analyzed(tmp_path):
    ran = binary.run("analyze", "/dev/zero", env={**os.environ, "TMPDIR": str(tmp_path)})
    assert ran.code == FAILED and "/dev/zero" in ran.err, ran.err
    assert "neither a Pellucid trace nor a Spark event log" in ran.err, ran.err
    assert os.listdir(tmp_path) == []


def test_small_log_is_refused_when_it_unpacks_to_millions_of_jobs(tmp_path):
    start = b'{"Event":"SparkListenerJobStart","Job ID":1,"Submission Time":1700000001000,"Stage IDs":[1]}\n'
    path = tmp_path / "app.zstd"
    path.write_bytes(zstandard.compress(start * 100_000) * 20)
    assert path.stat().st_size < 1 << 20
    ran = binary.run("analyze", path)
    assert ran.code == FAILED and str(path) in ran.err, ran.err
    assert re.search(r"its records need more than \d+ MiB of memory, the limit for an input of", ran.err), ran.err


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_output_is_refused_with_path_and_cause_when_its_folder_is_read_only(unprivileged, ending):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        target = Path(folder) / f"out.{ending}"
        ran = binary.run("sql", "SELECT 1 AS one", "-o", target, **unprivileged)
        assert ran.code == FAILED and ran.out == "" and os.listdir(folder) == [], ran.err
    assert f"{target}: Permission denied" in ran.err and "DataFusion" not in ran.err, ran.err


# Clears the screen, begins a sequence in one character, and reverses what follows.
HOSTILE = "a\x1b[2Jb\x9b31mc\u202ed\u2067e"
# Everything that controls a terminal, other than line breaks, tabs, Pellucid's colours and its progress bar.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
OWN = re.compile("\x1b\\[[0-9;]*[mAK]|\r")


def hostile_log(folder):
    """An event log with control characters in the names that its author chooses."""
    lines = [json.loads(line) for line in events("app-1")]
    for line in lines:
        if "Stage Info" in line:
            line["Stage Info"]["Stage Name"] = f"{HOSTILE} at {HOSTILE}.py:7"
        for key in ("App Name", "App ID", "User"):
            if key in line:
                line[key] = HOSTILE
        if "Executor Info" in line:
            line["Executor Info"]["Host"] = HOSTILE
    settings = {"spark.redaction.regex": f"(?<!{HOSTILE})x", "spark.local.dir": HOSTILE}
    lines.insert(1, {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": settings})
    path = folder / "app-1"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def hostile_trace(folder, edit=lambda record: record):
    """The trace of a query with control characters in its names, labels and sources of capacity."""
    path = folder / "hostile.trace"
    binary.sql("SELECT sum(value) FROM range(100000)", None, "--trace", path).check()
    records = list(traces.lines(path))
    for record in records:
        if record["t"] in ("machine", "resource", "job", "stage"):
            record["name"] = f"{record['name']} {HOSTILE}"
        if "capacity_from" in record:
            record["capacity_from"] = HOSTILE
        if record["t"] == "header":
            record["labels"] = [HOSTILE]
    records = [edit(record) for record in records]
    path.write_bytes(zstandard.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    return path


def newer(record):
    """A record of a newer minor version."""
    if record["t"] == "header":
        return record | {"format": "pellucid.trace/1.99"}
    return record | {"t": HOSTILE} if record["t"] == "utilization_sample" else record


def hostile_csv(folder):
    path = folder / "hostile.csv"
    rows = [f"{i / 7},{i % 3},{i % 2}" for i in range(40)]
    path.write_text("\n".join([f"{HOSTILE},x,y", *rows]) + "\n")
    return path


def hostile_composition(folder):
    path = folder / "hostile.toml"
    text = (binary.ROOT / "crates" / "storage" / "scenarios" / "gc.toml").read_text()
    name = "".join(f"\\u{ord(c):04x}" for c in HOSTILE)
    path.write_text(re.sub('^name = ".*"', lambda _: f'name = "{name}"', text, count=1, flags=re.M))
    return path


def hostile_conf(folder):
    path = folder / "spark-defaults.conf"
    path.write_text(f"spark.hadoop.fs.defaultFS s3a://bucket\nspark.hadoop.fs.s3a.committer.name {HOSTILE}\n", encoding="utf-8")
    return path


def of_format(record):
    return record | {"format": HOSTILE} if record["t"] == "header" else record


@pytest.mark.parametrize(
    "command",
    [
        lambda folder: ("analyze", hostile_log(folder)),
        lambda folder: ("analyze", "--json", hostile_log(folder)),
        lambda folder: ("analyze", hostile_trace(folder)),
        lambda folder: ("analyze", hostile_trace(folder, newer)),
        lambda folder: ("analyze", hostile_trace(folder, of_format)),
        lambda folder: ("analyze", folder / HOSTILE),
        lambda folder: ("whatif", hostile_log(folder)),
        lambda folder: ("whatif", hostile_trace(folder)),
        lambda folder: ("compare", hostile_trace(folder), folder / "hostile.trace"),
        lambda folder: ("storage", "rank", hostile_composition(folder)),
        lambda folder: ("storage", "doctor", hostile_conf(folder)),
        lambda folder: ("iterate", "logistic-regression", hostile_csv(folder), "--label", "y", "--iterations", "3"),
        lambda folder: ("iterate", "kmeans", hostile_csv(folder), "--k", "2"),
        lambda folder: ("sql", f"SELECT nowhere FROM '{hostile_csv(folder)}'"),
        *(
            lambda folder, shown=shown: ("sql", f"SELECT *, '{HOSTILE}' AS z FROM '{hostile_csv(folder)}' LIMIT 3", *shown)
            for shown in ([], ["--format", "csv"], ["--format", "markdown"], ["--format", "json"], ["--json"])
        ),
    ],
)
def test_terminal_gets_no_control_characters_when_input_holds_them(tmp_path, command):
    shown = on_terminal(100, *command(tmp_path))
    assert shown and not binary.PANIC.search(shown), shown
    found = UNSAFE.search(OWN.sub("", shown))
    assert not found, f"{found[0]!r} in {shown!r}"


def test_csv_keeps_control_characters_when_it_goes_to_a_pipe(tmp_path):
    ran = binary.run("sql", f"SELECT * FROM '{hostile_csv(tmp_path)}' LIMIT 1", "--format", "csv").check()
    assert HOSTILE in ran.out, ran.out
