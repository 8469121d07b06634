"""Translation of statements to Spark's SQL by the program that `pellucid sql --on spark` runs; needs no Spark."""

import pytest

from harness import spark

TABLES = {
    "t": {"id": "bigint", "k": "int", "m": "decimal(10,2)", "d": "date", "f": "double"},
    "path_0": {"id": "bigint"},
}


SESSION = spark.program("session")


class Schema:
    """The schema of a table, in PySpark's form."""

    def __init__(self, columns: dict[str, str]):
        self.fields = [type("Field", (), {"name": n, "dataType": type("T", (), {"simpleString": lambda _, k=k: k})()}) for n, k in columns.items()]


class Spark:
    """A session with tables, whose parser accepts nothing or everything."""

    def __init__(self, parses: bool):
        self.parses = parses
        self._jsparkSession = self

    def sessionState(self):
        return self

    def sqlParser(self):
        return self

    def parsePlan(self, text):
        if not self.parses:
            raise ValueError("\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. (line 1, pos 10)\n\n== SQL ==")

    def table(self, name):
        return type("Table", (), {"schema": Schema(TABLES[name])})


def statements(parses: bool = False, ours: bool = True):
    """Returns a translator that does not look for paths."""
    made = SESSION.Statements(Spark(parses), ours)
    made.view_of = lambda path: "path_0" if SESSION.files.is_path(path) else None
    return made


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, count(*) AS n, sum(m) FROM t GROUP BY k ORDER BY k NULLS FIRST",
        "SELECT id FROM t WHERE k IN (1, 2) AND d >= DATE '2020-01-31' - INTERVAL '3' DAY",
        "SELECT id::BIGINT, f / 2 FROM t",
        "SELECT sum(m) OVER (PARTITION BY k) FROM t",
        "SELECT * FROM t EXCEPT SELECT * FROM t",
        "explain SELECT 1",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1 AS a",
    ],
)
def test_shared_statements_run_as_written(text):
    assert statements(parses=True).prepared(text) == (text, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT k FROM t ORDER BY k", "ORDER BY k NULLS LAST"),
        ("SELECT k FROM t ORDER BY k DESC, id", "ORDER BY k DESC, id NULLS LAST"),
        ("SELECT sum(m) OVER (ORDER BY k) FROM t", "ORDER BY k NULLS LAST"),
        ('SELECT "id" FROM t', "`id`"),
        ("SELECT id / 7 FROM t", "CAST(id AS DOUBLE) / CAST(7 AS DOUBLE)"),
        ("SELECT (id / 7) / k FROM t", "(CAST(id AS DOUBLE) / CAST(7 AS DOUBLE)) / k"),
        ("SELECT sum(id) / count(*), avg(id) / 2 FROM t", "CAST(SUM(id) AS DOUBLE) / CAST(COUNT(*) AS DOUBLE), AVG(id) / 2"),
        ("WITH x AS (SELECT id / 3 AS q FROM t) SELECT q / 2, q / 2.0 FROM x", "SELECT q / 2, q / 2.0D"),
        ("SELECT m / 7, f / k FROM t ORDER BY 1", "CAST(m AS DOUBLE) / CAST(7 AS DOUBLE), f / k"),
        (
            "SELECT id / 7 AS q, count(*) FROM t GROUP BY id / 7 ORDER BY id / 7",
            "GROUP BY CAST(id AS DOUBLE) / CAST(7 AS DOUBLE) ORDER BY CAST(id AS DOUBLE) / CAST(7 AS DOUBLE)",
        ),
        ("SELECT id / 7, count(*) FROM t GROUP BY 1 ORDER BY t.id / 7 DESC", "ORDER BY CAST(t.id AS DOUBLE) / CAST(7 AS DOUBLE) DESC"),
        ("SELECT k, sum(id) / count(*) FROM t GROUP BY k ORDER BY (sum(id) / count(*)) / 2", "/ CAST(COUNT(*) AS DOUBLE)) / 2"),
        ("SELECT k, sum(m) / count(*) FROM t GROUP BY k ORDER BY sum(m) / count(*)", "ORDER BY CAST(SUM(m) AS DOUBLE) / CAST(COUNT(*) AS DOUBLE)"),
        ("SELECT count(*) FROM 'data/*.parquet' x", "FROM path_0 AS x"),
        ("SELECT [1, 2][1], l[k] FROM t", "TRY_ELEMENT_AT(ARRAY(1, 2), CAST(1 AS INT)), TRY_ELEMENT_AT(l, CAST(k AS INT))"),
        ("SELECT k FROM t ORDER BY k FETCH FIRST 3 ROWS ONLY", "NULLS LAST LIMIT 3"),
        ("SELECT * EXCLUDE (id) FROM t UNION ALL SELECT k, m, d, f FROM t", "SELECT * EXCEPT (id) FROM t"),
        ("SELECT * FROM t JOIN path_0 USING (id) ORDER BY k", "SELECT * FROM t JOIN path_0 USING (id)"),
        ("SELECT * FROM t JOIN (SELECT 1 AS k) q USING (k)", "SELECT `t`.`id`, `k`, `t`.`m`, `t`.`d`, `t`.`f` FROM t"),
        ("SELECT count(*) FROM 'a.tsv'", "FROM path_0"),
        ("SELECT 5 ^ 3, 2 ** k, log(f), 0.05 FROM t", "POWER(5, 3), POWER(2, k), CASE WHEN f > 0 THEN LOG10(f)"),
        ("SELECT k % id, k % 2 FROM t", "k % NULLIF(id, 0), k % 2"),
        ("SELECT d::VARCHAR ~ '2.' FROM t", "RLIKE '(?d)\\\\A(?:2.)\\\\z'"),
        ("SELECT hex(k), year(d), regexp_matches(d::VARCHAR, '2') FROM t", "HEX(k), YEAR(d), (CAST(d AS STRING) RLIKE '(?d)2')"),
        ("SELECT log(100), substr('abc', -1, 3), substr(d::VARCHAR, 0) FROM t", "LOG10(100), SUBSTR('abc', -1, 3), CAST(d AS STRING)"),
        ("SELECT m < 0.05, f < 0.05 FROM t", "m < 0.05, f < 0.05D"),
        ("SELECT count(*) FROM t WHERE m BETWEEN 0.06 - 0.01 AND 0.06 + 0.01", "BETWEEN 0.05 AND 0.07"),
        ("SELECT d - DATE '2020-01-01' FROM t", "DATEDIFF(d, CAST('2020-01-01' AS DATE))"),
        ("SELECT avg(m + 1) OVER (PARTITION BY k) FROM t", "NULLIF(COUNT(m + 1) OVER (PARTITION BY k), 0)"),
        (
            "SELECT sum(q.m) FROM (SELECT * FROM t) q JOIN t AS u(a, b, c) ON q.id / 2 = u.a / 3",
            "CAST(q.id AS DOUBLE) / CAST(2 AS DOUBLE) = CAST(u.a AS DOUBLE) / CAST(3 AS DOUBLE)",
        ),
        ("SELECT regexp_replace(d::VARCHAR, '0', 'x') FROM t", "'(?d)\\\\A((?s:.*?))(?:0)', '$1x'"),
        ("SELECT col0 FROM (VALUES (1, 2))", "(col0, col1)"),
        ("SELECT id::VARCHAR FROM t", "CAST(id AS STRING)"),
        ("CREATE VIEW v AS SELECT 1 AS a", "CREATE TEMPORARY VIEW v"),
        ("SELECT d + INTERVAL '1' MONTH FROM t", "CAST(d AS TIMESTAMP_NTZ) + INTERVAL '1' MONTH"),
        ("SELECT f::INT FROM t", "CAST(RINT(f) AS INT)"),
        ("SELECT m::BIGINT FROM t", "CAST(ROUND(m, 0) AS BIGINT)"),
        ("SELECT 2.5::INT, 1.005::DECIMAL(9, 2)", "CAST(ROUND(CAST('2.5' AS DECIMAL(2, 1)), 0) AS INT), CAST(1.01 AS DECIMAL(9, 2))"),
    ],
)
def test_statements_with_another_meaning_are_translated(text, expected):
    translated, changed = statements().prepared(text)
    assert changed and expected in translated, translated


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id FRM t WHERE", r"line 1, column 15: .* near `t` \(Spark says: \[PARSE_SYNTAX_ERROR\]"),
        ("SELECT array_agg(id ORDER BY k) FROM t", "`ARRAY_AGG.id ORDER BY k.`.* ORDER BY within an aggregate"),
        ("SELECT string_agg(k, ',' ORDER BY k) FROM t", "ORDER BY within an aggregate"),
        ("SELECT list(id), k FROM t GROUP BY k", "`list` was not checked"),
        ("SELECT arg_max(id, k) FROM t", "`arg_max` was not checked"),
        ("SELECT strftime(d, '%Y') FROM t", "`strftime` was not checked"),
        ("SELECT [x + 1 FOR x IN [1, 2]] FROM t", "was not checked to give the same results"),
        ("SELECT k IN l FROM t", "Spark has no IN for lists"),
        ("SELECT if(k > 1, 1, 2) FROM t", "cannot run .* on Spark"),
        ("SELECT split_part(d::VARCHAR, '-', 0) FROM t", "the number of the part is 0"),
        ("SELECT no_such(id) FROM t", "cannot run `NO_SUCH.id.` on Spark: `no_such` was not checked to give the same results"),
        ("SELECT k FROM t WHERE CAST(f AS VARCHAR) = '1'", "cannot run `CAST.f AS TEXT.` on Spark: the text of a float"),
        ("WITH x AS (SELECT f + 1 AS g FROM t) SELECT * FROM x WHERE (SELECT max(m) FROM t) > g", "a decimal and a float"),
        ("SELECT unnest([1]) FROM t", "was not checked to give the same results"),
        ("SELECT t.id FROM t ASOF JOIN t u ON t.d >= u.d", "Spark has no ASOF JOIN"),
        ("SELECT t.id FROM t POSITIONAL JOIN t u", "Spark has no POSITIONAL JOIN"),
        ("SELECT CAST('1e3' AS INT)", "Spark reads only digits as a whole number"),
        ("SELECT t.d AT TIME ZONE 'UTC' FROM t", "was not checked"),
        ("INSERT INTO t SELECT * FROM t", "cannot run INSERT on Spark"),
        ("COPY t TO 'x.parquet'", "use -o FILE for the rows"),
        ("COPY t FROM 'x.csv' (HEADER)", "use -o FILE for the rows"),
        ("SUMMARIZE t", "cannot run SUMMARIZE on Spark"),
        ("SELECT * FROM (SUMMARIZE t)", "was not checked to give the same results"),
        ("SET VARIABLE x = 1", "cannot run SET VARIABLE on Spark"),
        ("CREATE TABLE n (a INT PRIMARY KEY)", "cannot run CREATE TABLE with columns on Spark"),
        ("CREATE MACRO f(a) AS a + 1", "cannot run CREATE MACRO on Spark"),
        ("CREATE SEQUENCE s", "cannot run CREATE SEQUENCE on Spark"),
        ("UPDATE t SET id = 1", "cannot run UPDATE on Spark"),
        ("DELETE FROM t", "cannot run DELETE on Spark"),
        ("PRAGMA table_info('t')", "cannot run PRAGMA on Spark"),
        ("BEGIN", "on Spark"),
        ("PREPARE p AS SELECT 1", "cannot run PREPARE on Spark"),
        ("EXECUTE p(1)", "cannot run EXECUTE on Spark"),
        ("SELECT getvariable('x')", "was not checked to give the same results"),
    ],
)
def test_unsupported_statements_are_refused(text, message):
    with pytest.raises(SESSION.Refused, match=message):
        statements().prepared(text)


