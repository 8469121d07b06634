-- Big data benchmark, query 4: counts the links to each page. The original finds links with a script
-- outside SQL; here text functions split a document at its links, and each piece but the first starts
-- with an address.
SELECT split_part(piece, '"', 1) AS page, count(*) AS links
FROM (SELECT unnest(string_to_array(contents, 'href="')) AS piece FROM documents)
WHERE piece LIKE 'http://%'
GROUP BY split_part(piece, '"', 1)
