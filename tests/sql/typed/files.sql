-- Parquet and JSON files, globs, Hive folders, file metadata. harness/sql/typed.py describes the format.

-- case: files-01 (reserved)
SELECT count(*) AS n FROM 'orders.parquet'

-- case: files-02
SELECT * FROM read_parquet('customers.parquet') ORDER BY CustomerID LIMIT 2

-- case: files-03
FROM read_parquet(['parts/part-0.parquet', 'parts/part-2.parquet']) ORDER BY Id

-- case: files-04 (reserved)
SELECT Part, count(*) AS n, sum(X) AS s FROM 'parts/*.parquet' GROUP BY Part ORDER BY Part

-- case: files-05
SELECT count(*) AS n FROM read_parquet('parts/part-[01].parquet')

-- case: files-06
SELECT count(*) AS n FROM 'parts/part-?.parquet'

-- case: files-07
SELECT count(*) AS n FROM '**/*.parquet'

-- case: files-08
SELECT filename, count(*) AS n FROM read_parquet('parts/*.parquet', filename = true) GROUP BY filename ORDER BY filename

-- case: files-09
SELECT parse_filename(filename) AS f, max(Id) AS m FROM read_parquet('parts/*.parquet', filename = true) GROUP BY ALL ORDER BY ALL

-- case: files-10
SELECT file, count(*) AS n FROM read_csv('logs/*.csv', filename = 'file') GROUP BY file ORDER BY file

-- case: files-11 (reserved)
SELECT * FROM 'logs/*.csv' WHERE Level = 'ERROR' ORDER BY Day

-- case: files-12 (reserved)
SELECT Level, count(*) AS n FROM read_csv('logs/2024-0[12].csv') GROUP BY Level ORDER BY Level

-- case: files-13
SELECT count(*) AS n FROM read_csv(['logs/2024-01.csv', 'logs/2024-03.csv'])

-- case: files-14 (reserved)
SELECT * FROM 'hive/*/*/*.parquet' ORDER BY Id

-- case: files-15
SELECT Year, Month, sum(Amount) AS s FROM read_parquet('hive/**/*.parquet', hive_partitioning = true) GROUP BY ALL ORDER BY ALL

-- case: files-16
SELECT max(Month) AS last FROM read_parquet('hive/*/*/*.parquet') WHERE Year = 2023

-- case: files-17
SELECT Month, typeof(Month) AS t FROM 'hive/**/*.parquet' WHERE Year = 2024 AND Month > 5 ORDER BY ALL

-- case: files-18
SELECT * FROM read_parquet('hive/*/*/*.parquet', hive_partitioning = false) ORDER BY Id LIMIT 3

-- case: files-19
SELECT count(*) AS n FROM read_parquet('hive/Year=2023/**/*.parquet') WHERE Amount > 15

-- case: files-20
SELECT Year, Month FROM read_parquet('hive/*/*/*.parquet', hive_types = {'Year': VARCHAR, 'Month': BIGINT}) ORDER BY ALL LIMIT 2

-- case: files-21 (reserved)
SELECT Country, sum(Total) AS t FROM 'shops/*/*.csv' GROUP BY Country ORDER BY Country

-- case: files-22 (reserved)
FROM read_csv('shops/**/*.csv', hive_partitioning = true) ORDER BY Shop

-- case: files-23
FROM read_csv('by_name/*.csv', union_by_name = true) ORDER BY id

-- case: files-24 (reserved)
SELECT * FROM read_parquet('evolving/*.parquet', union_by_name = true) ORDER BY Id

-- case: files-25
SELECT * FROM read_parquet(['evolving/v1.parquet', 'evolving/v2.parquet'], union_by_name = true, filename = true) ORDER BY Id

-- case: files-26
FROM 'events.json'

-- case: files-27 (reserved)
SELECT id, kind, value FROM 'events.json' WHERE kind = 'click' ORDER BY id

-- case: files-28 (reserved)
SELECT "user".name AS who, count(*) AS n FROM 'events.json' GROUP BY who ORDER BY who

-- case: files-29
SELECT id, ts::DATE AS day, typeof(ts) AS t FROM read_json('events.json') ORDER BY id

-- case: files-30
SELECT * FROM read_ndjson('events.json') ORDER BY id LIMIT 2

-- case: files-31
FROM 'users.json'

-- case: files-32 (reserved)
SELECT Name, Address.City AS city FROM 'users.json' WHERE Address IS NOT NULL ORDER BY Name

-- case: files-33
SELECT Name, Born, year(Born) AS y FROM read_json_auto('users.json') ORDER BY Name

-- case: files-34
SELECT name, age FROM read_json('users.json', format = 'array') ORDER BY age NULLS FIRST

-- case: files-35
SELECT * FROM read_json('users.json', columns = {'Name': 'VARCHAR', 'Age': 'BIGINT'}) ORDER BY Name

-- case: files-36
SELECT "order", unnest(lines) AS line FROM 'order.json'

-- case: files-37
SELECT l.sku, l.qty FROM (SELECT unnest(lines) AS l FROM 'order.json') ORDER BY l.sku

-- case: files-38
SELECT u.name, unnest(u.tags) AS tag FROM (SELECT "user" AS u FROM 'events.json') ORDER BY ALL

-- case: files-39 (reserved)
SELECT * FROM 'products.csv.gz' ORDER BY ProductID LIMIT 2

-- case: files-40
SELECT count(*) AS n FROM read_csv('products.csv.gz', compression = 'gzip')

-- case: files-41 (reserved)
SELECT kind, count(*) AS n FROM 'events.json.gz' GROUP BY kind ORDER BY kind

-- case: files-42 (reserved)
SELECT p.Name, l.Level FROM 'people.csv' p, 'logs/*.csv' l WHERE p.City = 'Rome' ORDER BY ALL

-- case: files-43
SELECT c.Name, count(*) AS n FROM 'customers.parquet' c JOIN 'orders.parquet' o USING (CustomerID) GROUP BY c.Name ORDER BY n DESC, c.Name

-- case: files-44
SELECT file_name, num_rows FROM parquet_file_metadata('parts/part-0.parquet')

-- case: files-45 (reserved)
SELECT name, type FROM parquet_schema('quotes.parquet')

-- case: files-46
SELECT file FROM glob('logs/*') ORDER BY file

-- case: files-47 (reserved)
SELECT filename, size FROM read_text('script.sql')

-- case: files-48
-- data error: nothing/*.parquet
SELECT * FROM read_parquet('nothing/*.parquet')

-- case: files-49
-- data error: missing.csv
FROM 'missing.csv'

-- case: files-50 (reserved)
SELECT count(*) AS n, min(Day) AS first, max(Day) AS last FROM read_csv_auto('logs/*.csv')

-- case: files-51
SELECT Id, file_row_number FROM read_parquet('parts/part-1.parquet', file_row_number = true) ORDER BY Id

-- case: files-52
WITH a AS (FROM 'parts/part-0.parquet'), b AS (FROM 'people.csv') SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b
