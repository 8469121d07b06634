-- Big data benchmark, query 2b: aggregation.
SELECT SUBSTR(sourceIP, 1, 10) AS source, SUM(adRevenue) AS revenue
FROM uservisits
GROUP BY SUBSTR(sourceIP, 1, 10)
