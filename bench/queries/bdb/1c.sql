-- Big data benchmark, query 1c: scan and filter.
SELECT pageURL, pageRank FROM rankings WHERE pageRank > 10
