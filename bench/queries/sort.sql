-- The sort of the monotasks paper (§6.2), in memory to its end: each row has its place among all
-- keys, and one of its longs, chosen by that place, goes into the sum. So all longs must come along,
-- and a wrong order gives another sum; but nothing large is printed.
SELECT count(*) AS keys, sum(value[CAST(1 + place % 10 AS BIGINT)] % 1000) AS checksum
FROM (SELECT value, row_number() OVER (ORDER BY key) AS place FROM sort)
