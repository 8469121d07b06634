-- Tables, views, constraints and changes of rows. harness/sql/typed.py describes the format.

-- case: tables-01
CREATE TABLE t AS SELECT OrderID, Amount FROM orders WHERE Express; SELECT count(*) AS n, sum(Amount) AS s FROM t

-- case: tables-02
CREATE TEMP TABLE big AS SELECT * FROM orders WHERE Amount > 60;
SELECT count(*) AS n FROM big;

-- case: tables-03
CREATE TEMPORARY TABLE x (a INT, b VARCHAR); INSERT INTO x VALUES (1, 'one'), (2, 'two'); FROM x ORDER BY a

-- case: tables-04
CREATE OR REPLACE TABLE t AS FROM 'products.csv'; CREATE OR REPLACE TABLE t AS SELECT 1 AS a; FROM t

-- case: tables-05
CREATE TABLE IF NOT EXISTS t (a INT); CREATE TABLE IF NOT EXISTS t (a INT); INSERT INTO t VALUES (7); SELECT a FROM t

-- case: tables-06 (reserved)
CREATE VIEW Paid AS SELECT * FROM orders WHERE Status = 'paid'; SELECT count(*) AS n FROM paid

-- case: tables-07
CREATE OR REPLACE VIEW v AS SELECT Name, City FROM customers; SELECT * FROM v WHERE City = 'Lyon' ORDER BY Name

-- case: tables-08 (reserved)
-- data error: PRIMARY KEY|duplicate|unique
CREATE TABLE t (Id INTEGER PRIMARY KEY, Name VARCHAR); INSERT INTO t VALUES (1, 'a'), (1, 'b')

-- case: tables-09 (reserved)
-- data error: UNIQUE|duplicate
CREATE TABLE t (Email VARCHAR UNIQUE); INSERT INTO t VALUES ('a@x'), ('a@x')

-- case: tables-10 (reserved)
-- data error: NOT NULL
CREATE TABLE t (a INT NOT NULL); INSERT INTO t VALUES (NULL)

-- case: tables-11
-- data error: CHECK
CREATE TABLE t (Qty INT CHECK (Qty > 0)); INSERT INTO t VALUES (5), (-1)

-- case: tables-12 (reserved)
CREATE TABLE t (a INT DEFAULT 42, b VARCHAR); INSERT INTO t (b) VALUES ('x'); FROM t

-- case: tables-13
CREATE TABLE t (a INT, b VARCHAR); INSERT INTO t (b, a) VALUES ('x', 1), ('y', 2); SELECT a, b FROM t ORDER BY a

-- case: tables-14
CREATE TABLE t (a INT, b VARCHAR); INSERT INTO t BY NAME SELECT 'q' AS b, 3 AS a; FROM t

-- case: tables-15
CREATE TABLE t AS SELECT * FROM employees; UPDATE t SET Salary = Salary * 1.1 WHERE Department = 'Sales'; SELECT Name, Salary FROM t WHERE Department = 'Sales' ORDER BY Id

-- case: tables-16 (reserved)
CREATE TABLE t AS SELECT Id, Name FROM employees; DELETE FROM t WHERE Id > 3; SELECT count(*) AS n FROM t

-- case: tables-17 (reserved)
CREATE TABLE t AS FROM range(10) r(i); DELETE FROM t WHERE i % 2 = 0 RETURNING i

-- case: tables-18 (reserved)
CREATE TABLE t (Id INT, Name VARCHAR); INSERT INTO t VALUES (1, 'a'), (2, 'b') RETURNING Id, upper(Name) AS n

-- case: tables-19
CREATE TABLE t (Id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 10); INSERT INTO t VALUES (1, 20), (2, 30) ON CONFLICT (Id) DO UPDATE SET n = excluded.n; FROM t ORDER BY Id

-- case: tables-20
CREATE TABLE t (Id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 10); INSERT OR IGNORE INTO t VALUES (1, 20), (2, 30); FROM t ORDER BY Id

