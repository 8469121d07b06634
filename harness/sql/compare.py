"""Compares answers by the rules of `tests/README.md`.

Pure: takes the oracle's answer and rows that `pellucid sql --json` wrote, and describes the first difference, if any.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from harness.sql.oracle import Answer

RELATIVE = Decimal("1e-6")
# Floats below this equal zero: sums of cents that cancel leave such remainders.
ABSOLUTE = Decimal("1e-9")
# A difference of more than a cent counts, however few digits a decimal has.
CENT = Decimal("0.01")
# A mean is a float in DuckDB and a decimal of at least four more digits in DataFusion:
# keys closer than this may come in either order.
KEY_ABSOLUTE = Decimal("2e-6")


@dataclass(frozen=True)
class Numeric:
    """The comparison rule of a number column: one unit in the last place of the coarser decimal."""

    unit: Decimal

    def same(self, expected: Decimal | None, actual: Decimal | None) -> bool:
        """Returns whether both are equal within the unit or the relative bound, whichever is larger."""
        if expected is None or actual is None:
            return expected is actual
        if not (expected.is_finite() and actual.is_finite()):
            return str(expected) == str(actual)
        return abs(expected - actual) <= max(self.unit, abs(expected) * RELATIVE if self.unit else 0)


def decimal_scale(type_name: str) -> int | None:
    """Returns the scale of `DECIMAL(15,2)` or `Decimal128(15, 2)`; None for other types."""
    match = re.search(r"decimal\d*\(\s*\d+\s*,\s*(-?\d+)\s*\)", type_name, re.IGNORECASE)
    return int(match[1]) if match else None


def numeric(expected_type: str, actual_type: str) -> Numeric | None:
    """Returns the rule for a column from both engines' types; None: compared exactly.

    Decimals of one scale must be equal to the digit; of two scales, to one unit of the
    coarser. A float against a decimal: one unit of the decimal. Two floats: relative only.
    """
    expected, actual = decimal_scale(expected_type), decimal_scale(actual_type)
    floating = re.fullmatch(r"DOUBLE|FLOAT|REAL", expected_type, re.IGNORECASE) is not None
    if expected is None and not floating:
        return None
    if expected is not None and expected == actual:
        return Numeric(Decimal(0))
    scales = [scale for scale in (expected, actual) if scale is not None]
    return Numeric(min(CENT, Decimal(1).scaleb(-min(scales))) if scales else ABSOLUTE)


def number(value: Any) -> Decimal | None:
    """Converts a JSON number or a decimal written as text."""
    return None if value is None else Decimal(str(value))


def exact(value: Any) -> Any:
    """Normalises a value for exact comparison: texts without trailing blanks, whole numbers as integers."""
    if isinstance(value, str):
        return value.rstrip(" ")
    if isinstance(value, (Decimal, float)) and value == value // 1:
        return int(value)
    return value


def difference(answer: Answer, columns: list[str], types: list[str], rows: list[list]) -> str | None:
    """Describes the first difference between these rows and a correct answer; None if they match."""
    if len(columns) != answer.width:
        return f"{len(columns)} columns {columns}, expected {answer.width} {answer.columns}"
    full = len(answer.rows)
    expected_rows = full if answer.limit is None else min(answer.limit, full)
    if len(rows) != expected_rows:
        return f"{len(rows)} rows, expected {expected_rows}"
    rules = [numeric(expected, actual) for expected, actual in zip(answer.types, types)]
    at = 0
    for group in tie_groups(answer):
        part = rows[at : at + len(group)]
        wrong = unmatched([row[: answer.width] for row in group], part, rules)
        if wrong is not None:
            return f"rows {at} to {at + len(part) - 1}: {wrong}"
        at += len(part)
        if at == expected_rows:
            break
    return None


def tie_groups(answer: Answer) -> list[list[list]]:
    """Splits the rows where ORDER BY determines the order; without ORDER BY, all rows are one group."""
    if not answer.keys:
        return [answer.rows] if answer.rows else []
    groups: list[list[list]] = []
    for row in answer.rows:
        if groups and all(_tied(answer.types[k], groups[-1][-1][k], row[k]) for k in answer.keys):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _tied(type_name: str, a: Any, b: Any) -> bool:
    """Returns whether a sort key allows two adjacent rows in either order."""
    if re.fullmatch(r"DOUBLE|FLOAT|REAL", type_name, re.IGNORECASE):
        return Numeric(KEY_ABSOLUTE).same(number(a), number(b))
    return a == b


def unmatched(expected: list[list], actual: list[list], rules: list[Numeric | None]) -> str | None:
    """Describes the first actual row without an expected row that is still unmatched, in any order."""
    waiting: dict[tuple, list[list]] = {}
    for row in expected:
        waiting.setdefault(_exact_part(row, rules), []).append(row)
    for row in actual:
        bucket = waiting.get(_exact_part(row, rules), [])
        found = next((i for i, other in enumerate(bucket) if _numbers_same(other, row, rules)), None)
        if found is None:
            return f"got {row}, expected {_nearest(row, bucket or expected)}"
        del bucket[found]
    return None


def _exact_part(row: list, rules: list[Numeric | None]) -> tuple:
    """Returns the part of a row that must be equal exactly; it includes which numbers are NULL."""
    return tuple(exact(value) if rule is None else value is None for value, rule in zip(row, rules, strict=True))


def _numbers_same(expected: list, actual: list, rules: list[Numeric | None]) -> bool:
    return all(rule.same(number(e), number(a)) for e, a, rule in zip(expected, actual, rules) if rule is not None)


def _nearest(row: list, candidates: list[list]) -> list:
    """Returns the candidate that shares most values with the row, to show in the message."""
    return max(candidates, key=lambda other: sum(str(a) == str(b) for a, b in zip(row, other)))
