"""Functions and operators under the names of DuckDB, beside its answers."""

import pytest

from harness import binary
from harness.sql import typed, typed_files, typed_judge

TABLES = [part for name in typed_files.TABLES for part in ("--table", f"{name}={name}.parquet")]
# Each is a SELECT, or a list of expressions.
STATEMENTS = [
    # order of NULLs
    "SELECT Amount FROM orders ORDER BY Amount DESC",
    "SELECT OrderID, row_number() OVER (ORDER BY Amount DESC, OrderID) AS n FROM orders ORDER BY OrderID",
    "SELECT list(Amount ORDER BY Amount DESC) AS l, first(Status ORDER BY Amount DESC, OrderID) AS f FROM orders",
    # ranks are signed
    "SELECT OrderID - row_number() OVER (ORDER BY OrderID) AS gap, typeof(gap) AS t, 3 - rank() OVER (ORDER BY Status) AS r FROM orders ORDER BY OrderID",
    "SELECT OrderID, dense_rank() OVER w AS d, ntile(3) OVER w AS n, typeof(d) || typeof(n) AS t FROM orders WINDOW w AS (PARTITION BY Status ORDER BY OrderID) ORDER BY OrderID",
    "SELECT OrderID FROM orders QUALIFY row_number() OVER (PARTITION BY Status ORDER BY OrderID) <= 2 ORDER BY OrderID",
    # operators
    "5 // 2 AS a, -5 // 2 AS b, 5 // 0 AS c, 5.5 // 2 AS d, 7 % 0 AS e, 7 / 0 AS f, 7 / 2 AS g, 1.50::DECIMAL(10, 2) / 3 AS h",
    "0 ** -1 AS a, 1e308::DOUBLE ** 2 AS b, NULL ** 2 AS c, '2' ** 2 AS d, typeof(2 ** 2) AS e, 4 ** 0.5 ** 2 AS f",
    "2 ** 3 ** 2 AS a, 2 * 3 ^ 2 AS b, -2 ^ 2 AS c, 2 ^ -1 AS d, 7 - -2 AS e, xor(5, 3) AS f, ~5 AS g",
    "'abc' ~ 'b' AS a, 'abc' ~ 'a.c' AS b, 'abc' SIMILAR TO 'a.*' AS c, 'abc' ^@ 'a' AS d, 'abc' GLOB 'a[b-c]*' AS e",
    "'abcdef'[2] AS a, 'abcdef'[2:3] AS b, 'abcdef'[-3:] AS c, 'abcdef'[:2] AS d, [1, 2, 3][-2:] AS e, [1, 2, 3, 4][1:4:2] AS f",
    "DATE '2024-01-31' + 1 AS a, DATE '2024-01-31' - 1 AS b, INTERVAL 1 DAY * 3 AS c, INTERVAL 3 DAY / 2 AS d",
    "SELECT 'pear' IN Items AS p, 'fig' NOT IN Items AS q, [x FOR x IN Items IF x LIKE '%p%'] AS r FROM baskets ORDER BY Id",
    # a CASE in a list is not a constant
    "SELECT OrderID, abs(OrderID) IN (1, 3, 5, CASE WHEN Items > 1 THEN 2 ELSE OrderID END) AS a, Items NOT IN (7, 8, NULL, CASE WHEN OrderID % 2 = 0 THEN Items END) AS b FROM orders ORDER BY OrderID",
    "SELECT OrderID, row_number() OVER (PARTITION BY CASE WHEN length(Status) > length(Status) THEN abs(Items) ELSE 3 END ORDER BY OrderID) AS n FROM orders ORDER BY OrderID",
    "[x + 0 IN (5, 6, 7, CASE WHEN x > 1 THEN x END) FOR x IN [1, 2]] AS a",
    # dates
    "SELECT year(ReadAt) AS y, dayofweek(ReadAt) AS w, epoch_ms(ReadAt) AS e FROM sensors ORDER BY Sensor, ReadAt",
    "yearweek(DATE '2024-12-30') AS a, century(DATE '2000-06-01') AS b, isodow(DATE '2024-01-07') AS c, extract(decade FROM DATE '1999-01-01') AS d",
    "strftime(TIMESTAMP '2024-03-05 14:07:09.123456', '%a %A %-d %b %B %y %I %p %f %j %U %W %c') AS a, monthname(DATE '2024-02-03') AS b",
    "strptime('3 March 2024 5 PM', '%d %B %Y %I %p') AS a, strptime('2024-02-29', ['%Y', '%Y-%m-%d']) AS b, try_strptime('x', '%Y') AS c",
    "date_diff('week', DATE '2024-01-07', DATE '2024-01-08') AS a, date_diff('month', DATE '2024-01-31', DATE '2024-02-01') AS b",
    "date_sub('month', DATE '2024-01-31', DATE '2024-02-29') AS a, age(DATE '2024-03-01', DATE '2022-12-25') AS b, last_day(DATE '2024-02-03') AS c",
    "time_bucket(INTERVAL 90 MINUTE, TIMESTAMP '2024-02-03 05:00:00') AS a, time_bucket(INTERVAL 1 MONTH, DATE '2024-02-03') AS b, to_days(3) AS c",
    "SELECT * FROM range(DATE '2024-01-01', DATE '2024-01-08', INTERVAL 2 DAY)",
    # text
    r"regexp_extract('a1b2', '(\w)(\d)', 2) AS a, regexp_extract_all('a1b2', '\d') AS b, regexp_replace('abc', '(b)', '[\1]') AS c",
    "string_split('a,,b', ',') AS a, string_split('abc', '') AS b, split_part('a-b-c', '-', -1) AS c, substr('abcdef', -3, 2) AS d, substr('abcdef', 0, 2) AS e",
    "format('{:>5}|{:<5}|{:^5}|{:,}', 'a', 'b', 'c', 1234567) AS a, printf('%05.2f|%-5d|%x', 3.14159::DOUBLE, 2, 255) AS b",
    "damerau_levenshtein('ab', 'ba') AS a, jaccard('abc', 'abd') AS b, jaro_winkler_similarity('duck', 'duckdb') AS c, hamming('abc', 'abd') AS d",
    "hex('abc') AS a, hex(-1) AS b, bin(5) AS c, to_base(5, 2, 8) AS d, sha256('abc') AS e, url_encode('a b&ü') AS f, url_decode('a%20b') AS g",
    "bar(3.3, 0, 10, 10) AS a, format_bytes(1234567) AS b, strip_accents('Ünï é') AS c, parse_path('/a/b') AS d, unicode('ü') AS e",
    # numbers and types
    "sign(-2.5) AS a, even(2.1) AS b, log(100) AS c, log(2, 8) AS d, isinf('inf'::DOUBLE) AS e, if(NULL, 1, 2) AS f, typeof(['a']) AS g",
    # lists, structs and maps
    "list_sort([3, NULL, 1]) AS a, list_reverse_sort([3, NULL, 1]) AS b, list_unique([1, NULL, 1]) AS c, len([]) AS d, list_last([1, 2]) AS e",
    "list_sum([1, NULL]) AS a, list_median([1, 2]) AS b, list_string_agg(['a', 'b']) AS c, list_aggregate(['x', 'y'], 'string_agg', '+') AS d",
    "list_reduce([1, 2, 3], (a, b) -> a + b, 10) AS a, list_transform([1, 2], (x, i) -> x * i) AS b, list_histogram([1, 1, 2]) AS c",
    "SELECT Place.City AS c, place['city'] AS d, struct_extract(Place, 'City') AS e, struct_insert(Place, a := 1) AS f FROM baskets ORDER BY Id",
    "SELECT Id, Place.* FROM baskets WHERE Place IS NOT NULL ORDER BY Id",
    "SELECT unnest([{'a': 1, 'b': 2}, {'a': 3, 'b': 4}], recursive := true)",
    # aggregates
    "SELECT mode(Items) AS a, median(Amount) AS b, quantile_disc(Items, [0.1, 0.9]) AS c, mad(Amount) AS d, histogram(Status) AS e FROM orders",
    "SELECT skewness(Items) AS a, kurtosis(Items) AS b, entropy(Status) AS c, product(Items) AS d, geomean(Items) AS e, sem(Items) AS f FROM orders",
    "SELECT arg_max(Name, Salary) AS a, arg_max(Name, Salary, 2) AS b, min_by(Name, HiredOn) AS c, max(Salary, 2) AS d FROM employees",
    "SELECT count_if(Express) FILTER (WHERE Items > 2) AS a, listagg(DISTINCT Status, '|' ORDER BY Status) AS b FROM orders",
    "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY Items DESC) AS a, mode() WITHIN GROUP (ORDER BY Items) AS b FROM orders",
    "SELECT OrderID, median(Items) OVER w AS m, arg_max(OrderID, Amount) OVER w AS a FROM orders WINDOW w AS (ORDER BY OrderID ROWS 2 PRECEDING) ORDER BY 1",
    # JSON: paths
    '\'{"a": {"b": [10, 20]}, "c.d": 1.50}\' -> \'a\' AS a, \'{"a": {"b": [10, 20]}}\' -> \'$.a.b[1]\' AS b, \'{"a": {"b": [1]}}\' -> \'/a/b/0\' AS c, \'{"c.d": 1e5}\' -> \'$."c.d"\' AS d',
    '\'[1, "x", null]\' -> 1 AS a, \'[1, "x", null]\' ->> 1 AS b, \'[1, "x", null]\' ->> 2 AS c, \'[1, 2]\' -> \'$[-1]\' AS d, \'[1, 2]\' -> \'$[#-2]\' AS e, \'[1]\' -> 7 AS f',
    '\'{"a": {"b": "x"}}\' -> \'a\' ->> \'b\' AS a, \'{"a": "x"}\' ->> \'a\' = \'x\' AS b, \'{"a": 1}\' ->> \'a\' || \'y\' AS c, NULL ->> \'a\' AS d, \'{"a": 1}\' -> NULL AS e',
    'json_extract(\'{"a": [1, {"b": 2}]}\', \'$.a[*]\') AS a, json_extract_string(\'{"a": "q", "b": null}\', \'$.*\') AS b, json_extract(\'{"a": 1}\', [\'a\', \'/b\']) AS c, \'[{"b": 1}, {"b": [{"b": 2}]}]\' -> \'$..b\' AS d',
    "SELECT json_extract(j, p) AS a, json_extract_string(j, p) AS b FROM (VALUES (1, '{\"a\": \"x\"}', 'a'), (2, '{\"b\": [2]}', '$.b[0]'), (3, '{}', NULL), (4, NULL, 'a')) t(i, j, p) ORDER BY i",
    "SELECT j.a.b AS a, j['a'] AS b, (j -> 'n')::INT + 1 AS c, (j ->> 'd')::DATE AS d, (j -> 'd')::DATE AS e, (j -> 'l')::INT[] AS f, (j -> 'a')::STRUCT(b INT) AS g FROM (SELECT '{\"a\": {\"b\": 1}, \"n\": \"5\", \"d\": \"2024-01-02\", \"l\": [1, 2]}'::JSON AS j)",
    # JSON: properties
    'json_value(\'{"a": "q", "b": [1]}\', \'a\') AS a, json_value(\'{"b": [1]}\', \'b\') AS b, json_exists(\'{"a": null}\', \'a\') AS c, json_exists(\'{"a": 1}\', [\'a\', \'b\']) AS d, json_exists(NULL, \'a\') AS e',
    'json_type(\'[1]\') AS a, json_type(\'{"a": -1, "b": 1.0}\', [\'a\', \'b\', \'c\']) AS b, json_array_length(\'{"a": [1, 2]}\', \'a\') AS c, json_array_length(\'5\') AS d, json_keys(\'{"b": 1, "a": 2}\') AS e, json_keys(\'[]\') AS f, json_type(NULL) AS g',
    "json_valid('{\"a\": 1}') AS a, json_valid('{a: 1}') AS b, json_valid('') AS c, json_valid(NULL) AS d, json(' { \"a\" : 1.0 } ') AS e, json_contains('{\"a\": [1, 2]}', '{\"a\": [2]}') AS f, json_contains('[1]', '1.0') AS g",
    'json_structure(\'{"a": 1, "b": [1.5, "x"], "c": null, "d": [1, -1], "e": [{"x": 1}, {"y": true}]}\') AS a, json_merge_patch(\'{"a": 1, "b": {"c": 1}}\', \'{"b": {"d": 2}, "a": null}\') AS b, json_pretty(\'{"a": [1, {"b": 2}], "c": {}}\') AS c',
    "{'a': 1} -> 'a' AS a, json_keys({'a': 1}) AS b, json_array_length([1, 2]) AS c, json_valid({'a': 1}) AS d, json_extract(MAP {'a': 1}, 'a') AS e",
    "list_transform(json_extract('{\"a\": [{\"k\": 1}, {\"k\": 2}]}', '$.a[*].k'), x -> x::INT + 1) AS a, unnest('[1, 2]'::JSON::INT[]) AS b, ('{\"a\": null}' -> 'a')::INT AS c, ('{\"a\": null}' -> 'a') IS NULL AS d",
    # JSON: made of other values
    "json_object('a', 1, 'b', 'x', 'c', NULL, 'd', json_object('e', [1, NULL])) AS a, json_array(1, 'x\"', NULL, 1.5, {'a': DATE '2024-01-01'}, true) AS b, json_object() AS c, json_array() AS d",
    "to_json('x') AS a, to_json('{\"a\": 1}'::JSON) AS b, to_json(1e20::DOUBLE) AS c, to_json(MAP {'k': [1]}) AS d, to_json(TIMESTAMP '2024-01-01 10:00:00') AS e, to_json(NULL) AS f, to_json({'a b': NULL}) AS g, to_json(1.00::DECIMAL(5, 2)) AS h",
    "5::JSON AS a, [1, NULL]::JSON AS b, {'a': 'x'}::JSON AS c, NULL::JSON AS d, '[1]'::JSON AS e, MAP {'k': 1}::JSON AS f",
    "SELECT json_group_array(x) AS a, json_group_object(y, x) AS b, json_group_array(json_object('k', x)) AS c FROM (VALUES (1, 'p'), (NULL, 'q')) t(x, y)",
    "SELECT json_group_array(x) AS a, json_group_object('k', x) AS b FROM range(0) t(x)",
    "SELECT to_json([j]) AS a, json_array(j, j ->> 'k') AS b FROM (SELECT json_object('k', 1) AS j)",
    'from_json(\'{"a": "1", "b": [1.5, 2]}\', \'{"a": "INTEGER", "b": ["DOUBLE"], "c": "DATE"}\') AS a, json_transform(\'{"a": "x", "j": {"k": 1}}\', \'{"a": "INT", "j": "JSON"}\') AS b, from_json(NULL, \'["INT"]\') AS c',
    # more lists, maps and structs
    "list_where([1, 2, 3], [true, false, true]) AS a, list_select([10, 20, 30], [3, 1, 9]) AS b, list_grade_up([3, 1, NULL]) AS c, list_grade_up([3, 1, 2], 'DESC') AS d, list_concat([1], NULL) AS e, list_concat([1], [2], [3]) AS f, list_where([], []) AS g",
    "SELECT list_where(l, m) AS a, list_select(l, i) AS b, list_grade_up(l) AS c FROM (VALUES (1, [1, 2], [true, false], [2, 2]), (2, NULL, [true], [1]), (3, [5], NULL, NULL)) t(n, l, m, i) ORDER BY n",
    "[1, 2] && [2] AS a, list_has_any([1, 2], [3]) AS b, list_has_all([1, 2], [2]) AS c, array_to_string([1, NULL, 2], '-') AS d, list_resize([1, 2], 3) AS e, list_resize([1, 2], 4, 0) AS f, list_cosine_similarity([1.0, 2.0], [2.0, 3.0]) AS g",
    "map_concat(MAP {'a': 1}, MAP {'b': 2, 'a': 3}) AS a, map_concat(MAP {'a': 1}, NULL) AS b, map_from_entries([{'k': 1, 'v': 'a'}, {'k': 2, 'v': 'b'}]) AS c, cardinality(MAP {'a': 1}) AS d, map_keys(MAP {'a': 1}) AS e, map_entries(MAP {'a': 1}) AS f",
    "struct_keys({'a': 1, 'b': 2}) AS a, struct_concat({'a': 1}, {'b': 'x'}) AS b, regexp_extract('2024-03', '(\\d+)-(\\d+)', ['m', 'n']) AS c, regexp_extract('x', '(\\d+)-(\\d+)', ['y']) AS d, regexp_extract(NULL, '(a)', ['y']) AS e",
    "SELECT unnest(l) AS a, generate_subscripts(l, 1) AS b FROM (SELECT [7, 8] AS l)",
    # more numbers and text
    "factorial(21) AS a, factorial(0) AS b, factorial(NULL) AS c, gamma(5) AS d, lgamma(10) AS e, lgamma(-0.5) AS f, nextafter(1::DOUBLE, 2::DOUBLE) AS g, signbit(-1.0::DOUBLE) AS h, round_even(2.5, 0) AS i, round_even(2.345, 2) AS j",
    "sha1('a') AS a, nfc_normalize('e\u0301') AS b, unbin('0101') AS c, greatest_common_divisor(12, 18) AS d, least_common_multiple(4, 6) AS e, left_grapheme('abc', 2) AS f, substring_grapheme('abc', 2, 1) AS g, days_in_month(DATE '2024-02-03') AS h",
    "hash(1) = hash(1) AS a, hash(1) = hash(2) AS b, hash(NULL) IS NULL AS c, typeof(hash('x', 2)) AS d, current_database() AS e, current_schema() AS f",
    "SELECT x, string_agg(x::VARCHAR, ',') OVER (ORDER BY x ROWS 1 PRECEDING) AS a, string_agg(x::VARCHAR, '') OVER (ORDER BY x ROWS BETWEEN 2 PRECEDING AND 2 PRECEDING) AS b FROM range(4) t(x) ORDER BY x",
    "SELECT weighted_avg(x, y) AS a FROM (VALUES (1, 2), (3, 4), (NULL, 9)) t(x, y)",
    "SELECT Status, avg(Amount) AS a, avg(DISTINCT Amount) AS d FROM orders GROUP BY Status ORDER BY Status",
    "SELECT OrderID, avg(Amount) OVER (ORDER BY OrderID ROWS 2 PRECEDING) AS a, list_avg([Amount, 1.10]) AS l FROM orders ORDER BY OrderID",
    "SELECT string_agg(Name, '|' ORDER BY Name) AS a, string_agg(DISTINCT City, '/' ORDER BY City) AS b, listagg(City, ',' ORDER BY Name DESC) AS c FROM customers",
    "5 % 0.0 AS a, 5.5 % 0 AS b, 5.0::DOUBLE % 0 AS c, 5 % 0.0::DOUBLE AS d, 1000 // 7 // 3 // 2.5::DOUBLE // 2 AS e, 100 // 0 // 2 AS f",
    "typeof('{}'::JSON) AS a, typeof('a'::ENUM ('a', 'b')) AS b, typeof('{}' -> 'a') AS d, typeof({'name': 1::INT, 'City': '{}'::JSON}) AS e",
    "typeof(now()) AS a, typeof(current_timestamp) AS b, typeof(localtimestamp) AS c, typeof(now() - INTERVAL 1 DAY) AS d, now() - current_timestamp AS e",
    "SELECT * FROM generate_series(TIMESTAMP '2024-01-01 10:00', TIMESTAMP '2024-01-01 12:00', INTERVAL 1 HOUR) t(x)",
    "SELECT * FROM json_tree('{\"a\": 1, \"b\": [1.5, {\"c\": null}]}')",
    "SELECT * FROM json_each('{\"a\": {\"b\": [1, \"x\"]}}', '$.a.b')",
    "SELECT t.i, e.key, e.value ->> 'k' AS k FROM (VALUES (1, '[{\"k\": 1}, {\"k\": 2}]'), (2, NULL)) t(i, j) LEFT JOIN json_each(t.j) e ON true ORDER BY ALL",
    "TIMESTAMP '2024-01-10' - TIMESTAMP '2024-01-01' > INTERVAL 5 DAY AS a, INTERVAL 1 DAY = INTERVAL 24 HOUR AS b, INTERVAL 1 MONTH BETWEEN INTERVAL 29 DAY AND '31 days' AS c",
    "SELECT i FROM (VALUES (INTERVAL 1 MONTH), (INTERVAL 40 DAY), (INTERVAL 10 HOUR), (NULL)) t(i) ORDER BY i DESC",
    "SELECT max(i) AS a, min(i) AS b FROM (VALUES (INTERVAL 1 MONTH), (INTERVAL 40 DAY), (INTERVAL 10 HOUR)) t(i)",
    "{'t': TIMESTAMP '2024-01-01 10:00:00', 'i': [INTERVAL 1 HOUR, NULL], 's': 'a: b', 'd': DATE '2024-01-01'}::VARCHAR AS a",
    r"'C:\x' LIKE 'C:\%' AS a, 'a%c' LIKE 'a!%c' ESCAPE '!' AS b, 'a%c' LIKE 'a\%c' AS c, 'A%c' ILIKE 'a\%C' ESCAPE '\' AS d, 'a!c' NOT LIKE 'a!!_' ESCAPE '!' AS e",
    "SELECT Name, Salary > ANY (SELECT Salary FROM employees) AS a FROM employees WHERE Salary >= ALL (SELECT Salary FROM employees) ORDER BY Name",
    "SELECT Name FROM employees WHERE Salary > ANY (SELECT Salary FROM employees WHERE Department = 'Tech') ORDER BY Name",
    "SELECT count(DISTINCT (Status, Items % 2)) AS n FROM orders",
    "encode('ü') AS a, decode(encode('ü')) AS b, decode('a'::BLOB) AS c",
    "list_transform([{'a': {'B': 1}}, NULL], x -> x.a.b + 1) AS a, list_filter([{'k': 1}, {'k': 5}], lambda r: r.k > 2)[1].k AS b, [r.k FOR r IN [{'k': 7}]] AS c",
    "SELECT * FROM (SELECT 1 AS id, 'x' AS v) JOIN (SELECT 1 AS id, 'y' AS w) USING (id)",
    "SELECT 1 AS z, e.* FROM employees e ORDER BY ALL DESC",
    # correlated subqueries
    "SELECT c.Name, top.* FROM customers c, LATERAL (SELECT OrderID, Amount FROM orders o WHERE o.CustomerID = c.CustomerID ORDER BY Amount DESC NULLS LAST, OrderID LIMIT 2) top ORDER BY c.Name, top.Amount, top.OrderID",
    "SELECT c.Name, top.n FROM customers c LEFT JOIN LATERAL (SELECT OrderID AS n FROM orders o WHERE o.CustomerID = c.CustomerID ORDER BY n OFFSET 1) top ON true ORDER BY ALL",
    "SELECT c.Name, r.OrderID, r.n FROM customers c, LATERAL (SELECT OrderID, row_number() OVER (ORDER BY OrderID) AS n FROM orders o WHERE o.CustomerID = c.CustomerID) r ORDER BY ALL",
    "SELECT Name, (SELECT Status FROM orders o WHERE o.CustomerID = c.CustomerID ORDER BY OrderID DESC LIMIT 1) AS last FROM customers c ORDER BY Name",
    "SELECT Name, (SELECT Name FROM customers d WHERE d.CustomerID = c.CustomerID) AS same FROM customers c ORDER BY Name",
    "SELECT Name FROM customers c WHERE (SELECT Amount FROM orders o WHERE o.CustomerID = c.CustomerID ORDER BY OrderID LIMIT 1) > 50 ORDER BY Name",
    "SELECT Id, (SELECT max(x) FROM unnest(b.Items) u(x)) AS m, (SELECT count(*) FROM unnest(b.Items) u(x)) AS n FROM baskets b ORDER BY Id",
    "SELECT c.Name, s.x FROM customers c, LATERAL (SELECT c.CustomerID + 1 AS x UNION ALL SELECT count(*) FROM orders o WHERE o.CustomerID < c.CustomerID) s ORDER BY ALL",
    "SELECT Country, sum(CASE WHEN EXISTS (SELECT 1 FROM orders o WHERE o.CustomerID = c.CustomerID) THEN 1 ELSE 0 END) AS n FROM customers c GROUP BY Country ORDER BY Country",
    "SELECT t.i, e.n, type FROM (VALUES (1, '{\"a\": 1}'), (2, '[]')) t(i, j), json_each(t.j) e(n) ORDER BY ALL",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("functions")
    typed_files.make(made)
    return made


@pytest.mark.parametrize("text", STATEMENTS)
def test_answers_are_those_of_duckdb(folder, monkeypatch, text):
    monkeypatch.chdir(folder)
    case = typed.Case("functions-01", False, text if text.startswith("SELECT") else f"SELECT {text}")
    expected = typed.run(case)
    assert expected.error is None
    verdict = typed_judge.judge(case, expected, binary.run("sql", "--json", *TABLES, case.text, cwd=folder))
    assert verdict.kind == "alike", verdict.note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT year(1, 2)", "cannot call year: 2 arguments were given; write year(x)\n  line 1, column 8"),
        ("SELECT 1,\n  upper('a') OVER ()", "cannot call upper with OVER: it is not an aggregate; remove OVER\n  line 2, column 3"),
        ("SELECT regexp_extract(1, 'a')", "cannot call regexp_extract: argument 1 is BIGINT; it must be text; CAST it AS VARCHAR\n  line 1"),
        ("SELECT DATE '2024-01-01' ** 2", "cannot compute **: both sides must be numbers"),
        ("SELECT mode(1, 2)", "cannot call mode: 2 arguments were given; write mode(x)\n  line 1"),
        ("SELECT strftime(DATE '2024-01-01', '%Q')", "%Q is not a specifier"),
        ("SELECT row_number()", "cannot call row_number without OVER: it is a window function; write row_number(…) OVER (ORDER BY …)"),
        ("SELECT sum(count(*)) FROM range(3)", "cannot use an aggregate within another"),
        ("SELECT value FROM range(3) HAVING value > 1", "cannot use this column in HAVING"),
        ("SELECT NOT 'a'", "cannot use NOT on a value of type VARCHAR; compare it"),
        ("SELECT sum(value) OVER w FROM range(3)", "cannot find window w; define it: WINDOW w AS (ORDER BY …)"),
        ("VALUES (1, 2), (3)", "row 2 has 1 values, and 2 are wanted"),
        ("SELECT regexp_matches('a', '(')", "`(` is not a regular expression"),
        ("SELECT sqrt(-1)", "cannot compute the square root of a negative number"),
        (
            "SELECT '{\"a\": 1' -> 'a'",
            "cannot read '{\"a\": 1' as JSON: the text ends within a value (byte 7); find such texts with NOT json_valid(x)",
        ),
        ("SELECT '{}' -> '$[x]'", "`$[x]` is not a path; use the form $.key[0]"),
        ("SELECT '{\"a\": 1}' -> 'a' = 1", "-> binds less tightly than other operators: write (j -> 'key')"),
        (
            "SELECT 1 = 1\n  AND '{}' ->> 'a' = 'x'",
            "->> binds less tightly than AND, NOT and comparisons; write (json ->> 'key') in parentheses\n  line 2, column 12",
        ),
        ("SELECT 5 -> 'a'", "cannot call json_extract: argument 1 is BIGINT; it must be JSON"),
        ("SELECT json_object('a')", "cannot call json_object: 1 arguments were given; it takes keys and values in turn"),
        ("SELECT json_object(1, 2)", "argument 1 is BIGINT; a key must be text"),
        ("SELECT regexp_extract('a', '(a)', ['x', 'y'])", "the pattern has 1 groups in parentheses, for 2 names"),
        ("SELECT factorial(34)", "34! exceeds HUGEINT"),
        ("SELECT list_concat([1], ['a'])", "one list has elements of type BIGINT, another of VARCHAR"),
        ("SELECT map_from_entries([{'k': 1, 'v': 2}, {'k': 1, 'v': 3}])", "key 1 occurs twice"),
        ("SELECT arg_maxx(1, 2)", "cannot find function arg_maxx; did you mean arg_max"),
    ],
)
def test_wrong_calls_are_explained(text, message):
    ran = binary.run("sql", text)
    assert ran.code in (1, 2) and message in ran.err, ran.err


@pytest.mark.parametrize("operator", ["//", "**", "^"])
def test_chain_of_a_thousand_operators_is_planned(operator):
    ran = binary.run("sql", "--json", f"SELECT {f' {operator} '.join(['1'] * 1000)} AS x", timeout=60)
    assert ran.code == 0 and ran.json()["rows"] == [[1]], ran.err


def test_value_of_several_rows_is_an_error():
    text = "SELECT (SELECT v FROM range(3) r(v) WHERE v < o.x) FROM (VALUES (1), (2)) o(x)"
    ran = binary.run("sql", text)
    assert ran.code == 1 and "a scalar subquery returned more than one row; add LIMIT 1, or compare with IN" in ran.err, ran.err
