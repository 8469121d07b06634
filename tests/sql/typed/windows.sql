-- Window functions and QUALIFY. harness/sql/typed.py describes the format.

-- case: windows-01
SELECT OrderID, Amount, row_number() OVER (ORDER BY OrderID) AS rn FROM orders ORDER BY OrderID LIMIT 5

-- case: windows-02
SELECT CustomerID, OrderID, row_number() OVER (PARTITION BY CustomerID ORDER BY OrderDate) AS nth FROM orders ORDER BY CustomerID, nth

-- case: windows-03
SELECT Name, Department, Salary, rank() OVER (PARTITION BY Department ORDER BY Salary DESC) AS r FROM employees ORDER BY Department, r, Name

-- case: windows-04
SELECT Name, Salary, dense_rank() OVER (ORDER BY Salary DESC) AS d, rank() OVER (ORDER BY Salary DESC) AS r FROM employees ORDER BY Salary DESC, Name

-- case: windows-05
SELECT * EXCLUDE (Tags) FROM orders QUALIFY row_number() OVER (PARTITION BY Status ORDER BY OrderDate DESC) = 1 ORDER BY Status

-- case: windows-06
SELECT CustomerID, OrderID, Amount FROM orders QUALIFY rank() OVER (PARTITION BY CustomerID ORDER BY OrderDate DESC) <= 2 ORDER BY CustomerID, OrderID

-- case: windows-07
SELECT Region, Year, Quarter, sum(Revenue) OVER (PARTITION BY Region ORDER BY Year, Quarter) AS running FROM sales ORDER BY Region, Year, Quarter

-- case: windows-08 (reserved)
SELECT OrderDate, Amount, avg(Amount) OVER (ORDER BY OrderDate ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS moving FROM orders ORDER BY OrderDate

-- case: windows-09 (reserved)
SELECT OrderDate, sum(Amount) OVER (ORDER BY OrderDate RANGE BETWEEN INTERVAL 30 DAYS PRECEDING AND CURRENT ROW) AS month_sum FROM orders ORDER BY OrderDate

-- case: windows-10 (reserved)
SELECT OrderID, Amount, lag(Amount) OVER (ORDER BY OrderID) AS prev, Amount - prev AS diff FROM orders ORDER BY OrderID LIMIT 8

-- case: windows-11 (reserved)
SELECT OrderID, lead(OrderDate, 1) OVER (PARTITION BY CustomerID ORDER BY OrderDate) - OrderDate AS gap FROM orders ORDER BY OrderID

-- case: windows-12 (reserved)
SELECT Region, Revenue, Revenue / sum(Revenue) OVER (PARTITION BY Region) AS share FROM sales ORDER BY Region, Revenue

-- case: windows-13 (reserved)
SELECT Name, Salary, ntile(3) OVER (ORDER BY Salary, Id) AS third FROM employees ORDER BY Salary, Id

-- case: windows-14
SELECT Name, percent_rank() OVER w AS p, cume_dist() OVER w AS c FROM employees WINDOW w AS (ORDER BY Salary) ORDER BY Salary, Name

-- case: windows-15
SELECT Department, Name, first_value(Name) OVER (PARTITION BY Department ORDER BY Salary DESC, Id) AS best, last_value(Name) OVER (PARTITION BY Department ORDER BY Salary DESC, Id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS worst FROM employees ORDER BY Department, Name

-- case: windows-16
SELECT OrderID, Amount, lag(Amount IGNORE NULLS) OVER (ORDER BY OrderID) AS last_known FROM orders ORDER BY OrderID

-- case: windows-17
SELECT OrderID, last_value(Amount IGNORE NULLS) OVER (ORDER BY OrderID) AS filled FROM orders ORDER BY OrderID

-- case: windows-18
SELECT Status, count(*) AS n, sum(count(*)) OVER () AS total, round(100.0 * n / total, 1) AS pct FROM orders GROUP BY Status ORDER BY Status

-- case: windows-19
SELECT Sensor, ReadAt, Value, count(*) FILTER (WHERE Value IS NULL) OVER (PARTITION BY Sensor ORDER BY ReadAt) AS gaps FROM sensors ORDER BY Sensor, ReadAt

-- case: windows-20 (reserved)
SELECT Name, Salary - avg(Salary) OVER (PARTITION BY Department) AS vs_avg FROM employees WHERE Department IS NOT NULL ORDER BY Name

-- case: windows-21
SELECT Region, Year, sum(Revenue) AS r, lag(sum(Revenue)) OVER (PARTITION BY Region ORDER BY Year) AS before FROM sales GROUP BY Region, Year ORDER BY Region, Year

-- case: windows-22 (reserved)
SELECT Name, nth_value(Salary, 2) OVER (ORDER BY Salary DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS second FROM employees ORDER BY Name

-- case: windows-23
SELECT OrderID, count(DISTINCT Status) OVER (PARTITION BY CustomerID) AS kinds FROM orders ORDER BY OrderID

-- case: windows-24
WITH t AS (SELECT *, row_number() OVER (PARTITION BY Region ORDER BY Revenue DESC) AS n FROM sales) SELECT Region, Product, Revenue FROM t WHERE n <= 2 ORDER BY Region, n
