-- Aggregates and grouping. harness/sql/typed.py describes the format.

-- case: aggregates-01
SELECT Status, count(*) AS n, sum(Amount) AS total FROM orders GROUP BY Status ORDER BY Status

-- case: aggregates-02
SELECT Status, Express, avg(Amount) AS mean FROM orders GROUP BY ALL ORDER BY ALL

-- case: aggregates-03 (reserved)
SELECT Status, count(*) FROM orders GROUP BY Status ORDER BY count(*) DESC, Status

-- case: aggregates-04
SELECT min(Amount), max(Amount), avg(Amount) FROM orders

-- case: aggregates-05
SELECT year(OrderDate) AS y, month(OrderDate) AS m, sum(Amount) AS total FROM orders GROUP BY y, m ORDER BY y, m

-- case: aggregates-06
SELECT Status, sum(Amount) AS total FROM orders GROUP BY 1 HAVING sum(Amount) > 300 ORDER BY 2 DESC

-- case: aggregates-07
SELECT count(*) FILTER (WHERE Express) AS fast, count(*) FILTER (WHERE NOT Express) AS slow FROM orders

-- case: aggregates-08 (reserved)
SELECT count_if(Amount > 50) AS big, count(*) AS n FROM orders

-- case: aggregates-09
SELECT median(Salary) AS med, mode(Department) AS common, stddev(Salary) AS sd, variance(Salary) AS v FROM employees

-- case: aggregates-10
SELECT quantile_cont(Amount, 0.9) AS p90, quantile_disc(Amount, 0.5) AS p50 FROM orders

-- case: aggregates-11 (reserved)
SELECT quantile_cont(Salary, [0.25, 0.5, 0.75]) AS q FROM employees

-- case: aggregates-12 (reserved)
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY Salary) AS med FROM employees

-- case: aggregates-13 (reserved)
SELECT Department, percentile_disc(0.5) WITHIN GROUP (ORDER BY Salary DESC) AS p FROM employees GROUP BY Department ORDER BY Department

-- case: aggregates-14 (reserved)
SELECT mode() WITHIN GROUP (ORDER BY Department) AS m FROM employees

-- case: aggregates-15
SELECT string_agg(Name, ', ' ORDER BY Name) AS names FROM customers

-- case: aggregates-16
SELECT Country, string_agg(Name, '; ' ORDER BY CustomerID DESC) AS names FROM customers GROUP BY Country ORDER BY Country

-- case: aggregates-17
SELECT group_concat(DISTINCT Status ORDER BY Status) AS s FROM orders

-- case: aggregates-18
SELECT Department, list(Name ORDER BY Name) AS names FROM employees GROUP BY Department ORDER BY Department

-- case: aggregates-19
SELECT array_agg(Salary ORDER BY Salary DESC) AS s FROM employees

-- case: aggregates-20
SELECT arg_max(Name, Salary) AS richest, arg_min(Name, Salary) AS poorest FROM employees

-- case: aggregates-21 (reserved)
SELECT Department, max_by(Name, HiredOn) AS newest FROM employees GROUP BY Department ORDER BY Department

-- case: aggregates-22 (reserved)
SELECT Region, arg_max(Quarter, Revenue) AS best FROM sales GROUP BY Region ORDER BY Region

-- case: aggregates-23
SELECT max(Salary, 3) AS top3, min(Salary, 2) AS low2 FROM employees

-- case: aggregates-24
SELECT first(Name ORDER BY Salary DESC) AS f, last(Name ORDER BY Salary DESC) AS l FROM employees

-- case: aggregates-25 (reserved)
SELECT any_value(Country) AS c, City FROM customers GROUP BY City ORDER BY City

-- case: aggregates-26
SELECT histogram(Status) AS h FROM orders

-- case: aggregates-27
SELECT approx_count_distinct(Status) AS n FROM orders

-- case: aggregates-28 (reserved)
SELECT bool_and(Items > 0) AS a, bool_or(Express) AS b, sum(Express::INT) AS fast FROM orders

-- case: aggregates-29
SELECT corr(Salary, Id) AS c, covar_pop(Salary, Id) AS cp, regr_slope(Salary, Id) AS s FROM employees

-- case: aggregates-30
SELECT Region, Product, sum(Revenue) AS r FROM sales GROUP BY ROLLUP (Region, Product) ORDER BY Region NULLS LAST, Product NULLS LAST

-- case: aggregates-31
SELECT Region, Year, sum(Units) AS u, grouping(Region, Year) AS g FROM sales GROUP BY CUBE (Region, Year) ORDER BY g, Region, Year

-- case: aggregates-32 (reserved)
SELECT Region, Product, count(*) AS n FROM sales GROUP BY GROUPING SETS ((Region), (Product), ()) ORDER BY ALL

-- case: aggregates-33 (reserved)
SELECT sum(Amount * Items) AS revenue, round(avg(Items), 2) AS items, product(Items) > 0 AS p FROM orders

-- case: aggregates-34
SELECT sum(Salary) AS s, sum(Salary) / count(*) AS mean, avg(Salary) AS a FROM employees

-- case: aggregates-35
SELECT count(DISTINCT (Status, Express)) AS combos FROM orders

-- case: aggregates-36 (reserved)
SELECT date_trunc('month', OrderDate) AS month, count(*) AS n FROM orders GROUP BY month ORDER BY month

-- case: aggregates-37
SELECT OrderDate >= '2024-07-01' AS second_half, sum(Amount) AS total FROM orders GROUP BY 1 ORDER BY 1

-- case: aggregates-38
SELECT Country, avg(Balance)::DECIMAL(10, 2) AS b FROM customers GROUP BY Country HAVING count(*) > 1 ORDER BY Country

-- case: aggregates-39 (reserved)
SELECT sum(Amount) FROM orders WHERE Status = 'unknown'

-- case: aggregates-40 (reserved)
SELECT Items, count(*) AS n, bar(count(*), 0, 10, 10) AS chart FROM orders GROUP BY Items ORDER BY Items

-- case: aggregates-41
SELECT stddev_pop(Value) AS sp, var_samp(Value) AS vs, skewness(Value) AS sk, mad(Value) AS m FROM sensors

-- case: aggregates-42
SELECT Sensor, avg(Value) AS a, min(ReadAt) AS first, max(ReadAt) AS last FROM sensors GROUP BY Sensor ORDER BY Sensor

-- case: aggregates-43
-- duckdb: SELECT Id, CASE WHEN Salary < 50000 THEN 0 WHEN Salary >= 200000 THEN 4 ELSE (Salary - 50000) // 50000 + 1 END::INT AS b FROM employees ORDER BY Id
SELECT Id, width_bucket(Salary, 50000, 200000, 3) AS b FROM employees ORDER BY Id

-- case: aggregates-44
SELECT entropy(Status) AS e, kurtosis(Items) AS k FROM orders
