"""Statements other than queries beside DuckDB: tables, constraints, changes of rows, macros, scripts and COPY."""

import datetime
import decimal
import json
import os

import duckdb
import pytest

from harness import binary
from harness.binary import FAILED, USAGE

# The last statement's names and rows must be DuckDB's.
ALIKE = [
    "CREATE TABLE t (a INT, b VARCHAR DEFAULT 'x', c DATE); INSERT INTO t (a) VALUES (1), (2); INSERT INTO t VALUES (3, DEFAULT, '2024-02-03'); FROM t ORDER BY a",
    "CREATE TABLE t (a INT DEFAULT 7, b INT); INSERT INTO t DEFAULT VALUES; FROM t",
    "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO t VALUES (2, 5), (3, 6) ON CONFLICT DO NOTHING; FROM t ORDER BY a",
    "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO t VALUES (2, 5), (3, 6) ON CONFLICT (a) DO UPDATE SET b = b + excluded.b WHERE excluded.b > 5; FROM t ORDER BY a",
    "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO t VALUES (2, 5), (3, 6) ON CONFLICT (a) DO UPDATE SET b = b + excluded.b; FROM t ORDER BY a",
    "CREATE TABLE t (a INT, b INT, UNIQUE (a, b)); INSERT INTO t VALUES (1, 1), (1, NULL), (1, NULL), (1, 2); FROM t ORDER BY a, b",
    "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)); INSERT INTO t VALUES (1, 1); INSERT OR REPLACE INTO t VALUES (1, 1), (1, 2); FROM t ORDER BY a, b",
    "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT OR REPLACE INTO t VALUES (1, 1), (1, 2); FROM t",
    "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT OR IGNORE INTO t VALUES (1, 1), (1, 2); FROM t",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30); UPDATE t SET a = b, b = a WHERE a > 1; FROM t ORDER BY a",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 10), (2, 20); UPDATE t SET b = (SELECT max(b) FROM t) + 1; FROM t ORDER BY a",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 10), (2, 20); UPDATE t AS x SET b = x.b * 2 WHERE x.a = 2 RETURNING a, b AS twice",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30); DELETE FROM t WHERE a IN (SELECT a FROM t WHERE b > 15); FROM t",
    "CREATE TABLE t (a INT); CREATE TABLE u (a INT); INSERT INTO t VALUES (1), (2), (3); INSERT INTO u VALUES (2), (3); DELETE FROM t USING u WHERE t.a = u.a; FROM t",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2) RETURNING a, a + 1 AS b",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); DELETE FROM t WHERE a = 1 RETURNING *",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); DELETE FROM t; SELECT count(*) AS n FROM t",
    "CREATE TABLE t (a INT); INSERT INTO t SELECT 5 RETURNING a * 2 AS x",
    "CREATE TABLE t (a INT, b INT AS (a * 2), c INT AS (a + 1)); INSERT INTO t VALUES (1), (2); UPDATE t SET a = 5 WHERE a = 1; FROM t ORDER BY a",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t BY NAME SELECT 2 AS b; FROM t",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t BY POSITION SELECT 2, 3; FROM t",
    "CREATE TABLE t (a DECIMAL(6, 2)); INSERT INTO t VALUES (1.555), ('2.5'), (3); FROM t ORDER BY a",
    "CREATE TABLE t (a TIMESTAMP, b DATE, c TIME, d BOOLEAN); INSERT INTO t VALUES ('2024-01-01 10:00', '2024-01-02', '10:11:12', 'true'); FROM t",
    "CREATE TABLE t (l INT[], s STRUCT(a INT, b VARCHAR)); INSERT INTO t VALUES ([1, 2], {'a': 1, 'b': 'x'}), (NULL, NULL); SELECT l[1] AS x, s.b AS y FROM t ORDER BY x",
    "CREATE TABLE t (a INT); ALTER TABLE t ADD COLUMN b INT DEFAULT 3; INSERT INTO t (a) VALUES (1); ALTER TABLE t ADD c VARCHAR; FROM t",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); ALTER TABLE t ADD COLUMN b INT DEFAULT 3; FROM t",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); ALTER TABLE t ALTER a TYPE VARCHAR; SELECT a || 'x' AS y FROM t",
    "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('1'); ALTER TABLE t ALTER COLUMN a SET DATA TYPE BIGINT; SELECT a + 1 AS y FROM t",
    "CREATE TABLE t (a INT, b INT); ALTER TABLE t ALTER b SET DEFAULT 9; INSERT INTO t (a) VALUES (1); ALTER TABLE t ALTER b DROP DEFAULT; INSERT INTO t (a) VALUES (2); FROM t ORDER BY a",
    "CREATE TABLE t (a INT); ALTER TABLE t RENAME a TO z; INSERT INTO t VALUES (4); FROM t",
    "CREATE TABLE t (a INT); ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (4); FROM u",
    "CREATE TABLE t (a INT); ALTER TABLE IF EXISTS nope ADD COLUMN b INT; DESCRIBE t",
    "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR NOT NULL DEFAULT 'x', c DECIMAL(4, 1) UNIQUE); DESCRIBE t",
    "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR NOT NULL DEFAULT 'x'); PRAGMA table_info('t')",
    "CREATE TABLE t (a INT); CREATE VIEW v AS FROM t; INSERT INTO t VALUES (1); FROM v",
    "CREATE TABLE t (a INT); CREATE VIEW v (x) AS SELECT a + 1 FROM t; INSERT INTO t VALUES (1); SELECT x FROM v",
    "CREATE VIEW v AS SELECT 1 AS a; CREATE VIEW w AS SELECT a + 1 AS b FROM v; CREATE OR REPLACE VIEW v AS SELECT 5 AS a; FROM w",
    "CREATE TEMP VIEW v AS SELECT 1 AS a; WITH v AS (SELECT 2 AS a) FROM v",
    "CREATE VIEW v AS SELECT 1 AS a; DROP VIEW v; CREATE TABLE v (b INT); INSERT INTO v VALUES (8); FROM v",
    "CREATE TABLE b (x INT); CREATE TABLE a (x INT); CREATE VIEW c AS FROM a; SHOW TABLES",
    "CREATE TABLE a (x INT, y VARCHAR); SELECT table_name, column_name, ordinal_position, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'main'",
    "CREATE TABLE a (x INT, y VARCHAR); CREATE VIEW b AS FROM a; SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables ORDER BY ALL",
    "CREATE TABLE a (x INT, y VARCHAR); SHOW ALL TABLES",
    "CREATE TABLE a (x INT PRIMARY KEY); SELECT table_name, column_count, has_primary_key FROM duckdb_tables()",
    "CREATE TABLE a (x INT); SELECT column_name FROM (DESCRIBE a)",
    "DESCRIBE SELECT 1::INT AS a, 'x' AS b, DATE '2024-01-01' AS d, TRUE AS t, [1::INT] AS l, {'k': 1::INT} AS s",
    "CREATE TABLE a (x INT, y DOUBLE, z VARCHAR, b BOOLEAN); INSERT INTO a VALUES (1, 1.5, 'p', true), (2, 2.5, 'q', false), (3, NULL, 'q', true), (4, 4.5, NULL, NULL); SUMMARIZE a",
    "CREATE TABLE a (x INT); INSERT INTO a VALUES (1), (2); SELECT column_name, count FROM (SUMMARIZE SELECT x + 1 AS y FROM a)",
    "CREATE TABLE a (x INT); INSERT INTO a VALUES (1); TABLE a",
    "CREATE TABLE a (x INT); INSERT INTO a VALUES (1); SELECT (SELECT x FROM (TABLE a)) AS y",
    "CREATE SEQUENCE s; CREATE TABLE t (id INT DEFAULT nextval('s'), v VARCHAR); INSERT INTO t (v) VALUES ('a'), ('b'); FROM t ORDER BY id",
    "CREATE SEQUENCE s START 5 INCREMENT BY 2 MAXVALUE 8 CYCLE; SELECT nextval('s') AS a, nextval('s') AS b, nextval('s') AS c, currval('s') AS d",
    "CREATE MACRO f(a, b := 2) AS a + b; SELECT f(1) AS x, f(1, b := 3) AS y, f(1, 5) AS z",
    "CREATE MACRO f(a) AS CASE WHEN a > 1 THEN 'big' ELSE 'small' END; SELECT f(1) AS x, f(2) AS y",
    "CREATE MACRO g(n) AS TABLE SELECT * FROM (VALUES (1), (2), (3)) t(i) WHERE i <= n; SELECT sum(i) AS s FROM g(2)",
    "CREATE MACRO f(a) AS a * 2; CREATE MACRO g(a) AS f(a) + 1; SELECT g(5) AS x",
    "CREATE OR REPLACE MACRO f(a) AS a; CREATE OR REPLACE MACRO f(a) AS a * 3; SELECT f(5) AS x",
    "CREATE TEMP MACRO f(a) AS a; DROP MACRO f; SELECT 1 AS ok",
    "CREATE MACRO total() AS (SELECT 42); SELECT total() AS t",
    "SET VARIABLE x = 5; SELECT getvariable('x') + 1 AS y",
    "SET VARIABLE x = (SELECT max(i) FROM (VALUES (1), (7)) t(i)); SELECT getvariable('x') AS y",
    "SET VARIABLE x = 2; SELECT * FROM (VALUES (1), (2), (3)) t(i) ORDER BY i LIMIT getvariable('x')",
    "SET VARIABLE x = 2; RESET VARIABLE x; SELECT getvariable('x') IS NULL AS n",
    "PREPARE p AS SELECT $1 + 1 AS a; EXECUTE p(4)",
    "PREPARE p AS SELECT $x::INT + $y::INT AS a; EXECUTE p(x := 4, y := 5)",
    "CREATE TABLE t (a INT, b VARCHAR); PREPARE p AS INSERT INTO t VALUES (?, ?); EXECUTE p(1, 'x'); EXECUTE p(2, 'y'); FROM t ORDER BY a",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2); CREATE TABLE u (b INT); ROLLBACK; SHOW TABLES",
    "CREATE TABLE t (a INT); BEGIN TRANSACTION; INSERT INTO t VALUES (2); ALTER TABLE t RENAME a TO b; ABORT; FROM t",
    "START TRANSACTION; CREATE TABLE t (a INT); END; SELECT count(*) AS n FROM t",
    "CREATE SCHEMA s; CREATE TABLE s.t (a INT); INSERT INTO s.t VALUES (1); UPDATE s.t SET a = 2; FROM s.t",
    "CREATE SCHEMA s; USE s; CREATE TABLE t (a INT); INSERT INTO s.t VALUES (3); FROM t",
    "CREATE TABLE Main_T (A INT); INSERT INTO main_t VALUES (1); SELECT table_name FROM information_schema.tables",
    "CREATE TABLE t (a INT); INSERT INTO main.t VALUES (1); FROM memory.main.t",
    "CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE t2 AS FROM t; DROP TABLE t; FROM t2",
    "CREATE OR REPLACE TEMP TABLE t AS SELECT 1 AS a, 'x' AS b; FROM t",
    "CHECKPOINT; ANALYZE; VACUUM; SELECT 1 AS a",
    "RESET memory_limit; SET memory_limit = '2GB'; SELECT 1 AS a",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); UPDATE t SET a = a + 1; SELECT list_sort(array_agg(a)) AS l FROM t",
    "CREATE TABLE t (a INT CHECK (a > 0), CONSTRAINT big CHECK (a < 100)); INSERT INTO t VALUES (5), (NULL); FROM t ORDER BY a",
    "CREATE TABLE t (Name VARCHAR, \"Full Name\" VARCHAR); INSERT INTO t (NAME, \"full name\") VALUES ('a', 'b'); UPDATE t SET NAME = 'c' WHERE \"Full Name\" = 'b'; FROM t",
    "CREATE TABLE t (a INT); COPY (SELECT 7 AS a UNION ALL SELECT 8) TO 'o.csv' (HEADER false); COPY t FROM 'o.csv'; FROM t ORDER BY a",
    "CREATE TABLE t (a INT, b VARCHAR); COPY (SELECT 7 AS a, 'x|y' AS b) TO 'o.csv' (DELIMITER '|'); COPY t FROM 'o.csv' (DELIMITER '|', HEADER); FROM t ORDER BY a",
    "CREATE TABLE t (a INT, b VARCHAR); COPY (SELECT 7 AS a, NULL AS b) TO 'o.csv' (NULLSTR 'NA'); COPY t FROM 'o.csv' (NULLSTR 'NA'); FROM t",
    "CREATE TABLE t (a INT, b VARCHAR); COPY (SELECT 7 AS a, 'q' AS b) TO 'o.json'; COPY t FROM 'o.json'; FROM t",
    "CREATE TABLE t (a INT, b VARCHAR); COPY (SELECT 7 AS a, 'q' AS b) TO 'o.parquet' (COMPRESSION gzip); COPY t FROM 'o.parquet'; FROM t",
    "COPY (SELECT 1 AS a, 'p' AS k UNION ALL SELECT 2, 'q') TO 'parts' (FORMAT parquet, PARTITION_BY (k)); SELECT a, k FROM 'parts/*/*.parquet' ORDER BY a",
    "CREATE TYPE mood AS ENUM ('ok', 'bad'); CREATE TABLE t (a INT, m mood); INSERT INTO t VALUES (1, 'ok'), (2, NULL); SELECT a, m, m = 'ok' AS b FROM t ORDER BY a",
    "CREATE TYPE mood AS ENUM ('ok', 'bad'); SELECT 'ok'::mood AS a, TRY_CAST('x' AS mood) AS b, enum_range(NULL::mood) AS c, enum_first(NULL::mood) AS d, enum_last(NULL::mood) AS e, enum_code('bad'::mood) AS f, enum_range_boundary('bad'::mood, NULL) AS g",
    "CREATE TYPE mood AS ENUM ('ok', 'bad', 'awful'); CREATE TABLE t (a INT, m mood); INSERT INTO t VALUES (1, 'awful'), (2, NULL), (3, 'bad'), (4, 'ok'); SELECT a, m, m > 'ok' AS b, m > 'ok'::mood AS c, row_number() OVER (ORDER BY m DESC) AS n FROM t ORDER BY m",
    "CREATE TYPE mood AS ENUM ('ok', 'bad', 'awful'); CREATE TABLE t (m mood); INSERT INTO t VALUES ('awful'), ('bad'), ('ok'); SELECT min(m) AS a, max(m) AS b, list(m ORDER BY m) AS l FROM t",
    "CREATE TYPE mood AS ENUM ('ok', 'bad', 'awful'); CREATE TABLE t (m mood); INSERT INTO t VALUES ('awful'), ('bad'), ('ok'); SELECT m, count(*) AS n FROM (FROM t UNION ALL FROM t) GROUP BY m HAVING m < 'awful'::mood ORDER BY m DESC",
    "CREATE TYPE mood AS ENUM ('ok', 'bad'); CREATE TABLE t (m mood); INSERT INTO t VALUES ('bad'), ('ok'); CREATE TABLE u AS FROM t; INSERT INTO u VALUES ('ok'); FROM u ORDER BY m",
    "CREATE TYPE mood AS ENUM ('ok'); BEGIN; DROP TYPE mood; ROLLBACK; SELECT 'ok'::mood AS a",
    "CREATE TABLE t (d DATE, t TIMESTAMP); INSERT INTO t VALUES ('2024-01-01', TIMESTAMP '2024-01-02 03:00:00'), (DATE '2024-01-05' + 1, '2024-01-07 10:00'); FROM t ORDER BY d",
    "CREATE TABLE t (m MAP(VARCHAR, INT)); INSERT INTO t VALUES (MAP {'a': 1}); SELECT m['a'] AS a, m['b'] AS b FROM t",
    "CREATE TYPE mood AS ENUM ('ok', 'bad'); CREATE TABLE t (m mood, j JSON, u UUID, s STRUCT(\"name\" VARCHAR)); SELECT column_type FROM (DESCRIBE t)",
    "CREATE TYPE mood AS ENUM ('ok', 'bad'); CREATE TABLE t (m mood); INSERT INTO t VALUES ('bad'); SELECT typeof(m) AS a, pg_typeof(m) AS b FROM t",
    "CREATE TABLE t (a INT DEFAULT 7, b VARCHAR); MERGE INTO t USING (VALUES (1), (2)) s(i) ON t.a = s.i WHEN NOT MATCHED THEN INSERT DEFAULT VALUES; FROM t",
    "CREATE TABLE t AS SELECT s.x, s.X AS y FROM (SELECT {'x': 1::INT} AS s); FROM t",
    "SELECT sku FROM (SELECT l.sku, l.qty FROM (SELECT {'sku': 'a', 'qty': 2} AS l)) WHERE qty = 2",
    "WITH a AS MATERIALIZED (SELECT 1 AS x), b AS NOT MATERIALIZED (SELECT 2 AS y) SELECT x, y FROM a, b",
    "SELECT a, b, count(*) AS n FROM (VALUES (1, 2), (1, 2), (1, 3)) t(a, b) GROUP BY (a, b) ORDER BY ALL",
    "CREATE TABLE t (j JSON); INSERT INTO t VALUES ('{\"a\": [1, 2]}'), (NULL); SELECT j -> 'a' AS a, j.a[1] AS b FROM t ORDER BY a",
    *(
        f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR, n INT DEFAULT 7); INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3); CREATE TABLE s AS SELECT * FROM (VALUES (2, 'B'), (9, 'N')) x(id, v); {merge}; FROM t ORDER BY id"
        for merge in [
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
            "MERGE INTO t USING s ON (t.id = s.id) WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v, 5)",
            "MERGE INTO t USING (SELECT 2 AS id, 'B' AS v, 4 AS n UNION ALL SELECT 9, 'N', 4) s USING (id) WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT",
            "MERGE INTO t USING s USING (id) WHEN NOT MATCHED THEN INSERT BY NAME WHEN MATCHED THEN DO NOTHING",
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.v = 'Q' THEN DELETE WHEN MATCHED THEN UPDATE SET n = n + 10 WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY TARGET THEN INSERT (id) VALUES (s.id)",
            "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND n > 2 THEN UPDATE SET v = 'gone'",
            "MERGE INTO t AS x USING (VALUES (2, 'B')) y(id, v) ON x.id = y.id WHEN MATCHED THEN UPDATE SET v = x.v || y.v",
            "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, DEFAULT)",
            "WITH q AS (SELECT 2 AS id) MERGE INTO t USING q ON t.id = q.id WHEN MATCHED THEN DELETE",
            "BEGIN; MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE; ROLLBACK",
        ]
    ),
    "CREATE TABLE t (id INT, v VARCHAR); INSERT INTO t VALUES (2, 'b'); MERGE INTO t USING (VALUES (2, 'B')) s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v RETURNING merge_action, *",
    "CREATE TABLE t (a INT, b INT); CREATE VIEW v AS PIVOT t ON a IN (1, 2) USING sum(b); INSERT INTO t VALUES (1, 5); FROM v",
]