def test_spark_only_statements_run_as_written():
    for text in ("SELECT TRANSFORM (id) USING 'cat' AS (x) FROM t", "DESCRIBE EXTENDED t", "SHOW CREATE TABLE t"):
        assert statements(parses=True, ours=False).prepared(text)[0] == text
    for text in ("SET spark.sql.shuffle.partitions = 3", "RESET spark.sql.shuffle.partitions", "EXPLAIN SELECT 1"):
        assert statements(parses=True).prepared(text)[0] == text


def test_refusals_name_their_place():
    text = "-- a\n\nSELECT k,\n\tsum(m ORDER BY k)\nFROM t"
    with pytest.raises(SESSION.Refused) as error:
        statements().prepared(text, line=13)
    assert str(error.value).splitlines()[1:] == ["  line 14, column 2:  sum(m ORDER BY k)", " " * 22 + "^"]
    with pytest.raises(SESSION.Refused, match=r"(?s)cannot run SUMMARIZE on Spark.*line 7, column 4: ...SUMMARIZE t"):
        statements().prepared("/* a\n*/ SUMMARIZE t", line=7)
    with pytest.raises(SESSION.Refused, match=r"\n  line 1, column 408: "):
        statements().prepared("SELECT " + "1 + " * 100 + "list(k) FROM t")