-- case: tables-21
CREATE TABLE t (Id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 10); INSERT OR REPLACE INTO t VALUES (1, 99); FROM t

-- case: tables-22 (reserved)
CREATE TABLE t (a INT); ALTER TABLE t ADD COLUMN b VARCHAR DEFAULT 'x'; INSERT INTO t (a) VALUES (1); FROM t

-- case: tables-23
CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2); ALTER TABLE t RENAME COLUMN b TO c; ALTER TABLE t DROP COLUMN a; FROM t

-- case: tables-24
CREATE TABLE old (a INT); INSERT INTO old VALUES (1); ALTER TABLE old RENAME TO fresh; FROM fresh

-- case: tables-25
CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); TRUNCATE t; SELECT count(*) AS n FROM t

-- case: tables-26 (reserved)
CREATE TABLE t (a INT); DROP TABLE t; SELECT count(*) AS n FROM information_schema.tables WHERE table_name = 't'

-- case: tables-27
DROP TABLE IF EXISTS nothing_here; DROP VIEW IF EXISTS nothing_there; SELECT 'ok' AS r

-- case: tables-28 (reserved)
CREATE SCHEMA stage; CREATE TABLE stage.People AS FROM 'people.csv'; SELECT count(*) AS n FROM stage.people

-- case: tables-29
CREATE SEQUENCE ids START 10; SELECT nextval('ids') AS a, nextval('ids') AS b

-- case: tables-30 (reserved)
CREATE TYPE Mood AS ENUM ('sad', 'ok', 'happy'); CREATE TABLE p (Name VARCHAR, M Mood); INSERT INTO p VALUES ('a', 'happy'), ('b', 'sad'); SELECT Name FROM p ORDER BY M

-- case: tables-31
CREATE MACRO net(x, rate := 0.2) AS x / (1 + rate); SELECT round(net(120), 2) AS a, round(net(110, rate := 0.1), 2) AS b

-- case: tables-32
CREATE MACRO top_orders(n) AS TABLE SELECT OrderID, Amount FROM orders ORDER BY Amount DESC NULLS LAST, OrderID LIMIT n; FROM top_orders(3)

-- case: tables-33
CREATE TABLE t (Price DECIMAL(8, 2), Qty INT, Total DECIMAL(10, 2) GENERATED ALWAYS AS (Price * Qty)); INSERT INTO t VALUES (2.50, 4); FROM t

-- case: tables-34
CREATE TABLE src AS SELECT 1 AS id, 5 AS v UNION ALL SELECT 2, 6; CREATE TABLE t AS SELECT 1 AS id, 0 AS v; UPDATE t SET v = src.v FROM src WHERE t.id = src.id; FROM t

-- case: tables-35
CREATE TABLE "My Table" ("Some Column" INT); INSERT INTO "My Table" VALUES (3); SELECT "Some Column" + 1 AS n FROM "My Table"

-- case: tables-36
CREATE TABLE t (d DATE, ts TIMESTAMP, l INT[], s STRUCT(a INT, b VARCHAR)); INSERT INTO t VALUES ('2024-01-01', '2024-01-01 10:00', [1, 2], {'a': 1, 'b': 'x'}); SELECT d, ts, l[2] AS l2, s.b AS sb FROM t

-- case: tables-37
CREATE TABLE t AS SELECT 1 AS a; INSERT INTO t SELECT a + 1 FROM t; INSERT INTO t SELECT a + 2 FROM t; SELECT list(a ORDER BY a) AS l FROM t

-- case: tables-38
-- data error: abc
CREATE TABLE t (a INT); INSERT INTO t VALUES ('abc')

-- case: tables-39 (reserved)
-- data error: foreign key
CREATE TABLE dept (Id INT PRIMARY KEY); CREATE TABLE emp (Id INT, Dept INT REFERENCES dept(Id)); INSERT INTO dept VALUES (1); INSERT INTO emp VALUES (1, 2)
