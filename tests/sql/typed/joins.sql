-- Joins of tables and files. harness/sql/typed.py describes the format.

-- case: joins-01
SELECT o.OrderID, c.Name FROM orders o JOIN customers c ON o.CustomerID = c.CustomerID ORDER BY o.OrderID

-- case: joins-02
SELECT o.OrderID, c.Name FROM orders o LEFT JOIN customers c ON o.CustomerID = c.CustomerID WHERE c.Name IS NULL ORDER BY o.OrderID

-- case: joins-03
SELECT OrderID, Name FROM orders JOIN customers USING (CustomerID) ORDER BY OrderID LIMIT 10

-- case: joins-04
SELECT * EXCLUDE (Address, Tags) FROM orders JOIN customers USING (CustomerID) ORDER BY OrderID LIMIT 3

-- case: joins-05
SELECT c.Name, count(o.OrderID) AS Orders, sum(o.Amount) AS Spent
FROM customers c LEFT JOIN orders o ON o.CustomerID = c.CustomerID
GROUP BY c.Name ORDER BY c.Name

-- case: joins-06
SELECT c.Country, sum(o.Amount) AS Revenue FROM orders o, customers c WHERE o.CustomerID = c.CustomerID GROUP BY ALL ORDER BY ALL

-- case: joins-07
SELECT e.Name, m.Name AS Manager FROM employees e LEFT JOIN employees m ON e.ManagerId = m.Id ORDER BY e.Id

-- case: joins-08
SELECT e.Name, m.Name FROM employees e JOIN employees m ON e.ManagerId = m.Id ORDER BY e.Id

-- case: joins-09
SELECT coalesce(o.CustomerID, c.CustomerID) AS id, count(o.OrderID) AS n FROM orders o FULL OUTER JOIN customers c ON o.CustomerID = c.CustomerID GROUP BY 1 ORDER BY 1

-- case: joins-10 (reserved)
SELECT c.Name FROM customers c ANTI JOIN orders o ON c.CustomerID = o.CustomerID

-- case: joins-11 (reserved)
SELECT c.Name FROM customers c SEMI JOIN orders o USING (CustomerID) ORDER BY c.Name

-- case: joins-12
FROM orders NATURAL JOIN customers SELECT count(*) AS n

-- case: joins-13
SELECT count(*) AS n FROM customers CROSS JOIN employees

-- case: joins-14
SELECT t.Symbol, t.Time, q.Price FROM trades t ASOF JOIN quotes q ON t.Symbol = q.Symbol AND t.Time >= q.Time ORDER BY t.Time

-- case: joins-15 (reserved)
SELECT t.Symbol, t.Time, t.Qty, q.Price FROM trades t ASOF LEFT JOIN quotes q USING (Symbol, Time) ORDER BY t.Time

-- case: joins-16 (reserved)
SELECT t.Time, q.Time AS quoted, q.Price * t.Qty AS value FROM trades t ASOF JOIN quotes q ON t.Symbol = q.Symbol AND q.Time <= t.Time ORDER BY 1

-- case: joins-17
SELECT * FROM (SELECT Name FROM customers ORDER BY CustomerID LIMIT 3) a POSITIONAL JOIN (SELECT Department FROM employees ORDER BY Id LIMIT 3) b

-- case: joins-18 (reserved)
SELECT c.Name, last.OrderDate, last.Amount
FROM customers c, LATERAL (SELECT OrderDate, Amount FROM orders o WHERE o.CustomerID = c.CustomerID ORDER BY OrderDate DESC LIMIT 1) last
ORDER BY c.Name

-- case: joins-19
SELECT c.Name, top.Amount FROM customers c LEFT JOIN LATERAL (SELECT max(Amount) AS Amount FROM orders o WHERE o.CustomerID = c.CustomerID) top ON true ORDER BY c.Name

-- case: joins-20
SELECT p.Name, p.City, c.Country FROM 'people.csv' p LEFT JOIN (SELECT DISTINCT City, Country FROM customers) c ON p.City = c.City ORDER BY p.Name

-- case: joins-21
SELECT a.OrderID, b.OrderID AS Later FROM orders a JOIN orders b ON a.CustomerID = b.CustomerID AND a.OrderDate < b.OrderDate WHERE a.Status = 'returned' ORDER BY 1, 2

-- case: joins-22 (reserved)
SELECT e.Name, b.Label FROM employees e JOIN (VALUES (0, 70000, 'low'), (70000, 110000, 'mid'), (110000, 999999, 'high')) b(Lo, Hi, Label) ON e.Salary >= b.Lo AND e.Salary < b.Hi ORDER BY e.Id

-- case: joins-23 (reserved)
SELECT c.Name, o.Status, e.Name AS Seller FROM customers c JOIN orders o ON c.CustomerID = o.CustomerID JOIN employees e ON e.Id = o.Items ORDER BY o.OrderID LIMIT 8

-- case: joins-24 (reserved)
SELECT o.OrderID, c.Name FROM orders AS o INNER JOIN customers AS c ON (c.customerid = o.customerid) WHERE c.city = 'Lyon' ORDER BY o.orderid

-- case: joins-25 (reserved)
SELECT c.*, o.OrderID FROM customers c RIGHT JOIN orders o ON c.CustomerID = o.CustomerID WHERE o.Status = 'new' ORDER BY o.OrderID

-- case: joins-26 (reserved)
SELECT CustomerID, Name, OrderID FROM customers LEFT JOIN orders USING (CustomerID) WHERE Country = 'JP' ORDER BY OrderID

-- case: joins-27
SELECT x.Id, i.item FROM baskets x, unnest(x.Items) AS i(item) ORDER BY 1, 2

-- case: joins-28
SELECT c.Country, o.Status, count(*) AS n FROM customers c JOIN orders o USING (CustomerID) GROUP BY ALL ORDER BY n DESC, 1, 2 LIMIT 5

-- case: joins-29
SELECT d.day, count(o.OrderID) AS n FROM generate_series(DATE '2024-01-01', DATE '2024-03-01', INTERVAL 1 MONTH) d(day) LEFT JOIN orders o ON date_trunc('month', o.OrderDate) = d.day GROUP BY 1 ORDER BY 1

-- case: joins-30
SELECT * FROM range(3) a(i) JOIN range(1, 4) b(i) USING (i) ORDER BY i

-- case: joins-31
WITH o AS (SELECT CustomerID, sum(Amount) AS Total FROM orders GROUP BY CustomerID) SELECT Name, Total, Total / sum(Total) OVER () AS Share FROM customers JOIN o USING (CustomerID) ORDER BY Share DESC
