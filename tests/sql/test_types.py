"""Overflow, casts and time zones beside DuckDB, and errors of values with their place in the statement."""

import pytest

from harness import binary
from harness.binary import FAILED


def value(sql):
    """Returns the value of one expression."""
    [[found]] = binary.result(binary.run("sql", "--json", f"SELECT {sql}")).rows
    return found


@pytest.mark.parametrize(
    "sql, expected",
    [
        ("1.5::INT + 2.5::INT", 5),
        ("3.5::DOUBLE::INT", 4),
        ("2.5::DOUBLE::INT", 2),
        ("' 1_000 '::INT + '0x1F'::INT + '1e3'::INT", 2031),
        ("TRY_CAST('abc' AS INT)", None),
        ("1e20::VARCHAR || ' ' || TIMESTAMP '2024-01-05 10:00:00.5'", "1e+20 2024-01-05 10:00:00.5"),
        ("'[1, 2]'::INT[]", [1, 2]),
        ("'{a: 1}'::STRUCT(a INT)", {"a": 1}),
        ("170141183460469231731687303715884105727", "170141183460469231731687303715884105727"),
        ("7 // 2", 3),
        ("INTERVAL (1 + 1) DAY::VARCHAR", "2 days"),
        ("DATE '2024-01-31' + INTERVAL 1 MONTH", "2024-02-29T00:00:00"),
        ("TIMESTAMPTZ '2024-07-01 00:00:00+00' AT TIME ZONE 'Europe/Berlin'", "2024-07-01T02:00:00"),
        ("TIMESTAMP '2024-07-01 02:00:00' AT TIME ZONE 'Europe/Berlin'", "2024-07-01T00:00:00Z"),
        ("sum(x) FROM (VALUES (9223372036854775807), (1), (-1)) t(x)", 9223372036854775807),
    ],
)
def test_values_are_those_of_duckdb(sql, expected):
    assert value(sql) == expected


@pytest.mark.parametrize(
    "sql, message, column",
    [
        ("9223372036854775807 + 1", "cannot compute 9223372036854775807 + 1: the result exceeds BIGINT", 8),
        ("1, 200::UTINYINT * 2::UTINYINT", "cannot compute 200 * 2: the result exceeds UTINYINT", 11),
        ("sum(x) FROM (VALUES (9223372036854775807), (1)) t(x)", "the sum 9223372036854775808 exceeds BIGINT", 8),
        ("1, 'abc'::INT", "cannot cast 'abc' to INTEGER", 11),
        ("x::DATE FROM (VALUES ('2024-02-30')) t(x)", "cannot cast '2024-02-30' of column x to DATE", 8),
        ("300::TINYINT", "cannot cast 300 to TINYINT", 8),
    ],
)
def test_failed_values_are_named_with_their_place(sql, message, column):
    ran = binary.run("sql", f"SELECT {sql}")
    assert ran.code == FAILED and message in ran.err and f"line 1, column {column}:" in ran.err, ran.err


def test_session_time_zone_decides_how_instants_are_shown():
    sql = "SET TimeZone = 'europe/berlin'; SELECT TIMESTAMPTZ '2024-07-01 00:00:00+00'::VARCHAR"
    ran = binary.run("sql", "--format", "csv", sql)
    assert "2024-07-01 02:00:00+02" in ran.check().out
    ran = binary.run("sql", "SET TimeZone = 'nowhere'")
    assert "cannot find time zone 'nowhere'" in ran.err and "line 1, column 16" in ran.err, ran.err
