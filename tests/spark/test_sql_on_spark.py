"""`pellucid sql --on spark` and `pellucid spark` on real sessions, against the answers of the local engine."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from harness import binary, spark

# Separate executors, as on a cluster, on this machine.
CLUSTER = "spark=local-cluster[1,2,1024]"
SMALL = ("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.executor.memory=700m")
needs_spark = pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}")
# The plugin's jar, if Maven has built it (section `spark` of tests/run).
JAR = binary.ROOT / "spark-plugin" / "target" / "pellucid-spark.jar"

# Statements that both dialects share, that sqlglot must translate, and whose meaning must not change silently.
STATEMENTS = {
    "as it is": "SELECT k, count(*) AS n, sum(m) AS m, min(d) AS d FROM t GROUP BY k ORDER BY k NULLS FIRST",
    "two jobs": "SELECT t.k, count(*) AS n FROM t JOIN u ON t.k = u.k GROUP BY t.k ORDER BY 1",
    "nulls sort last": "SELECT k FROM t WHERE id < 40 ORDER BY k, id LIMIT 37",
    "whole division": "SELECT id, id / 7 AS q, (id + 1) / 2.0 AS r FROM t WHERE id < 20 ORDER BY id",
    "quoted names": 'SELECT "id" AS "the id" FROM t WHERE id = 3',
    "a path": "SELECT count(*) AS n, sum(id) AS s FROM '{folder}/t.parquet'",
    "a text file": "SELECT sum(id) AS s, max(name) AS name FROM '{folder}/words.csv'",
    "casts and dates": "SELECT count(*) AS n FROM t WHERE d >= DATE '2020-01-31' - INTERVAL '3' DAY AND id::VARCHAR LIKE '1%'",
    "division as an order": "SELECT id / 700 AS q, sum(id) / count(*) AS r FROM t GROUP BY id / 700 ORDER BY id / 700, sum(id) / count(*)",
    "nothing": "SELECT id FROM t WHERE id < 0",
    "functions": "SELECT substr('hello', -1, 3) AS s, 5 ^ 3 AS x, log(100) AS l, left('abc', -1) AS a, avg(m) AS m FROM t",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder of the tables."""
    folder = tmp_path_factory.mktemp("data")
    connection = duckdb.connect()
    connection.execute(
        f"""COPY (SELECT i::BIGINT AS id, CASE WHEN i % 13 = 0 THEN NULL ELSE i % 11 END::INT AS k,
        ((i * 37 % 1000) / 100)::DECIMAL(10, 2) AS m, DATE '2020-01-01' + (i % 40)::INT AS d
        FROM range(5000) r(i)) TO '{folder}/t.parquet'"""
    )
    connection.execute(f"COPY (SELECT i::INT AS k FROM range(5) r(i)) TO '{folder}/u.parquet'")
    connection.execute(f"COPY (SELECT i AS id, 'wörd, ' || i AS name FROM range(30) r(i)) TO '{folder}/words.csv' (HEADER)")
    return folder


def tables(folder: Path) -> list[str]:
    """Returns the options for tables `t` and `u`."""
    return ["--table", f"t={folder}/t.parquet", "--table", f"u={folder}/u.parquet"]


@pytest.fixture(scope="module")
def on_spark(folder, tmp_path_factory):
    """All statements in one session on executors: their documents, the trace, and the finished process."""
    trace = tmp_path_factory.mktemp("trace") / "spark.log"
    text = folder / "all.sql"
    text.write_text(";\n".join(statement.format(folder=folder) for statement in STATEMENTS.values()))
    more = {"PELLUCID_SPARK_JAR": str(JAR)} if JAR.exists() else {}
    command = ["sql", "-f", text, *tables(folder), "--on", CLUSTER, *SMALL, "--trace", trace, "--json"]
    ran = binary.run(*command, env=spark.environment(**more)).check()
    documents = json.loads(ran.out)["results"]
    return dict(zip(STATEMENTS, documents, strict=True)), trace, ran


@needs_spark
@pytest.mark.parametrize("name", STATEMENTS)
def test_answers_match_the_local_engine(name, folder, on_spark):
    documents, _, _ = on_spark
    here = binary.run("sql", STATEMENTS[name].format(folder=folder), *tables(folder), "--json").check()
    expected = json.loads(here.out)
    got = documents[name]

    def plain(rows):
        """Converts decimals to floats: their scales differ between engines."""
        number = lambda value: float(value) if isinstance(value, (int, float)) or is_number(value) else value
        return [[number(value) for value in row] for row in rows]

    assert [c["name"] for c in got["columns"]] == [c["name"] for c in expected["columns"]]
    assert plain(got["rows"]) == plain(expected["rows"])
    assert got["row_count"] == expected["row_count"]


