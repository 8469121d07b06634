-- Set operations. harness/sql/typed.py describes the format.

-- case: sets-01 (reserved)
SELECT City FROM customers UNION SELECT City FROM 'people.csv' ORDER BY City

-- case: sets-02
SELECT City FROM customers UNION ALL SELECT City FROM 'people.csv' ORDER BY City NULLS LAST

-- case: sets-03 (reserved)
SELECT City FROM customers EXCEPT SELECT City FROM 'people.csv' ORDER BY 1

-- case: sets-04
SELECT City FROM customers INTERSECT SELECT City FROM 'people.csv' ORDER BY City

-- case: sets-05
SELECT 1 AS a, 2 AS b UNION ALL BY NAME SELECT 3 AS b, 4 AS c

-- case: sets-06
SELECT Name, City FROM customers UNION BY NAME SELECT City, Born, Name FROM 'people.csv' ORDER BY ALL

-- case: sets-07
(SELECT OrderID FROM orders ORDER BY Amount DESC NULLS LAST LIMIT 2) UNION ALL (SELECT OrderID FROM orders ORDER BY Amount ASC LIMIT 2) ORDER BY 1

-- case: sets-08 (reserved)
SELECT Status FROM orders EXCEPT ALL SELECT Status FROM orders WHERE Express ORDER BY Status

-- case: sets-09 (reserved)
SELECT Items FROM orders INTERSECT ALL SELECT Id FROM employees ORDER BY 1

-- case: sets-10
FROM 'logs/2024-01.csv' UNION ALL FROM 'logs/2024-02.csv' ORDER BY Day

-- case: sets-11
SELECT 'customer' AS kind, Name FROM customers UNION ALL SELECT 'employee', Name FROM employees ORDER BY kind, Name

-- case: sets-12
SELECT Name, NULL AS Salary FROM customers UNION SELECT Name, Salary FROM employees ORDER BY Name LIMIT 6

-- case: sets-13 (reserved)
WITH u AS (SELECT CustomerID FROM customers UNION SELECT CustomerID FROM orders) SELECT count(*) AS n, count(CustomerID) AS known FROM u

-- case: sets-14
SELECT 1 AS x UNION ALL SELECT 2.5 UNION ALL SELECT NULL ORDER BY x