def test_missing_sqlglot_warns_once_and_refuses_translation(monkeypatch, capsys):
    messages = []
    monkeypatch.setattr(SESSION, "dialect", lambda: None)
    monkeypatch.setattr(SESSION, "say", lambda **message: messages.append(message))
    taken = statements(parses=True)
    assert taken.prepared("SELECT 1") == ("SELECT 1", False) == taken.prepared("SELECT 1")
    assert len(messages) == 1 and "NULLs sort first" in messages[0]["warning"], "must be printed once per session"
    with pytest.raises(SESSION.Refused, match="pip install sqlglot"):
        statements(parses=False).prepared("SELECT 1")


def test_statements_unknown_to_sqlglot_are_refused():
    """Spark may read the statement, but with another meaning."""
    made = statements(parses=True)
    with pytest.raises(SESSION.Refused, match="sqlglot, which translates it, cannot parse it"):
        made.prepared("SELECT TRANSFORM (id) USING 'cat' AS (x) FROM t")


def test_table_functions_over_files_are_refused():
    """Spark reads text files by other rules."""
    made = SESSION.Refused
    dialect = spark.program("dialect")
    for call in ("read_csv('a.csv', header = true)", "read_parquet(['a', 'b'])", "read_json('a.json')", "glob('*')"):
        with pytest.raises(made, match="table functions were not checked"):
            dialect.translated(f"SELECT * FROM {call}", lambda name: None, lambda name: None)