# DuckDB refuses these, and so does the engine, with a place in the text.
REFUSED = [
    "CREATE TYPE mood AS ENUM ('ok', 'ok')",
    "CREATE TYPE mood AS ENUM ('ok'); CREATE TYPE mood AS ENUM ('ok')",
    "DROP TYPE mood",
    "CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE t (m mood); INSERT INTO t VALUES ('x')",
    "CREATE TABLE t (j JSON); INSERT INTO t VALUES ('{')",
    "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); MERGE INTO t USING (VALUES (2), (2)) s(id) ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id)",
    "CREATE TABLE t (id INT); INSERT INTO t VALUES (1); MERGE INTO t USING (VALUES (1)) s(id) ON t.id = s.id WHEN MATCHED THEN ERROR",
    "CREATE TABLE t (id INT); MERGE INTO t USING (VALUES (1)) s(id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = 1",
    "CREATE TABLE t (a INT, b INT); MERGE INTO t USING (VALUES (1)) s(id) ON t.a = s.id WHEN NOT MATCHED THEN INSERT",
    "CREATE TABLE t (a INT, b INT); CREATE VIEW v AS PIVOT t ON a USING sum(b)",
    "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1), (1)",
    "CREATE TABLE t (a INT UNIQUE); INSERT INTO t VALUES (1); UPDATE t SET a = 1; INSERT INTO t VALUES (1)",
    "CREATE TABLE t (a INT NOT NULL); INSERT INTO t VALUES (NULL)",
    "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (NULL)",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1)",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t (a, c) VALUES (1, 2)",
    "CREATE TABLE t (a INT, b INT); INSERT INTO t (a, a) VALUES (1, 2)",
    "CREATE TABLE t (a INT); CREATE TABLE t (b INT)",
    "DROP TABLE nope",
    "DROP VIEW nope",
    "CREATE VIEW v AS SELECT 1 AS a; DROP TABLE v",
    "CREATE TABLE t (a INT); UPDATE t SET b = 1",
    "CREATE TABLE t (a INT); UPDATE t SET a = a + 'x'",
    "CREATE TABLE t (a INT); DELETE FROM t WHERE b = 1",
    "CREATE TABLE t (a INT); ALTER TABLE t DROP COLUMN b",
    "CREATE TABLE t (a INT); ALTER TABLE t ADD COLUMN a INT",
    "CREATE TABLE t (a INT, a VARCHAR)",
    "COMMIT",
    "ROLLBACK",
    "BEGIN; BEGIN",
    "EXECUTE nope(1)",
    "PREPARE p AS SELECT $1; EXECUTE p",
    "SELECT nextval('nope')",
    "SELECT $1 + 1 AS a",
    "CREATE MACRO f(a) AS a; SELECT f()",
    "CREATE MACRO f(a) AS a; SELECT f(1, 2)",
    "SET nope = 1",
    "COPY (SELECT 1 AS a) TO 'x.csv' (ROW_GROUP_SIZE 5)",
    "COPY (SELECT 1 AS a) TO 'x.parquet' (COMPRESSION nope)",
    "COPY (SELECT 1 AS a) TO 'x' (FORMAT nope)",
    "CREATE TABLE t (a INT); INSERT INTO t VALUES ('abc')",
    "CREATE TABLE t (a TINYINT); INSERT INTO t VALUES (1000)",
    "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 1) ON CONFLICT (b) DO NOTHING",
    "DESCRIBE nope",
    "SUMMARIZE nope",
    "PRAGMA table_info('nope')",
    "CREATE TABLE t (a INT); SELECT nope FROM (DESCRIBE t)",
    "USE nope",
    "CREATE TABLE t (a INT CHECK (a > 0)); INSERT INTO t VALUES (1), (-1)",
]


