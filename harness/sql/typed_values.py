"""Values of DuckDB and Pellucid in one form, so that `compare.py` can compare them.

Text, whole numbers and booleans stay as they are. Decimals, dates, times and binary become text. A time of a zone
becomes one of UTC, an interval its months and microseconds, and a list, struct or map the text of its JSON, in which
numbers have nine digits.
"""

import datetime
import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

# DuckDB's types that Pellucid writes as text in several forms.
TIMES = ("TIMESTAMP", "DATE", "TIME")
STAMP = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")
MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "min": 60_000_000, "sec": 1_000_000, "millisec": 1000, "microsec": 1}
PART = re.compile(r"(-?\d+(?:\.\d+)?) *(year|mon|day|hour|min|sec|millisec|microsec)")
ISO = re.compile(r"(-?)P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?")


def expected(value: Any, kind: str) -> Any:
    """Returns a value of DuckDB, which Arrow gave as a Python object, in the common form."""
    if value is None:
        return None
    if kind.startswith("MAP") and not kind.endswith("]"):
        return _text(dict(value))
    if kind.endswith("]") or kind.startswith(("STRUCT", "UNION")):
        return _text(value)
    if kind == "JSON":
        return _json(value)
    if kind == "INTERVAL":
        months, days, nanoseconds = value
        return f"{months} months {days * MICROSECONDS['day'] + nanoseconds // 1000} us"
    return _scalar(value)


def actual(value: Any, kind: str, type_name: str) -> Any:
    """Returns a value of Pellucid's JSON in the form of a column of DuckDB's type `kind`; `type_name` is Pellucid's."""
    if value is None:
        return None
    if isinstance(value, (list, dict)):
        return _text(value)
    if kind == "JSON" and isinstance(value, str):
        return _json(value)
    if kind == "INTERVAL" and isinstance(value, str):
        return interval(value)
    if kind.startswith(TIMES) and isinstance(value, str):
        return stamp(value)
    if type_name.startswith("Decimal") and isinstance(value, str):
        number = Decimal(value)
        # Past 28 digits, arithmetic of decimals would fail.
        return int(number) if number == number.to_integral_value() else number
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value if value != value.to_integral_value() or value.as_tuple().exponent else int(value)
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (datetime.date, datetime.time)):
        return stamp(value.isoformat())
    return value


def stamp(text: str) -> str:
    """Returns an ISO time with `T`, without zeros at the end of its fraction, and in UTC if it has a zone."""
    if not STAMP.fullmatch(text):
        return re.sub(r"(\.\d*?)0+$", r"\1", text).rstrip(".") if "." in text else text
    if len(text) == 10:
        return text
    # Python reads at most microseconds.
    time = datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.replace(" ", "T")))
    return (time.astimezone(datetime.UTC) if time.tzinfo else time).isoformat()


def interval(text: str) -> str:
    """Returns an interval's months and microseconds, from words (`1 mons 2 days`) or ISO 8601 (`P1DT2S`)."""
    months, us = 0, Decimal(0)
    if match := ISO.fullmatch(text):
        sign = -1 if match[1] else 1
        for unit, number in zip(("day", "hour", "min", "sec"), match.groups()[1:]):
            us += sign * Decimal(number or 0) * MICROSECONDS[unit]
        return f"0 months {int(us)} us"
    found = PART.findall(text)
    if not found:
        return text
    for number, unit in found:
        if unit in ("year", "mon"):
            months += int(number) * (12 if unit == "year" else 1)
        else:
            us += Decimal(number) * MICROSECONDS[unit]
    return f"{months} months {int(us)} us"


def _json(text: str) -> str:
    try:
        return _text(json.loads(text))
    except ValueError:
        return text


def _text(value: Any) -> str:
    return json.dumps(_nested(value), ensure_ascii=False, sort_keys=False)


def _nested(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _nested(part) for key, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(part, tuple) and len(part) == 2 for part in value):
        return {str(_nested(key)): _nested(part) for key, part in value}
    if isinstance(value, list):
        return [_nested(part) for part in value]
    value = _scalar(value)
    if isinstance(value, str):
        number = _number(value)
        return stamp(value) if number is None else number
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return _number(str(value))
    return value


def _number(text: str) -> str | None:
    """Returns a number with nine digits, as text; None if the text is not a number."""
    if not re.fullmatch(r"-?(0|[1-9]\d*)(\.\d*)?(e[+-]?\d+)?", text, re.IGNORECASE):
        return None
    try:
        return f"{Decimal(text):.9g}".lower()
    except InvalidOperation:
        return None
