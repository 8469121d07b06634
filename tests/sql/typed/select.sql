-- Selecting, filtering, ordering and naming. harness/sql/typed.py describes the format.

-- case: select-01 (reserved)
SELECT * FROM orders LIMIT 5

-- case: select-02 (reserved)
SELECT OrderID, Status, Amount FROM orders WHERE Amount > 50 ORDER BY Amount DESC

-- case: select-03 (reserved)
select orderid, amount from orders where status = 'paid' order by orderid

-- case: select-04
FROM customers

-- case: select-05
FROM customers WHERE Country = 'FR'

-- case: select-06 (reserved)
FROM orders SELECT OrderID, Amount WHERE Express ORDER BY OrderID

-- case: select-07
FROM 'orders.parquet' LIMIT 3;

-- case: select-08
SELECT count(*) FROM orders

-- case: select-09
SELECT count(*) AS n, count(Amount) AS with_amount, count(DISTINCT CustomerID) AS buyers FROM orders

-- case: select-10 (reserved)
SELECT DISTINCT Status FROM orders ORDER BY Status

-- case: select-11
SELECT DISTINCT Status, Express FROM orders ORDER BY ALL

-- case: select-12 (reserved)
SELECT Name, City FROM customers WHERE City IS NULL

-- case: select-13 (reserved)
SELECT Name FROM customers WHERE City IN ('Lyon', 'Berlin') ORDER BY Name

-- case: select-14
SELECT Name, SignedUp FROM customers WHERE SignedUp BETWEEN '2022-01-01' AND '2022-12-31' ORDER BY SignedUp

-- case: select-15
SELECT Name FROM customers WHERE Name LIKE '%Ott' ORDER BY 1

-- case: select-16 (reserved)
SELECT Name FROM customers WHERE Name ILIKE 'h%'

-- case: select-17
SELECT * EXCLUDE (Address, Balance) FROM customers ORDER BY CustomerID

-- case: select-18
SELECT * EXCLUDE Tags FROM orders WHERE OrderID < 1004

-- case: select-19
SELECT * REPLACE (upper(Name) AS Name) FROM customers ORDER BY CustomerID

-- case: select-20 (reserved)
SELECT * EXCLUDE (Email) REPLACE (round(Balance) AS Balance) FROM customers ORDER BY CustomerID

-- case: select-21 (reserved)
SELECT * RENAME (Name AS FullName) FROM customers ORDER BY CustomerID LIMIT 2

-- case: select-22
SELECT OrderID, Amount * (1 - Discount) AS Net, Net * 0.2 AS Tax FROM orders WHERE Net > 30 ORDER BY OrderID

-- case: select-23 (reserved)
SELECT Amount * Items AS Total FROM orders WHERE Total > 200 ORDER BY Total

-- case: select-24
SELECT Status AS s, count(*) AS n FROM orders GROUP BY s HAVING n > 7 ORDER BY s

-- case: select-25 (reserved)
SELECT OrderID, Amount FROM orders ORDER BY Amount DESC NULLS LAST LIMIT 5

-- case: select-26 (reserved)
SELECT OrderID, Amount FROM orders ORDER BY Amount, OrderID LIMIT 5 OFFSET 10

-- case: select-27 (reserved)
SELECT Name, coalesce(City, 'unknown') AS City FROM customers ORDER BY Name

-- case: select-28
SELECT OrderID, CASE WHEN Amount >= 60 THEN 'large' WHEN Amount >= 30 THEN 'medium' WHEN Amount IS NULL THEN 'none' ELSE 'small' END AS Size
FROM orders
ORDER BY OrderID

-- case: select-29
SELECT CASE Status WHEN 'new' THEN 1 WHEN 'paid' THEN 2 ELSE 9 END AS step, count(*) AS n FROM orders GROUP BY step ORDER BY step

-- case: select-30 (reserved)
SELECT if(Express, 'fast', 'slow') AS speed, count(*) AS n FROM orders GROUP BY 1 ORDER BY 1

-- case: select-31 (reserved)
SELECT ifnull(Discount, 0) AS d, nullif(Status, 'new') AS s FROM orders ORDER BY OrderID LIMIT 6

-- case: select-32
SELECT DISTINCT ON (CustomerID) CustomerID, OrderID, OrderDate FROM orders ORDER BY CustomerID, OrderDate DESC