def plain(value):
    """Returns a value as text, as both engines write it."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, (datetime.date, datetime.time)):
        value = value.isoformat()
    if value is None or isinstance(value, bool):
        return str(value).lower()
    try:
        return str(float(value if isinstance(value, (int, decimal.Decimal)) else str(value)))
    except ValueError:
        return str(value).replace("T", " ")


def duckdb_answer(sql, folder):
    """Returns DuckDB's names and rows."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with duckdb.connect() as connection:
            cursor = connection.execute(sql)
            return [column[0] for column in cursor.description], [plain(list(row)) for row in cursor.fetchall()]
    finally:
        os.chdir(before)


def answer(sql, folder, *options):
    """Returns the names and rows of the last statement."""
    document = json.loads(binary.run("sql", "--json", "--quiet", sql, *options, cwd=folder).check().out)
    last = document["results"][-1] if "results" in document else document
    return [column["name"] for column in last["columns"]], [plain(row) for row in last["rows"]]


@pytest.mark.parametrize("sql", ALIKE)
def test_statements_answer_like_duckdb(tmp_path, sql):
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    assert answer(sql, tmp_path / "one") == duckdb_answer(sql, tmp_path / "other")


@pytest.mark.parametrize("sql", REFUSED)
def test_statements_that_duckdb_refuses_are_errors(tmp_path, sql):
    with pytest.raises(duckdb.Error):
        duckdb_answer(sql, tmp_path)
    ran = binary.run("sql", "--quiet", sql, cwd=tmp_path)
    assert ran.code in (USAGE, FAILED) and ran.err.startswith("error: "), ran.err


def test_violation_changes_nothing_and_names_value_and_constraint(tmp_path):
    ran = binary.run("sql", "CREATE TABLE t (a INT CHECK (a > 0)); INSERT INTO t VALUES (5), (-1)", cwd=tmp_path)
    assert ran.code == FAILED and "row (-1) violates CHECK" in ran.err and "statement 2 of 2, line 1" in ran.err, ran.err


def test_comment_starts_a_query_and_options_still_get_help(tmp_path):
    assert answer("-- why\nSELECT 1 AS a", tmp_path) == (["a"], [["1.0"]])
    ran = binary.run("sql", "--outptu", "x.csv", "SELECT 1", cwd=tmp_path)
    assert ran.code == USAGE and "--outptu" in ran.err, ran.err


def test_parameters_of_the_command(tmp_path):
    sql = "SELECT $1 + ? AS a, $city AS c"
    assert answer(sql, tmp_path, "--param", "1=2", "--param", "city=Lyon") == (["a", "c"], [["4.0", "Lyon"]])
    ran = binary.run("sql", "SELECT 1", "--param", "x=1", cwd=tmp_path)
    assert ran.code == USAGE and "no statement has $x" in ran.err, ran.err
