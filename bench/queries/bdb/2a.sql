-- Big data benchmark, query 2a: aggregation.
SELECT SUBSTR(sourceIP, 1, 8) AS source, SUM(adRevenue) AS revenue
FROM uservisits
GROUP BY SUBSTR(sourceIP, 1, 8)
