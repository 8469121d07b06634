-- DESCRIBE, SHOW, SUMMARIZE and the catalogue. harness/sql/typed.py describes the format.

-- case: describe-01
DESCRIBE orders

-- case: describe-02
DESCRIBE SELECT OrderID, Amount * 2 AS twice, Tags FROM orders

-- case: describe-03 (reserved)
DESCRIBE 'products.csv'

-- case: describe-04 (reserved)
DESC customers

-- case: describe-05
DESCRIBE FROM 'events.json'

-- case: describe-06
DESCRIBE SELECT * FROM 'Semicolons.csv'

-- case: describe-07
SHOW TABLES

-- case: describe-08
SUMMARIZE employees

-- case: describe-09 (reserved)
SUMMARIZE SELECT Amount, Items, Express FROM orders

-- case: describe-10
SUMMARIZE 'products.csv'

-- case: describe-11
SELECT column_name, min, max, null_percentage FROM (SUMMARIZE customers)

-- case: describe-12
SELECT column_name, column_type FROM (DESCRIBE orders) WHERE column_type LIKE 'VARCHAR%'

-- case: describe-13
SELECT table_name FROM information_schema.tables ORDER BY table_name

-- case: describe-14
SELECT column_name, data_type, ordinal_position FROM information_schema.columns WHERE table_name = 'employees' ORDER BY ordinal_position

-- case: describe-15
SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = 'quotes' ORDER BY column_name

-- case: describe-16 (reserved)
CREATE TABLE Prices (Sku VARCHAR PRIMARY KEY, Price DECIMAL(8, 2) NOT NULL, Since DATE DEFAULT DATE '2024-01-01');
DESCRIBE Prices

-- case: describe-17 (reserved)
CREATE TABLE Prices (Sku VARCHAR, Price DECIMAL(8, 2)); SHOW Prices

-- case: describe-18
PRAGMA table_info('employees')

-- case: describe-19 (reserved)
CREATE TABLE t1 (a INT, b TEXT, c TIMESTAMPTZ, d BIGINT[], e DOUBLE); DESCRIBE t1

-- case: describe-20
CREATE VIEW v AS SELECT Region, sum(Revenue) AS Total FROM sales GROUP BY ALL; DESCRIBE v

-- case: describe-21 (reserved)
CREATE TABLE mine (a INT, b VARCHAR); SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'mine' ORDER BY column_index

-- case: describe-22
SELECT typeof(Amount) AS a, typeof(ShippedAt) AS s, typeof(Tags) AS t FROM orders LIMIT 1

-- case: describe-23
DESCRIBE TABLE sales

-- case: describe-24
DESCRIBE SELECT count(*) AS n, avg(Amount) AS a, max(OrderDate) AS d, sum(Items) AS s FROM orders

-- case: describe-25 (reserved)
SELECT column_name, approx_unique, count FROM (SUMMARIZE sales)