def is_number(value) -> bool:
    """Returns whether a value is a number or a number's text."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


@needs_spark
def test_only_statements_that_differ_are_translated(on_spark):
    _, _, ran = on_spark
    notes = [line for line in ran.err.splitlines() if line.startswith("translated for Spark: ")]
    names = (
        "two jobs",
        "nulls sort last",
        "whole division",
        "quoted names",
        "a path",
        "a text file",
        "casts and dates",
        "division as an order",
        "functions",
    )
    texts = dict(zip(names, notes, strict=True))
    assert "ORDER BY k NULLS LAST" in texts["nulls sort last"]
    assert "CAST(id AS DOUBLE) / CAST(7 AS DOUBLE)" in texts["whole division"] and "(id + 1) / 2.0" in texts["whole division"]


@needs_spark
def test_every_statement_has_its_own_job(on_spark):
    documents, trace, _ = on_spark
    for name, document in documents.items():
        job = document["job"]
        assert job["outcome"] == "ok" and job["duration_ms"] > 0, name
        assert document["trace"] == str(trace)
    joined = documents["two jobs"]["job"]
    assert len(joined["stages"]) >= 2 and (joined["bottleneck"] is None or joined["bottleneck"]["kind"] in ("cpu", "disk", "network"))
    assert joined["blocked_ms"]["gc"] is not None


@needs_spark
def test_trace_is_sparks_event_log(on_spark):
    documents, trace, _ = on_spark
    analysis = binary.run("analyze", trace, "--json").check().json()
    assert analysis["source"]["kind"] == "spark-event-log" and analysis["source"]["complete"]
    assert analysis["source"]["sql_executions"] >= len(STATEMENTS)
    what_if = binary.run("whatif", trace, "--set", "executor.cores=x2", "--json").check().json()
    assert what_if["prediction"]["duration_ms"] > 0


@needs_spark
@pytest.mark.skipif(not JAR.exists(), reason=f"the plugin is not built: {JAR} (make plugin)")
def test_plugin_is_loaded(on_spark):
    _, trace, _ = on_spark
    analysis = binary.run("analyze", trace, "--json").check().json()
    assert analysis["concurrency"], "the executors reported no concurrency"
    assert {step["concurrency"] for tuned in analysis["concurrency"] for step in tuned["steps"]} <= {1, 2}


@needs_spark
def test_rows_are_written_to_a_file_with_a_summary(folder, tmp_path):
    target = tmp_path / "out.parquet"
    command = ["sql", "SELECT k, count(*) AS n FROM t GROUP BY k", *tables(folder), "--on", "spark=local[1]", *SMALL]
    here = tmp_path / "here"
    here.mkdir()
    ran = binary.run(*command, "-o", target, env=spark.environment(), cwd=here).check()
    assert duckdb.sql(f"SELECT count(*), sum(n) FROM '{target}'").fetchall() == [(12, 5000)]
    assert "12 rows in " in ran.err and " · tasks mostly " in ran.err and f"written to {target}" in ran.err
    assert ran.out == ""
    assert not list(here.iterdir()), "Spark must keep its warehouse and metastore elsewhere"


@needs_spark
def test_unwritable_trace_does_not_lose_rows(tmp_path):
    command = ["sql", "SELECT 7 AS seven", "--on", "spark=local[1]", "--trace", tmp_path / "none" / "x.log"]
    ran = binary.run(*command, "-o", tmp_path / "out.csv", "--json", env=spark.environment())
    assert ran.code == 1 and f"cannot write {tmp_path}/none/x.log" in ran.err, ran.err
    assert (tmp_path / "out.csv").read_text() == "seven\n7\n"
    document = json.loads(ran.out)
    assert document["row_count"] == 1 and document["trace"] is None


@needs_spark
def test_readme_examples_run_on_a_cluster(folder, tmp_path):
    """Runs them with another master."""
    (tmp_path / "data").mkdir()
    for part in range(2):
        (tmp_path / "data" / f"{part}.parquet").symlink_to(folder / "t.parquet")
    found = spark.examples("sql")
    assert found
    for example in found:
        command = [CLUSTER if word.startswith("spark=") else word for word in example]
        ran = binary.run(*command, *SMALL, env=spark.environment(), cwd=tmp_path).check()
        assert "10000" in ran.out and " · tasks mostly " in ran.err, ran.err
        trace = tmp_path / command[command.index("--trace") + 1]
        assert binary.run("analyze", trace, "--json").check().json()["source"]["complete"]


@needs_spark
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT id FRM t WHERE", r"line 1, column \d+: .* \(Spark says: .*PARSE_SYNTAX_ERROR"),
        pytest.param(
            "SELECT nope FROM t ORDER BY 1",
            r"UNRESOLVED_COLUMN.*nope.*as translated: SELECT nope",
            marks=pytest.mark.full,
        ),
    ],
)
def test_syntax_error_is_located(statement, message, folder):
    ran = binary.run("sql", statement, *tables(folder), "--on", "spark=local[1]", env=spark.environment())
    assert ran.code == 2, ran.err
    assert re.search(message, ran.err), ran.err
    assert "Traceback" not in ran.err and not binary.PANIC.search(ran.err)


@needs_spark
@pytest.mark.full
def test_missing_sqlglot_warns_and_refuses_translation(folder, tmp_path):
    """Makes the import of sqlglot fail."""
    (tmp_path / "sqlglot.py").write_text("raise ImportError('not here')")
    lacking = spark.environment(PYTHONPATH=str(tmp_path))
    on = ["--on", "spark=local[1]", *tables(folder)]
    ran = binary.run("sql", "SELECT count(*) AS n FROM t; SELECT id::INT FROM '/x.csv'", *on, env=lacking)
    assert ran.code == 2 and "pip install sqlglot" in ran.err
    assert "warning: sqlglot is not installed" in ran.err
    assert "5000" in ran.out, "results of earlier statements must be printed"


@needs_spark
def test_missing_file_fails_as_in_the_local_engine(folder):
    for options in (["SELECT * FROM '/nowhere/x.csv'"], ["SELECT 1", "--table", "t=/nowhere/x.csv"], [f"SELECT * FROM '{folder}/*.tsv'"]):
        here = binary.run("sql", *options)
        there = binary.run("sql", *options, "--on", "spark=local[1]", env=spark.environment())
        assert here.code == there.code == 1, there.err
        # Here, the place in the statement follows.
        assert there.err.splitlines()[-1] == here.err.splitlines()[0]


def test_usage_errors_need_no_spark(folder):
    for options, message in [
        (["--table", "t=a.csv", "--table", "T=b.csv"], "cannot register two tables as T"),
        (["--on", "spark", "--table", "t=a.csv", "--table", "t=b.csv"], "cannot register two tables as t"),
        (["--on", "flink"], "expected spark or spark=MASTER"),
        (["--on", "spark", "--io", "direct"], "cannot use --io with --on spark"),
        (["--on", "spark", "--conf", "memory=4g"], "expected a Spark property"),
        (["--conf", "spark.executor.memory=4g"], "--on"),
        (["--on", "spark", "-o", "rows.xlsx"], "cannot infer the format of -o rows.xlsx"),
    ]:
        ran = binary.run("sql", "SELECT 1", *options)
        assert ran.code == 2 and message in ran.err, ran.err


def test_only_unknown_syntax_is_left_to_spark():
    """A construct that the engine understands and refuses is refused before Spark starts."""
    nowhere = {**os.environ, "PYSPARK_PYTHON": "/nowhere/python"}
    nowhere.pop("SPARK_HOME", None)
    for text, code, message in [
        ("SELECT 1;\nSELECT * FROM t FOR UPDATE", 2, r"FOR UPDATE is not supported.*\n  line 2, column \d+: "),
        ("SET datafusion.sql_parser.dialect = 'mysql'", 2, "cannot set datafusion.sql_parser.dialect"),
        ("SELECT TRANSFORM (id) USING 'cat' AS (x) FROM t", 1, "cannot find PySpark"),
        ("SELECT 1 FRM t WHERE", 1, "cannot find PySpark"),
    ]:
        ran = binary.run("sql", text, "--on", "spark", env=nowhere)
        assert ran.code == code and re.search(message, ran.err), ran.err


def test_missing_pyspark_is_reported(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    for program, why in [(bare, "has no module pyspark"), ("/nowhere/python", "cannot be started")]:
        ran = binary.run("sql", "SELECT 1", "--on", "spark", env={**os.environ, "PYSPARK_PYTHON": str(program)})
        assert ran.code == 1
        assert "cannot find PySpark" in ran.err and why in ran.err and "pip install pyspark" in ran.err


@needs_spark
def test_missing_java_is_reported(folder, tmp_path):
    for tool in ("sh", "bash", "env", "dirname", "basename", "cat", "uname", "python3", "sed", "grep", "ps"):
        found = subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip()
        if found:
            (tmp_path / tool).symlink_to(found)
    lacking = spark.environment(PATH=str(tmp_path))
    lacking.pop("JAVA_HOME", None)
    ran = binary.run("sql", "SELECT 1", "--on", "spark=local[1]", env=lacking)
    assert ran.code == 1 and "JAVA_HOME" in ran.err, ran.err


@needs_spark
def test_ctrl_c_stops_spark(folder, tmp_path):
    slow = "SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id + c.id < 0"
    process = binary.start(
        "sql", slow, *tables(folder), "--on", "spark=local[1]", env=spark.environment(TMPDIR=str(tmp_path)), start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("pellucid-spark-*/log/*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not list(tmp_path.glob("pellucid-spark-*"))
    mine = str(tmp_path)
    while running_with(mine) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running_with(mine) == []


@needs_spark
def test_spark_properties_reach_no_arguments_and_stay_in_effect(folder, tmp_path):
    secret = f"pellucid secret=\\{os.getpid()}"
    slow = "SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id + c.id < 0"
    more = ["--conf", f"spark.hadoop.secret={secret}", "--conf", "spark.driver.memory=600m"]
    env = spark.environment(TMPDIR=str(tmp_path))
    process = binary.start("sql", slow, *tables(folder), "--on", "spark=local[1]", *more, env=env)
    try:
        binary.wait_until(lambda: list(tmp_path.glob("pellucid-spark-*/log/*")), process, timeout=120)
        assert running_with(secret) == [str(process.pid)]
        assert len(running_with("-Xmx600m")) == 1, "the JVM got the driver's memory"
        assert not list(tmp_path.glob("pellucid-spark-*/settings"))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def running_with(folder: str) -> list[str]:
    """Returns the processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder in path.read_bytes().decode(errors="replace"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_spark_conf_and_jar_print_plugin_settings(tmp_path):
    jar = tmp_path / "plugin.jar"
    jar.touch()
    named = {**os.environ, "PELLUCID_SPARK_JAR": str(jar)}
    assert binary.run("spark", "jar", env=named).check().out == f"{jar}\n"
    lines = binary.run("spark", "conf", env=named).check().out.split()
    assert lines[:2] == ["--jars", str(jar)]
    assert "spark.plugins=org.pellucid.spark.PellucidPlugin" in lines and "spark.pellucid.mode=measure" in lines
    lines = binary.run("spark", "conf", "--properties", "--mode", "adaptive", "--policy", "index", env=named).check().out
    assert dict(line.split(None, 1) for line in lines.splitlines()) == {
        "spark.jars": str(jar),
        "spark.plugins": "org.pellucid.spark.PellucidPlugin",
        "spark.pellucid.mode": "adaptive",
        "spark.pellucid.policy": "index",
    }
    refused = binary.run("spark", "conf", "--policy", "index", env=named)
    assert refused.code == 2 and "--mode adaptive" in refused.err, refused.err
    gated = binary.run("spark", "conf", "--mode", "monotasks", env=named).check().out.split()
    assert "spark.shuffle.sync=true" in gated and "spark.shuffle.sync=true" not in binary.run("spark", "conf", env=named).check().out
    document = binary.run("spark", "conf", "--json", env=named).check().json()
    assert document["format"] == "pellucid.spark/1" and document["jar"] == str(jar)
    for folder, code, expected in (("a b", 0, f"file://{tmp_path}/a%20b/plugin.jar"), ("a,b", 1, "at commas")):
        (tmp_path / folder).mkdir()
        elsewhere = named | {"PELLUCID_SPARK_JAR": str(jar.rename(tmp_path / folder / jar.name))}
        jar.touch()
        assert binary.run("spark", "jar", env=elsewhere).check().out == f"{tmp_path}/{folder}/{jar.name}\n"
        conf = binary.run("spark", "conf", env=elsewhere)
        assert conf.code == code and expected in (conf.err if code else conf.out.split()), conf
    missing = binary.run("spark", "jar", env={**os.environ, "PELLUCID_SPARK_JAR": str(tmp_path / "none.jar")})
    assert missing.code == 1 and "none.jar" in missing.err
