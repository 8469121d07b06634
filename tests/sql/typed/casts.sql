-- Casts, numbers and overflow. harness/sql/typed.py describes the format.

-- case: casts-01 (reserved)
SELECT '42'::INT + 1 AS n, CAST('3.50' AS DECIMAL(5, 2)) AS d, 1::BOOLEAN AS b, 'true'::BOOL AS t

-- case: casts-02
SELECT Amount::INT AS whole, Amount::VARCHAR AS txt, Amount::DOUBLE AS f FROM orders ORDER BY OrderID LIMIT 4

-- case: casts-03
SELECT try_cast('abc' AS INTEGER) AS bad, try_cast('12' AS INTEGER) AS good

-- case: casts-04 (reserved)
-- data error: abc
SELECT 'abc'::INTEGER AS x

-- case: casts-05
-- data error: overflow|9223372036854775807
SELECT 9223372036854775807 + 1 AS x

-- case: casts-06
SELECT sum(x) AS s FROM (VALUES (9223372036854775807::BIGINT), (1::BIGINT)) t(x)

-- case: casts-07
-- data error: 300
SELECT 300::TINYINT AS t

-- case: casts-08
SELECT 1.5::INT AS a, 2.5::INT AS b, -1.5::INT AS c, 0.49::INT AS d

-- case: casts-09 (reserved)
SELECT 5 / 2 AS d, 5 // 2 AS i, -7 // 2 AS neg, -7 % 3 AS m, 5.0 / 2 AS f

-- case: casts-10
SELECT 1 / 0 AS z, 1 % 0 AS m

-- case: casts-11
SELECT round(2.567, 1) AS r, floor(-2.5) AS f, ceil(2.1) AS c, trunc(-2.7) AS t, abs(-3) AS a, sign(-2) AS s

-- case: casts-12 (reserved)
SELECT 0.1 + 0.2 AS d, 0.1::DOUBLE + 0.2 AS f, 1e3 AS e

-- case: casts-13 (reserved)
SELECT 2 ** 10 AS p, 2 ^ 3 AS q, pow(2, 0.5) AS r, sqrt(16) AS s, exp(1) AS e, ln(10) AS l, log10(1000) AS t

-- case: casts-14
SELECT typeof(1) AS a, typeof(1.5) AS b, typeof('x') AS c, typeof(DATE '2024-01-01') AS d, typeof([1]) AS e

-- case: casts-15
SELECT '2024-01-05'::DATE AS d, '2024-01-05 10:00'::TIMESTAMP AS t, DATE '2024-01-05'::VARCHAR AS v

-- case: casts-16
SELECT '[1, 2, 3]'::INT[] AS l, [1, 2]::VARCHAR AS s

-- case: casts-17
SELECT OrderID::VARCHAR || '-' || Status AS k FROM orders ORDER BY OrderID LIMIT 2

-- case: casts-18 (reserved)
SELECT * FROM orders WHERE OrderID = '1003'

-- case: casts-19 (reserved)
SELECT 'a' = 'A' AS same, NULL = NULL AS nn, 1 = 1.0 AS one

-- case: casts-20
SELECT 123456789.987654321::DECIMAL(18, 3) AS d, 1::DECIMAL(4, 1) / 3 AS q, 10::DECIMAL(4, 2) * 1.5 AS m

-- case: casts-21
SELECT CAST('0x1F' AS INT) AS h, 1_500 AS u

-- case: casts-22
SELECT 'NaN'::DOUBLE AS n, 'inf'::DOUBLE AS i, isnan('NaN'::DOUBLE) AS b

-- case: casts-23 (reserved)
SELECT CAST(Salary AS FLOAT) / 12 AS monthly, (Salary / 12)::DECIMAL(10, 2) AS m2 FROM employees ORDER BY Id LIMIT 2

-- case: casts-24
SELECT '550e8400-e29b-41d4-a716-446655440000'::UUID AS u, 'abc'::BLOB AS b, 170141183460469231731687303715884105727::HUGEINT AS h
