-- PIVOT, UNPIVOT and reshaping by hand. harness/sql/typed.py describes the format.

-- case: reshaping-01
PIVOT sales ON Quarter USING sum(Revenue)

-- case: reshaping-02 (reserved)
PIVOT sales ON Quarter USING sum(Units) GROUP BY Region ORDER BY Region

-- case: reshaping-03
PIVOT sales ON Year USING sum(Revenue) GROUP BY Region, Product ORDER BY ALL

-- case: reshaping-04
PIVOT sales ON Year USING sum(Units) AS units, max(Revenue) AS top GROUP BY Region ORDER BY Region

-- case: reshaping-05 (reserved)
PIVOT sales ON Product IN ('Tea', 'Coffee') USING avg(Revenue) GROUP BY Year ORDER BY Year

-- case: reshaping-06
SELECT * FROM sales PIVOT (sum(Revenue) FOR Quarter IN ('Q1', 'Q2') GROUP BY Region) ORDER BY Region

-- case: reshaping-07
SELECT Region, "2023", "2024" FROM (PIVOT sales ON Year USING sum(Revenue) GROUP BY Region) ORDER BY Region

-- case: reshaping-08 (reserved)
WITH p AS (PIVOT (SELECT Region, Quarter, Units FROM sales) ON Quarter USING sum(Units)) SELECT Region, Q1 + Q2 AS first_half FROM p ORDER BY Region

-- case: reshaping-09 (reserved)
PIVOT orders ON Status USING count(*) GROUP BY Express ORDER BY Express

-- case: reshaping-10
FROM orders PIVOT (count(*) FOR Status IN ('new', 'paid') GROUP BY Items) ORDER BY Items

-- case: reshaping-11
UNPIVOT 'wide_sales.csv' ON Jan, Feb, Mar INTO NAME Month VALUE Sold

-- case: reshaping-12
UNPIVOT 'wide_sales.csv' ON COLUMNS(* EXCLUDE Region) INTO NAME Month VALUE Sold ORDER BY Region, Month

-- case: reshaping-13
SELECT * FROM 'wide_sales.csv' UNPIVOT (Sold FOR Month IN (Jan, Feb, Mar)) ORDER BY Region, Month

-- case: reshaping-14
SELECT * FROM 'wide_sales.csv' UNPIVOT INCLUDE NULLS (Sold FOR Month IN (Jan, Feb, Mar)) ORDER BY Region, Month

-- case: reshaping-15 (reserved)
SELECT Month, sum(Sold) AS Total FROM (UNPIVOT 'wide_sales.csv' ON Jan, Feb, Mar INTO NAME Month VALUE Sold) GROUP BY Month ORDER BY Month

-- case: reshaping-16 (reserved)
UNPIVOT (SELECT Id, Salary, ManagerId FROM employees) ON Salary, ManagerId ORDER BY Id, name

-- case: reshaping-17
SELECT Region, sum(Revenue) FILTER (WHERE Year = 2023) AS y2023, sum(Revenue) FILTER (WHERE Year = 2024) AS y2024 FROM sales GROUP BY Region ORDER BY Region

-- case: reshaping-18 (reserved)
SELECT Region, sum(CASE WHEN Product = 'Tea' THEN Units ELSE 0 END) AS Tea, sum(CASE WHEN Product = 'Coffee' THEN Units ELSE 0 END) AS Coffee FROM sales GROUP BY Region ORDER BY 1

-- case: reshaping-19
SELECT Id, unnest(Items) AS Item FROM baskets ORDER BY Id, Item NULLS LAST

-- case: reshaping-20
PIVOT employees ON Department USING count(*)
