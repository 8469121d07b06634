-- COPY to and from files. harness/sql/typed.py describes the format.

-- case: copy-01
-- read: SELECT * FROM read_csv('o.csv', delim = '|', header = true, all_varchar = true)
COPY orders TO 'o.csv' (HEADER, DELIMITER '|')

-- case: copy-02 (reserved)
-- read: SELECT * FROM read_csv('out.csv', delim = ',', header = true, all_varchar = true)
COPY (SELECT OrderID, Amount, Status FROM orders WHERE Express ORDER BY OrderID) TO 'out.csv'

-- case: copy-03
-- read: SELECT * FROM 'e.parquet'
COPY (FROM employees) TO 'e.parquet'

-- case: copy-04
-- read: SELECT * FROM 'c.parquet'
COPY (FROM customers) TO 'c.parquet' (FORMAT parquet, COMPRESSION zstd)

-- case: copy-05
-- read: SELECT * FROM 's.parquet'
COPY sales TO 's.parquet' (FORMAT PARQUET)

-- case: copy-06 (reserved)
-- read: SELECT * FROM read_csv('r.csv', header = true, all_varchar = true)
COPY (SELECT Region, sum(Revenue) AS Total FROM sales GROUP BY Region) TO 'r.csv' WITH (FORMAT csv, HEADER true)

-- case: copy-07 (reserved)
-- read: SELECT * FROM read_csv('e.csv', header = false, all_varchar = true)
COPY employees TO 'e.csv' (HEADER false, NULL 'NA')

-- case: copy-08 (reserved)
-- read: SELECT * FROM read_json('e.json')
COPY (SELECT Id, Name FROM employees) TO 'e.json'

-- case: copy-09 (reserved)
-- read: SELECT * FROM read_json('e.json', format = 'array')
COPY (SELECT Id, Name FROM employees) TO 'e.json' (FORMAT json, ARRAY true)

-- case: copy-10 (reserved)
-- read: SELECT * FROM read_parquet('by_region/**/*.parquet', hive_partitioning = true)
COPY sales TO 'by_region' (FORMAT parquet, PARTITION_BY (Region))

-- case: copy-11
-- read: SELECT * FROM read_csv('by_year/**/*.csv', hive_partitioning = true, header = true)
COPY sales TO 'by_year' (FORMAT csv, PARTITION_BY (Year, Region), OVERWRITE_OR_IGNORE)

-- case: copy-12
-- read: SELECT * FROM read_csv('q.csv', delim = ';', quote = '''', header = true, all_varchar = true)
COPY (SELECT 'a;b' AS x, 'say "hi"' AS y) TO 'q.csv' (DELIMITER ';', QUOTE '''', FORCE_QUOTE (x))

-- case: copy-13
-- read: SELECT * FROM read_csv('d.csv', header = true, all_varchar = true)
COPY (SELECT OrderDate, ShippedAt FROM orders) TO 'd.csv' (DATEFORMAT '%d/%m/%Y', TIMESTAMPFORMAT '%d/%m/%Y %H:%M')

-- case: copy-14 (reserved)
-- read: SELECT * FROM read_csv('fr.csv.gz', header = true, all_varchar = true)
COPY (SELECT * FROM customers WHERE Country = 'FR') TO 'fr.csv.gz' (FORMAT csv, COMPRESSION gzip)

-- case: copy-15
CREATE TABLE p (Name VARCHAR, Born DATE, City VARCHAR); COPY p FROM 'people.csv'; SELECT count(*) AS n, max(Born) AS b FROM p

-- case: copy-16
CREATE TABLE p (Name VARCHAR, Points INT); COPY p FROM 'crlf.csv' (HEADER true, DELIMITER ','); FROM p ORDER BY Name

-- case: copy-17
CREATE TABLE t AS SELECT * FROM 'parts/part-0.parquet' LIMIT 0; COPY t FROM 'parts/part-1.parquet' (FORMAT parquet); SELECT sum(Id) AS s FROM t

-- case: copy-18 (reserved)
CREATE TABLE p (id INT, name VARCHAR, score DOUBLE); COPY p FROM 'pipes.txt' WITH (FORMAT csv, DELIMITER '|', HEADER); SELECT avg(score) AS a FROM p

-- case: copy-19
CREATE TABLE p (id INT, name VARCHAR, city VARCHAR); COPY p (name, id, city) FROM 'by_name/b.csv' (HEADER); FROM p

-- case: copy-20
-- read: SELECT * FROM read_csv('sq.tsv', delim = '\t', header = true, all_varchar = true)
COPY (SELECT i, i * i AS sq FROM range(5) t(i)) TO 'sq.tsv' (DELIMITER '\t', HEADER)

-- case: copy-21
COPY customers TO 'c.csv'; SELECT count(*) AS n, count(Email) AS mails FROM 'c.csv'

-- case: copy-22
COPY orders TO 'o.parquet' (ROW_GROUP_SIZE 10); SELECT count(*) AS n, sum(Amount) AS s FROM 'o.parquet'

-- case: copy-23
-- read: SELECT * FROM read_csv('joined.csv', header = true, all_varchar = true)
COPY (SELECT Name, Amount FROM customers JOIN orders USING (CustomerID) ORDER BY Name, Amount NULLS LAST) TO 'joined.csv' CSV HEADER

-- case: copy-24
-- error: HEADR|headr -> HEADER
COPY orders TO 'o.csv' (HEADR)
