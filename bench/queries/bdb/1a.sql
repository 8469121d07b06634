-- Big data benchmark, query 1a: scan and filter.
SELECT pageURL, pageRank FROM rankings WHERE pageRank > 1000
