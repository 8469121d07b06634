-- Big data benchmark, query 3b: join.
SELECT sourceIP, totalRevenue, avgPageRank
FROM (
  SELECT sourceIP, AVG(pageRank) AS avgPageRank, SUM(adRevenue) AS totalRevenue
  FROM rankings AS r JOIN uservisits AS uv ON r.pageURL = uv.destURL
  WHERE uv.visitDate BETWEEN DATE '1980-01-01' AND DATE '1983-01-01'
  GROUP BY sourceIP
)
ORDER BY totalRevenue DESC
LIMIT 1
