-- Dates, times, time zones and intervals. harness/sql/typed.py describes the format.

-- case: dates-01 (reserved)
SELECT OrderDate, year(OrderDate) AS y, month(OrderDate) AS m, day(OrderDate) AS d, dayofweek(OrderDate) AS w FROM orders ORDER BY OrderID LIMIT 4

-- case: dates-02
SELECT extract(year FROM OrderDate) AS y, extract('dow' FROM OrderDate) AS dow, date_part('quarter', OrderDate) AS q FROM orders ORDER BY OrderID LIMIT 4

-- case: dates-03
SELECT date_trunc('month', OrderDate) AS m, sum(Amount) AS s FROM orders GROUP BY ALL ORDER BY ALL

-- case: dates-04
SELECT date_trunc('week', ShippedAt) AS w, count(*) AS n FROM orders GROUP BY w ORDER BY w

-- case: dates-05
SELECT strftime(OrderDate, '%d.%m.%Y') AS d, strftime(ShippedAt, '%H:%M') AS t FROM orders ORDER BY OrderID LIMIT 6

-- case: dates-06 (reserved)
SELECT strftime(OrderDate, '%Y-%m') AS month, count(*) AS n FROM orders GROUP BY month ORDER BY month

-- case: dates-07
SELECT strptime('31/01/2024', '%d/%m/%Y') AS t, strptime('2024-02-29 13:05', '%Y-%m-%d %H:%M')::DATE AS d

-- case: dates-08
SELECT try_strptime('nonsense', '%Y-%m-%d') AS t, try_strptime('2024-05-06', ['%d.%m.%Y', '%Y-%m-%d']) AS u

-- case: dates-09 (reserved)
SELECT OrderDate + 7 AS next_week, OrderDate - 1 AS before, OrderDate + INTERVAL 1 MONTH AS next_month FROM orders ORDER BY OrderID LIMIT 3

-- case: dates-10
SELECT DATE '2024-01-31' + INTERVAL 1 MONTH AS clipped, DATE '2024-03-01' - DATE '2024-02-01' AS days

-- case: dates-11
SELECT OrderID, ShippedAt - OrderDate::TIMESTAMP AS took FROM orders WHERE ShippedAt IS NOT NULL ORDER BY OrderID LIMIT 3

-- case: dates-12
SELECT datediff('day', SignedUp, DATE '2024-06-30') AS days, date_diff('month', SignedUp, DATE '2024-06-30') AS months FROM customers ORDER BY CustomerID

-- case: dates-13
-- duckdb: SELECT OrderID, strftime(ShippedAt, '%d.%m.%Y %H:%M') AS t FROM orders ORDER BY OrderID LIMIT 5
SELECT OrderID, to_char(ShippedAt, 'DD.MM.YYYY HH24:MI') AS t FROM orders ORDER BY OrderID LIMIT 5

-- case: dates-14 (reserved)
-- duckdb: SELECT strptime('05 Mar 2024', '%d %b %Y')::DATE AS d
SELECT to_date('05 Mar 2024', 'DD Mon YYYY') AS d

-- case: dates-15
SELECT date_sub('month', DATE '2024-01-31', DATE '2024-03-30') AS s, datesub('year', DATE '2000-05-05', DATE '2024-05-04') AS y

-- case: dates-16
SELECT age(DATE '2024-03-01', DATE '2022-12-25') AS a

-- case: dates-17
SELECT Name FROM customers WHERE SignedUp >= DATE '2022-01-01' AND SignedUp < DATE '2023-01-01' ORDER BY SignedUp

-- case: dates-18
SELECT Name FROM customers WHERE SignedUp > '2022-12-01' ORDER BY Name

-- case: dates-19
SELECT count(*) AS n FROM orders WHERE OrderDate > current_date - INTERVAL 100 YEAR

-- case: dates-20 (reserved)
SELECT today() >= DATE '2024-01-01' AS a, now() > TIMESTAMPTZ '2024-01-01 00:00:00+00' AS b, current_timestamp IS NOT NULL AS c

-- case: dates-21 (reserved)
SELECT last_day(OrderDate) AS eom, monthname(OrderDate) AS m, dayname(OrderDate) AS d FROM orders ORDER BY OrderID LIMIT 3

-- case: dates-22 (reserved)
SELECT make_date(2024, 2, 29) AS d, make_timestamp(2024, 2, 29, 12, 30, 15.5) AS t, make_time(7, 5, 0) AS x

-- case: dates-23
SELECT ReadAt AT TIME ZONE 'Europe/Berlin' AS local FROM sensors WHERE Sensor = 's1' ORDER BY ReadAt LIMIT 4

-- case: dates-24 (reserved)
SELECT TIMESTAMP '2024-07-01 12:00:00' AT TIME ZONE 'America/New_York' AS t

-- case: dates-25
SELECT date_trunc('day', ReadAt AT TIME ZONE 'Asia/Tokyo') AS day, count(*) AS n FROM sensors GROUP BY day ORDER BY day

-- case: dates-26
SELECT time_bucket(INTERVAL '1 hour', ReadAt) AS h, avg(Value) AS v FROM sensors GROUP BY h ORDER BY h

-- case: dates-27 (reserved)
SELECT time_bucket(INTERVAL 15 MINUTES, Time) AS q, sum(Qty) AS qty FROM trades GROUP BY ALL ORDER BY ALL

-- case: dates-28
SELECT epoch(TIMESTAMP '2024-01-01 00:00:00') AS s, epoch_ms(TIMESTAMP '2024-01-01 00:00:01.5') AS ms, to_timestamp(1704067200) AS t

-- case: dates-29 (reserved)
SELECT epoch_ms(1704067200000) AS t, make_timestamp(1704067200000000) AS u

-- case: dates-30 (reserved)
SELECT generate_series AS day FROM generate_series(DATE '2024-02-27', DATE '2024-03-02', INTERVAL 1 DAY)

-- case: dates-31
SELECT unnest(generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-01 03:00:00', INTERVAL 1 HOUR)) AS t

-- case: dates-32
SELECT * FROM range(DATE '2024-01-01', DATE '2024-01-08', INTERVAL 2 DAY)

-- case: dates-33
SELECT weekofyear(DATE '2024-12-30') AS w, isoyear(DATE '2024-12-30') AS y, yearweek(DATE '2024-12-30') AS yw, dayofyear(DATE '2024-12-30') AS dy

-- case: dates-34
SELECT INTERVAL '1 year 2 months 3 days' AS i, INTERVAL 90 MINUTE AS m, to_days(3) AS d

-- case: dates-35 (reserved)
SELECT hour(ShippedAt) AS h, minute(ShippedAt) AS m, count(*) AS n FROM orders WHERE ShippedAt IS NOT NULL GROUP BY ALL ORDER BY ALL

-- case: dates-36
-- data error: 2024-02-30
SELECT CAST('2024-02-30' AS DATE) AS d

-- case: dates-37 (reserved)
SELECT '12:34:56'::TIME AS t, TIME '23:59:59' - INTERVAL 1 HOUR AS u, ShippedAt::TIME AS s FROM orders ORDER BY OrderID LIMIT 2

-- case: dates-38
SELECT max(OrderDate) - min(OrderDate) AS span, max(ShippedAt)::DATE AS last FROM orders

-- case: dates-39
SELECT '2024-01-01'::DATE < '2024-01-01 00:00:01'::TIMESTAMP AS b, TIMESTAMP '2024-05-06 07:08:09.123456' AS t
