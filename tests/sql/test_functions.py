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
    # operators
    "5 // 2 AS a, -5 // 2 AS b, 5 // 0 AS c, 5.5 // 2 AS d, 7 % 0 AS e, 7 / 0 AS f, 7 / 2 AS g, 1.50::DECIMAL(10, 2) / 3 AS h",
    "2 ** 3 ** 2 AS a, 2 * 3 ^ 2 AS b, -2 ^ 2 AS c, 2 ^ -1 AS d, 7 - -2 AS e, xor(5, 3) AS f, ~5 AS g",
    "'abc' ~ 'b' AS a, 'abc' ~ 'a.c' AS b, 'abc' SIMILAR TO 'a.*' AS c, 'abc' ^@ 'a' AS d, 'abc' GLOB 'a[b-c]*' AS e",
    "'abcdef'[2] AS a, 'abcdef'[2:3] AS b, 'abcdef'[-3:] AS c, 'abcdef'[:2] AS d, [1, 2, 3][-2:] AS e, [1, 2, 3, 4][1:4:2] AS f",
    "DATE '2024-01-31' + 1 AS a, DATE '2024-01-31' - 1 AS b, INTERVAL 1 DAY * 3 AS c, INTERVAL 3 DAY / 2 AS d",
    "SELECT 'pear' IN Items AS p, 'fig' NOT IN Items AS q, [x FOR x IN Items IF x LIKE '%p%'] AS r FROM baskets ORDER BY Id",
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
        ("SELECT mode(1, 2)", "cannot call mode: 2 arguments were given; write mode(x)\n  line 1"),
        ("SELECT strftime(DATE '2024-01-01', '%Q')", "%Q is not a specifier"),
        ("SELECT regexp_matches('a', '(')", "`(` is not a regular expression"),
        ("SELECT sqrt(-1)", "cannot compute the square root of a negative number"),
        ("SELECT arg_maxx(1, 2)", "cannot find function arg_maxx; did you mean arg_max"),
    ],
)
def test_wrong_calls_are_explained(text, message):
    ran = binary.run("sql", text)
    assert ran.code in (1, 2) and message in ran.err, ran.err
