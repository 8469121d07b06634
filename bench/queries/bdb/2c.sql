-- Big data benchmark, query 2c: aggregation.
SELECT SUBSTR(sourceIP, 1, 12) AS source, SUM(adRevenue) AS revenue
FROM uservisits
GROUP BY SUBSTR(sourceIP, 1, 12)
