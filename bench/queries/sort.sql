-- The sort of the monotasks paper (§6.2), with its result in memory. Each row has its place among all
-- keys, and one of its longs, selected by that place, is added to the sum. The exchange must therefore
-- carry all longs, and a wrong order changes the sum, but the output is small.
SELECT count(*) AS keys, sum(value[CAST(1 + place % 10 AS BIGINT)] % 1000) AS checksum
FROM (SELECT value, row_number() OVER (ORDER BY key) AS place FROM sort)
