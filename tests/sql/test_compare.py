"""Tests of the comparison rules: they accept the allowed differences and catch all others."""

from decimal import Decimal

import pytest

from harness.sql.compare import decimal_scale, difference, numeric
from harness.sql.oracle import Answer, compute, connect

PRICES = Answer(["name", "price"], ["VARCHAR", "DECIMAL(15,2)"], [], None, [["a", "1.00"], ["b", "2.50"], ["c", None]])
TYPES = ["Utf8View", "Decimal128(15, 2)"]


def check(answer, rows, types=TYPES, columns=None):
    return difference(answer, columns or answer.columns, types, rows)


def test_order_is_ignored_without_order_by():
    assert check(PRICES, [["c", None], ["b", Decimal("2.5")], ["a", 1]]) is None


@pytest.mark.parametrize(
    "rows, message",
    [
        ([["a", "1.00"], ["b", "2.50"]], "2 rows, expected 3"),
        ([["a", "1.01"], ["b", "2.50"], ["c", None]], "got"),
        ([["a", "1.00"], ["b", "2.50"], ["c", "0.00"]], "got"),
        ([["a", "1.00"], ["a", "1.00"], ["c", None]], "got"),
    ],
)
def test_difference_is_described(rows, message):
    assert message in check(PRICES, rows)


def test_extra_columns_are_reported():
    assert "3 columns" in check(PRICES, [], columns=["x", "y", "z"])


def test_trailing_blanks_are_ignored_and_leading_ones_are_not():
    assert check(PRICES, [["a  ", "1.00"], ["b", "2.50"], ["c", None]]) is None
    assert check(PRICES, [[" a", "1.00"], ["b", "2.50"], ["c", None]]) is not None


def test_order_by_is_checked_except_among_ties():
    ordered = Answer(["k", "v"], ["BIGINT", "VARCHAR"], [0], None, [[1, "a"], [2, "b"], [2, "c"], [3, "d"]])
    types = ["Int64", "Utf8"]
    assert check(ordered, [[1, "a"], [2, "c"], [2, "b"], [3, "d"]], types) is None
    assert check(ordered, [[2, "b"], [1, "a"], [2, "c"], [3, "d"]], types) is not None


def test_limit_accepts_any_rows_that_tie_at_the_cut():
    cut = Answer(["k", "v"], ["BIGINT", "VARCHAR"], [0], 2, [[1, "a"], [2, "b"], [2, "c"], [3, "d"]])
    types = ["Int64", "Utf8"]
    assert check(cut, [[1, "a"], [2, "c"]], types) is None
    assert check(cut, [[1, "a"], [3, "d"]], types) is not None
    assert check(cut, [[1, "a"], [1, "a"]], types) is not None


def test_whole_numbers_must_be_equal():
    counts = Answer(["n"], ["HUGEINT"], [], None, [[10_000_000]])
    assert check(counts, [[Decimal("10000000.0")]], ["Decimal128(20, 1)"]) is None
    assert check(counts, [[10_000_001]], ["Int64"]) is not None


def test_floats_may_differ_by_a_millionth():
    floats = Answer(["x", "y"], ["DOUBLE", "DOUBLE"], [], None, [[3.0, 0.0]])
    types = ["Float64", "Float64"]
    assert check(floats, [[3.000002, 1e-12]], types) is None
    assert check(floats, [[3.00001, 0.0]], types) is not None
    assert check(floats, [[3.0, 1e-6]], types) is not None


def test_float_may_differ_from_decimal_in_its_last_place():
    mean = Answer(["x"], ["DOUBLE"], [], None, [[2.0 / 3.0]])
    assert check(mean, [["0.6666"]], ["Decimal128(19, 4)"]) is None
    assert check(mean, [["0.6660"]], ["Decimal128(19, 4)"]) is not None


@pytest.mark.parametrize("name, scale", [("DECIMAL(38,2)", 2), ("Decimal128(15, 6)", 6), ("decimal(9, -2)", -2), ("Int64", None)])
def test_decimal_scale_reads_both_spellings(name, scale):
    assert decimal_scale(name) == scale


def test_texts_dates_and_whole_numbers_have_no_tolerance():
    assert [numeric(t, "Utf8") for t in ("VARCHAR", "DATE", "BIGINT", "BOOLEAN")] == [None] * 4


def test_oracle_keeps_the_rows_that_tie_at_the_cut():
    connection = connect(threads=1)
    connection.execute("CREATE TABLE t AS SELECT i // 3 AS k, i AS v FROM range(300) r(i)")
    found = compute(connection, "SELECT v AS w FROM t ORDER BY k DESC LIMIT 4")
    assert (found.columns, found.keys, found.limit) == (["w"], [1], 4)
    assert sorted(row[0] for row in found.rows[:6]) == [294, 295, 296, 297, 298, 299]
    assert difference(found, ["w"], ["Int64"], [[299], [297], [298], [294]]) is None
    assert difference(found, ["w"], ["Int64"], [[299], [297], [298], [293]]) is not None


def test_oracle_resolves_order_by_to_aliases_first():
    connection = connect(threads=1)
    connection.execute("CREATE TABLE t AS SELECT i AS a FROM range(5) r(i)")
    found = compute(connection, "SELECT -a AS a FROM t ORDER BY a LIMIT 2")
    assert [row[0] for row in found.rows[:2]] == [-4, -3] and [row[1] for row in found.rows[:2]] == [-4, -3]
