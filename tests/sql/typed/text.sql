-- Text functions and patterns. harness/sql/typed.py describes the format.

-- case: text-01
SELECT upper(Name) AS u, lower(Name) AS l, length(Name) AS n FROM customers ORDER BY CustomerID

-- case: text-02
SELECT Name || ' <' || Email || '>' AS address FROM customers ORDER BY CustomerID

-- case: text-03 (reserved)
SELECT concat(Name, ' (', City, ')') AS label, concat_ws(', ', City, Country) AS place FROM customers ORDER BY CustomerID

-- case: text-04 (reserved)
SELECT substr(Name, 1, 3) AS a, Name[1:3] AS b, left(Name, 2) AS c, right(Name, 2) AS d FROM customers ORDER BY CustomerID

-- case: text-05
SELECT split_part(Email, '@', 2) AS domain, count(*) AS n FROM customers WHERE Email LIKE '%@%' GROUP BY domain ORDER BY domain

-- case: text-06 (reserved)
SELECT string_split(Body, ', ') AS parts FROM texts WHERE Id = 6

-- case: text-07 (reserved)
SELECT Id, trim(Body) AS t, length(trim(Body)) AS n FROM texts ORDER BY Id

-- case: text-08 (reserved)
SELECT replace(Code, '/', '-') AS c, position('-' IN Code) AS p, strpos(Code, '-') AS s FROM texts ORDER BY Id

-- case: text-09 (reserved)
SELECT Id FROM texts WHERE regexp_matches(Body, '^[A-Z]') ORDER BY Id

-- case: text-10
SELECT regexp_extract(Code, '([A-Za-z])-(\d+)', 2) AS num FROM texts ORDER BY Id

-- case: text-11
SELECT regexp_replace(Body, '[aeiou]', '*', 'g') AS masked FROM texts ORDER BY Id

-- case: text-12
SELECT regexp_extract_all(Body, '\w+@\w+\.\w+') AS mails FROM texts WHERE Id = 7

-- case: text-13
SELECT Name FROM customers WHERE Name SIMILAR TO '.*(Ott|Chen)' ORDER BY Name

-- case: text-14
SELECT Name FROM customers WHERE Name ~ '^[A-C].*' ORDER BY Name

-- case: text-15
SELECT Name FROM customers WHERE starts_with(Name, 'E') OR contains(Name, 'Brien') OR suffix(Name, 'sato') ORDER BY Name

-- case: text-16
SELECT lpad(CustomerID::VARCHAR, 4, '0') AS code, rpad(Country, 4, '.') AS c, repeat('ab', 2) AS r FROM customers ORDER BY CustomerID

-- case: text-17 (reserved)
SELECT Body LIKE '%\%%' ESCAPE '\' AS has_percent FROM texts WHERE Id = 8

-- case: text-18
SELECT Name FROM customers WHERE Name NOT ILIKE '%o%' ORDER BY Name

-- case: text-19
SELECT format('{} has {} orders', 'Ann', 3) AS f, printf('%05.2f|%s', 3.14159, 'x') AS p

-- case: text-20
SELECT reverse('abc') AS r, ascii('A') AS a, chr(66) AS c, md5('abc') AS m, 'x' || 1 || true AS cat

-- case: text-21
SELECT string_split(Name, ' ')[1] AS first_name, string_split(Name, ' ')[-1] AS last_name FROM customers ORDER BY CustomerID

-- case: text-22 (reserved)
SELECT lower(Body) AS l, strip_accents(Body) AS s, length(Body) AS chars, strlen(Body) AS bytes FROM texts WHERE Id = 3

-- case: text-23
SELECT Email FROM customers WHERE Email = '' OR Email IS NULL ORDER BY CustomerID

-- case: text-24
-- duckdb: SELECT 'Hello World' AS i, 'aXXef' AS o
SELECT initcap('hello world') AS i, overlay('abcdef' PLACING 'XX' FROM 2 FOR 3) AS o

-- case: text-25
SELECT translate('2024/01/05', '/', '-') AS t, substring('hello' FROM 2 FOR 3) AS s, trim(BOTH 'x' FROM 'xxhixx') AS b, ltrim('  a') AS l

-- case: text-26 (reserved)
SELECT levenshtein('kitten', 'sitting') AS d, jaccard('duck', 'luck') AS j, hamming('abc', 'abd') AS h

-- case: text-27 (reserved)
SELECT 'It''s' AS a, E'tab\there' AS b, $$no 'escape'$$ AS c

-- case: text-28
SELECT array_to_string(['a', 'b', 'c'], '-') AS s, list_aggregate(['x', 'y'], 'string_agg', '+') AS t

-- case: text-29
SELECT sha256('abc') AS s, base64('abc'::BLOB) AS b, hex('abc') AS h, url_encode('a b') AS u

-- case: text-30 (reserved)
-- duckdb: SELECT OrderID, strftime(OrderDate, '%Y-%m') AS m FROM orders ORDER BY OrderID LIMIT 5
SELECT OrderID, to_char(OrderDate, 'YYYY-MM') AS m FROM orders ORDER BY OrderID LIMIT 5

-- case: text-31
SELECT Code, parse_filename('a/b/c.csv') AS f, string_split_regex('a1b22c', '\d+') AS parts FROM texts WHERE Id = 1

-- case: text-32
SELECT Name COLLATE NOCASE AS n FROM customers ORDER BY n

-- case: text-33
SELECT Code SIMILAR TO '[A-Z]-\d+.*' AS ok, regexp_full_match(Code, '[A-Z]-\d/.*') AS full_match FROM texts ORDER BY Id

-- case: text-34
SELECT count(*) AS n FROM texts WHERE Body GLOB '*fox*'

-- case: text-35 (reserved)
SELECT md5(concat(Name, Country)) AS k FROM customers ORDER BY CustomerID LIMIT 2