def test_csv_column_types_match_the_engine():
    """CSV types must be those that the engine infers."""
    csv_type = spark.program("files").csv_type
    for texts, kind in [
        (["1", "-2", None], "BIGINT"), (["1", "2.5", "1e3"], "DOUBLE"), (["nan", "1"], "DOUBLE"), (["true", "FALSE"], "BOOLEAN"),
        (["2024-01-07"], "DATE"), (["2024-01-07", "2024-01-07 10:00:00"], "STRING"), (["1d"], "STRING"), (["10:30"], "other time"),
        (["99999999999999999999"], "DOUBLE"), (["007"], "STRING"), (["31/12/2024"], "other time"), (["true", "1"], "STRING"), (["2024-01"], "STRING"), ([None], "STRING"), (["+1"], "STRING"),
    ]:  # fmt: skip
        assert csv_type(texts) == kind, texts


def test_rows_are_converted_to_json():
    import datetime
    import decimal

    row = (1, "é", decimal.Decimal("-10.50"), float("nan"), b"\x00\xff", datetime.date(2026, 11, 21), [None, True], {7: (0.5,)})
    assert SESSION.plain(row) == [1, "é", "-10.50", "nan", "00ff", "2026-11-21", [None, True], {"7": [0.5]}]


def test_settings_are_merged_with_spark_defaults(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.plugins  com.nvidia.spark.SQLPlugin\nspark.jars=/a.jar, /b.jar\nspark.master local[3]\n\n"
    )
    request = {
        "conf": [["spark.executor.memory", "4g"], ["spark.eventLog.enabled", "false"]], "master": None, "jar": "/p.jar",
        "plugin": "Plugin", "folder": "/f", "log_folder": "/f/log",
    }  # fmt: skip
    made = SESSION.settings(request)
    assert made["spark.plugins"] == "com.nvidia.spark.SQLPlugin,Plugin" and made["spark.jars"] == "/a.jar,/b.jar,/p.jar"
    assert made["spark.master"] == "local[3]" and made["spark.driver.host"] == "127.0.0.1"
    assert made["spark.executor.memory"] == "4g" and made["spark.eventLog.enabled"] == "true"
    cluster = SESSION.settings({**request, "master": "spark://h:7077", "jar": None})
    assert "spark.driver.host" not in cluster and "spark.plugins" not in cluster


def test_property_line_escapes_what_java_would_interpret():
    assert SESSION.property_line("spark.a", "b") == "spark.a=b\n"
    assert SESSION.property_line("spark.a b", " c=d:\\e\nf#é") == "spark.a\\ b=\\ c\\=d\\:\\\\e\\nf\\#é\n"


def test_untested_pyspark_version_is_named():
    for version in ("3.5.0", "3.5.9", "4.0.1", "4.3.0.dev1"):
        assert SESSION.untested(version) is None
    for version in ("2.4.8", "3.3.2", "3.50.0", "4.1.0", "5.0.0"):
        assert f"not with {version}:" in SESSION.untested(version)
