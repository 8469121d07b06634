-- Big data benchmark, query 4: which pages are linked to how often. The original finds the links with
-- a script outside of SQL; here text functions do: a document is cut at its links, and each piece but
-- the first begins with an address.
SELECT split_part(piece, '"', 1) AS page, count(*) AS links
FROM (SELECT unnest(string_to_array(contents, 'href="')) AS piece FROM documents)
WHERE piece LIKE 'http://%'
GROUP BY split_part(piece, '"', 1)