-- case: select-33
SELECT o.OrderID, o.* EXCLUDE (OrderID, Tags, ShippedAt) FROM orders o ORDER BY o.OrderID LIMIT 4

-- case: select-34
SELECT "OrderID", "Status" FROM orders WHERE "Items" = 5 ORDER BY "OrderID"

-- case: select-35
SELECT OrderID AS "Order number", Amount AS "Amount (EUR)" FROM orders ORDER BY OrderID LIMIT 3

-- case: select-36 (reserved)
SELECT OrderID id, Amount amt FROM orders ORDER BY id LIMIT 3

-- case: select-37 (reserved)
SELECT Status, Status, Amount FROM orders ORDER BY OrderID LIMIT 3

-- case: select-38
SELECT *, Amount * 2 AS Double FROM orders ORDER BY OrderID LIMIT 2

-- case: select-39
SELECT COLUMNS('^(Order|Ship)') FROM orders ORDER BY OrderID LIMIT 3

-- case: select-40 (reserved)
SELECT min(COLUMNS(* EXCLUDE (Address))) FROM customers

-- case: select-41
SELECT COLUMNS(c -> c LIKE '%Date%') FROM orders ORDER BY 1 LIMIT 3

-- case: select-42 (reserved)
SELECT * LIKE 'C%' FROM customers ORDER BY 1

-- case: select-43
SELECT OrderID, Amount, FROM orders ORDER BY OrderID LIMIT 2

-- case: select-44
SELECT total: sum(Amount), n: count(*) FROM orders

-- case: select-45
SELECT 1 + 1 AS two, 'a' || 'b' AS ab, 7 / 2 AS half, 7 // 2 AS whole, 7 % 2 AS rest

-- case: select-46
SELECT 1_000_000 AS million

-- case: select-47
WITH paid AS (SELECT * FROM orders WHERE Status = 'paid'), big AS (FROM paid WHERE Amount > 40)
SELECT count(*) AS n, max(Amount) AS top FROM big

-- case: select-48
SELECT Name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.CustomerID = c.CustomerID AND o.Status = 'returned') ORDER BY Name

-- case: select-49
SELECT OrderID FROM orders WHERE Amount > (SELECT avg(Amount) FROM orders) ORDER BY OrderID

-- case: select-50 (reserved)
SELECT OrderID FROM orders WHERE CustomerID NOT IN (SELECT CustomerID FROM customers) ORDER BY OrderID

-- case: select-51
SELECT Name, (SELECT count(*) FROM orders o WHERE o.CustomerID = c.CustomerID) AS Orders FROM customers c ORDER BY Name

-- case: select-52
SELECT * FROM (SELECT Status, avg(Amount) AS a FROM orders GROUP BY Status) WHERE a > 40 ORDER BY Status

-- case: select-53
WITH RECURSIVE chain AS (
  SELECT Id, Name, 0 AS Level FROM employees WHERE ManagerId IS NULL
  UNION ALL
  SELECT e.Id, e.Name, Level + 1 FROM employees e JOIN chain c ON e.ManagerId = c.Id
)
SELECT Name, Level FROM chain ORDER BY Level, Name

-- case: select-54
SELECT count(*) AS n FROM (SELECT * FROM orders USING SAMPLE 10 ROWS)

-- case: select-55
SELECT count(*) AS n FROM (FROM orders TABLESAMPLE reservoir(5 ROWS))

-- case: select-56
SELECT count(*) <= 30 AS ok FROM orders USING SAMPLE 50%

-- case: select-57
SELECT OrderID FROM orders WHERE Status = 'new' AND NOT Express OR Items > 4 ORDER BY OrderID

-- case: select-58
SELECT OrderID FROM orders WHERE Status != 'paid' AND Amount IS NOT NULL AND Discount == 0 ORDER BY OrderID

-- case: select-59
SELECT OrderID, Amount FROM orders WHERE CustomerID IS NOT DISTINCT FROM NULL ORDER BY OrderID

-- case: select-60
SELECT greatest(Items, 3) AS g, least(Items, 3) AS l FROM orders ORDER BY OrderID LIMIT 4

-- case: select-61
SELECT DISTINCT City FROM customers ORDER BY city NULLS FIRST

-- case: select-62
SELECT c.name, c."city" FROM customers AS c WHERE c.COUNTRY = 'DE' ORDER BY c.NAME

-- case: select-63
VALUES (1, 'one'), (2, 'two')
