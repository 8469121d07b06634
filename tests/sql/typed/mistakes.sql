-- Mistakes, judged by how well the error helps. harness/sql/typed.py describes the format.

-- case: mistakes-01
-- error: Ctiy -> City
SELECT Ctiy FROM customers

-- case: mistakes-02
-- error: Amout -> Amount
SELECT Name, Amout FROM orders JOIN customers USING (CustomerID)

-- case: mistakes-03
-- error: custmers -> customers
SELECT * FROM custmers

-- case: mistakes-04
-- error: uper -> upper
SELECT uper(Name) FROM customers

-- case: mistakes-05
-- error: SELEC -> SELECT
SELEC * FROM orders

-- case: mistakes-06
-- error: FORM|orders
SELECT * FORM orders

-- case: mistakes-07
-- error: GORUP|BY
SELECT Status, count(*) FROM orders GORUP BY Status

-- case: mistakes-08
-- error: Amount
SELECT Status, Amount, count(*)
FROM orders
GROUP BY Status

-- case: mistakes-09
-- error: Amuont -> Amount
SELECT OrderID
FROM orders
WHERE Amuont > 5
ORDER BY OrderID

-- case: mistakes-10
-- error: FROM|(
SELECT count(* FROM orders

-- case: mistakes-11
-- error: FROM|(
SELECT (1 + 2 FROM orders

-- case: mistakes-12
-- error: 'Lyon|string
SELECT Name FROM customers WHERE City = 'Lyon

-- case: mistakes-13 (reserved)
-- error: Lyon
SELECT Name FROM customers WHERE City = "Lyon"

-- case: mistakes-14 (reserved)
-- error: Nmae|o.Nmae -> Name
SELECT o.Nmae FROM customers o

-- case: mistakes-15
-- error: x|x.Name -> c
SELECT x.Name FROM customers c

-- case: mistakes-16 (reserved)
-- error: +|Name|SignedUp|'x'|x
SELECT Name + 1 FROM customers WHERE SignedUp + 'x'

-- case: mistakes-17
-- error: sum|Name
SELECT sum(Name) FROM customers

-- case: mistakes-18 (reserved)
-- error: INTEGR -> INTEGER
SELECT CAST(Amount AS INTEGR) FROM orders

-- case: mistakes-19
-- error: CustomerID -> customers.CustomerID
SELECT CustomerID FROM orders JOIN customers ON orders.CustomerID = customers.CustomerID

-- case: mistakes-20 (reserved)
-- error: Nam -> Name
SELECT Name FROM customers ORDER BY Nam

-- case: mistakes-21 (reserved)
-- error: count|WHERE
SELECT Name FROM customers WHERE count(*) > 1

-- case: mistakes-22
-- error: substr
SELECT substr() FROM customers

-- case: mistakes-23
-- error: end|WHERE
SELECT Name, FROM customers WHERE

-- case: mistakes-24
-- error: UNION|SELECT|2
SELECT 1 UNION SELECT 1, 2

-- case: mistakes-25 (reserved)
-- data error: order.parquet
SELECT OrderID FROM 'order.parquet'

-- case: mistakes-26
-- error: year|Status
SELECT year(Status) FROM orders

-- case: mistakes-27
-- error: nowhere
INSERT INTO nowhere VALUES (1)

-- case: mistakes-28 (reserved)
-- error: a
CREATE TABLE t (a INT, a VARCHAR)

-- case: mistakes-29
-- error: ten
SELECT Name FROM customers LIMIT ten

-- case: mistakes-30 (reserved)
-- error: Salse -> Sales
SELECT Region, Salse FROM (SELECT Region, sum(Revenue) AS Sales FROM sales GROUP BY Region)

-- case: mistakes-31
-- error: date_trunk -> date_trunc
SELECT date_trunk('month', OrderDate) FROM orders

-- case: mistakes-32 (reserved)
-- error: delimter -> delim
SELECT * FROM read_csv('products.csv', delimter = ',')

-- case: mistakes-33 (reserved)
-- error: Stret|Address.Stret -> Street
SELECT Address.Stret FROM customers
