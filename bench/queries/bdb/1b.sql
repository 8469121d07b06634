-- Big data benchmark, query 1b: scan and filter.
SELECT pageURL, pageRank FROM rankings WHERE pageRank > 100
