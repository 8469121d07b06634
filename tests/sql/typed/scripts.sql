-- Scripts of several statements, comments, PREPARE, SET. harness/sql/typed.py describes the format.

-- case: scripts-01 (reserved)
-- how many orders?
SELECT count(*) AS n FROM orders

-- case: scripts-02
/* block comment
   over two lines */
SELECT max(Amount) AS m FROM orders;

-- case: scripts-03
SELECT 1 AS a; SELECT 2 AS b; SELECT 3 AS c;

-- case: scripts-04 (reserved)
-- first the view
CREATE VIEW v AS SELECT Status, Amount FROM orders;

-- then the answer
SELECT Status, sum(Amount) AS total -- in euros
FROM v
GROUP BY Status
ORDER BY total DESC;

-- case: scripts-05
;;SELECT 1 AS a;;

-- case: scripts-06
SELECT 'a;b' AS s; SELECT 'x -- not a comment' AS t

-- case: scripts-07
PREPARE by_status AS SELECT count(*) AS n FROM orders WHERE Status = $1; EXECUTE by_status('paid')

-- case: scripts-08
PREPARE p AS SELECT OrderID FROM orders WHERE Amount > ? AND Items < ? ORDER BY OrderID; EXECUTE p(50, 4); EXECUTE p(70, 9)

-- case: scripts-09 (reserved)
PREPARE q AS SELECT Name FROM customers WHERE Country = $country ORDER BY Name; EXECUTE q(country := 'DE')

-- case: scripts-10
PREPARE p AS SELECT $1::INT + $2::INT AS s; EXECUTE p(1, 2); DEALLOCATE p; PREPARE p AS SELECT upper($1) AS u; EXECUTE p('x')

-- case: scripts-11
SET VARIABLE limit_date = DATE '2024-06-01'; SELECT count(*) AS n FROM orders WHERE OrderDate < getvariable('limit_date')

-- case: scripts-12
SET VARIABLE countries = ['FR', 'DE']; SELECT Name FROM customers WHERE list_contains(getvariable('countries'), Country) ORDER BY Name

-- case: scripts-13 (reserved)
SET VARIABLE top = (SELECT max(Salary) FROM employees); SELECT Name FROM employees WHERE Salary = getvariable('top')

-- case: scripts-14
BEGIN; CREATE TABLE t (a INT); INSERT INTO t VALUES (1); COMMIT; SELECT * FROM t

-- case: scripts-15
CREATE TABLE t AS SELECT 1 AS a; BEGIN TRANSACTION; INSERT INTO t VALUES (2); ROLLBACK; SELECT count(*) AS n FROM t

-- case: scripts-16
SET TimeZone = 'Europe/Paris'; SELECT TIMESTAMPTZ '2024-07-01 00:00:00+00' AS t, current_setting('TimeZone') AS z

-- case: scripts-17 (reserved)
SET threads = 1; SELECT sum(Amount) AS s FROM orders

-- case: scripts-18
SET memory_limit = '1GB'; SELECT count(*) AS n FROM customers

-- case: scripts-19
PRAGMA threads = 2; SELECT 'fine' AS r

-- case: scripts-20 (reserved)
SET default_null_order = 'nulls_first'; SELECT City FROM customers ORDER BY City

-- case: scripts-21
RESET threads; SELECT 1 AS ok

-- case: scripts-22 (reserved)
CREATE TEMP TABLE raw AS FROM read_csv('Semicolons.csv');
CREATE TEMP TABLE clean AS SELECT Station, Day, TempC FROM raw WHERE TempC IS NOT NULL;
SELECT Station, min(TempC) AS lo, max(TempC) AS hi FROM clean GROUP BY ALL ORDER BY ALL;

-- case: scripts-23
WITH x AS (SELECT 1 AS a) SELECT a FROM x; WITH y AS (SELECT 2 AS a) SELECT a + 1 AS b FROM y

-- case: scripts-24
	SELECT	Name ,
		City
	FROM	customers
	WHERE	City = 'Lyon' -- both
	ORDER	BY	Name

-- case: scripts-25
select NAME, CITY from CUSTOMERS where COUNTRY = 'JP'

-- case: scripts-26 (reserved)
CREATE TABLE log AS SELECT * FROM 'logs/*.csv'; UPDATE log SET Level = 'WARNING' WHERE Level = 'WARN'; DELETE FROM log WHERE Level = 'INFO'; SELECT Level, count(*) AS n FROM log GROUP BY Level ORDER BY Level

-- case: scripts-27
EXPLAIN ANALYZE SELECT 1; SELECT 2 AS b

-- case: scripts-28
-- error: SELEC -> SELECT
SELECT 1 AS a; SELEC 2

-- case: scripts-29
CREATE TABLE a AS SELECT 1 AS x;
CREATE TABLE b AS SELECT 2 AS x;
INSERT INTO a FROM b;
SELECT x FROM a ORDER BY x;

-- case: scripts-30 (reserved)
-- a comment; with a semicolon
SELECT count(*) AS n -- trailing; comment
FROM employees;

-- case: scripts-31 (reserved)
CREATE TABLE t AS SELECT i AS n FROM range(1, 6) r(i);
SELECT sum(n) AS s FROM t;
DROP TABLE t;
CREATE TABLE t AS SELECT 'again' AS w;
FROM t;
