"""Judges what Pellucid made of a case of `tests/sql/typed`, beside DuckDB's outcome.

| verdict | meaning |
|---|---|
| alike | the same columns' names and rows; or DuckDB refuses, and the error is clear |
| different | another answer, or an answer where DuckDB refuses |
| silent | nothing where DuckDB answers |
| unclear error | an error without a position, or one that does not name the word or construct there |
| clear error | an error with line and column that names the word or construct there, where DuckDB answers |
| panic | a panic, a signal, or no end within the timeout |

Rows compare by the rules of `compare.py`. Names compare unless DuckDB made them from an expression. The estimates of
SUMMARIZE may differ a little.
"""

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from harness.binary import PANIC, Ran
from harness.sql import compare, oracle, typed_values
from harness.sql.typed import Case, Outcome

VERDICTS = ("alike", "different", "silent", "unclear error", "clear error", "panic")
POSITION = re.compile(r"\bline:?\s*(\d+)\s*,?\s*col(?:umn)?\.?:?\s*(\d+)", re.IGNORECASE)
TOKEN = re.compile(r"\w+|'[^']*'?|\"[^\"]*\"?|\S")
# An engine that lacks a construct has not found the mistake in it.
LACKING = re.compile(r"not (currently |yet )?(supported|implemented)|unsupported", re.IGNORECASE)
QUOTED = re.compile(r"`([^`]+)`|'([^']+)'|\"([^\"]+)\"")
# Characters of names that DuckDB made from an expression.
EXPRESSION = re.compile(r"\w\(|[*/=<>'\[\]:|]|^\(")
# A statement's line of this length in a message is an echo, which names nothing.
ECHO = 12
# Columns of SUMMARIZE that hold estimates or long fractions, and by how much each may differ.
ESTIMATES = {"approx_unique": 0.2, "avg": 1e-6, "std": 1e-6, "q25": 0.1, "q50": 0.1, "q75": 0.1}


@dataclass(frozen=True)
class Verdict:
    """How Pellucid did on a case, and the difference or message behind it."""

    kind: str
    note: str


def judge(case: Case, expected: Outcome, ran: Ran | None, read: Outcome | None = None) -> Verdict:
    """Compares a finished process with DuckDB's outcome; `read` is DuckDB's reading of the files that it wrote."""
    if ran is None:
        return Verdict("panic", "no end within the timeout")
    if ran.code < 0 or PANIC.search(ran.err + ran.out):
        return Verdict("panic", f"exit {ran.code}: {ran.err.strip()}")
    if ran.code != 0:
        # Summaries of earlier statements may stand before the error.
        return _refusal(case, ran.err[max(ran.err.find("error:"), 0) :].strip())
    if case.read is None:
        return _answer(expected, ran)
    if read is None or read.answer is None:
        return Verdict("different", f"cannot read the written files: {read.error if read else ''}")
    found = read.answer
    return _compared(expected.answer, found.columns, found.types, found.rows)


def _refusal(case: Case, message: str) -> Verdict:
    if case.data_error is not None:
        clear = _names(case.data_error.split("|"), message)
    elif case.error is not None:
        clear = is_helpful(case.text, case.error, message)
    else:
        clear = is_clear(case.text, message)
    if not clear or (case.refused and LACKING.search(message)):
        return Verdict("unclear error", message)
    return Verdict("alike" if case.refused or case.duckdb else "clear error", message)


def is_clear(text: str, message: str) -> bool:
    """Returns whether a message has a position in the text and names the word there, or a quoted part of the text."""
    said = _without_echo(text, message)
    quoted = [next(part for part in match if part) for match in QUOTED.findall(said)]
    if any(part.lower() in text.lower() for part in quoted):
        return any(_token(text, *at) for at in positions(message))
    words = [_token(text, *at) for at in positions(message)]
    return _names([word for word in words if word and re.search(r"\w", word)], said)


def is_helpful(text: str, rule: str, message: str) -> bool:
    """Returns whether a message has the position of one of a rule's words, names it, and proposes the candidate."""
    words, _, candidate = rule.partition(" -> ")
    said = _without_echo(text, message)
    alternatives = words.split("|")
    # At the end of the text, a message names the end.
    names = alternatives + ["EOF", "end of"] * ("end" in alternatives)
    placed = any(_is_at(text, word, *at) for word in alternatives for at in positions(message))
    return placed and _names(names, said) and (not candidate or _names([candidate], said))


def positions(message: str) -> list[tuple[int, int]]:
    """Returns the lines and columns in a message."""
    return [(int(line), int(column)) for line, column in POSITION.findall(message)]


def _is_at(text: str, word: str, line: int, column: int) -> bool:
    lines = text.split("\n")
    if word == "end":
        return (line, column) >= (len(lines), len(lines[-1].rstrip()))
    if not 1 <= line <= len(lines):
        return False
    found = re.finditer(_bounded(word), lines[line - 1], re.IGNORECASE)
    return any(match.start() <= column - 1 <= match.end() for match in found)


def _token(text: str, line: int, column: int) -> str | None:
    """Returns the word at a position; the last one if the position is the end of its line."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return None
    found = [match for match in TOKEN.finditer(lines[line - 1]) if match.start() <= column - 1]
    return found[-1][0] if found and column - 1 <= len(lines[line - 1]) else None


def _names(words: list[str], said: str) -> bool:
    return any(re.search(_bounded(word), said, re.IGNORECASE) for word in words)


def _bounded(word: str) -> str:
    start = r"(?<!\w)" if word[:1].isalnum() else ""
    return start + re.escape(word) + (r"(?!\w)" if word[-1:].isalnum() else "")


def _without_echo(text: str, message: str) -> str:
    """Removes positions and whole lines of the text from a message."""
    said = POSITION.sub("", message)
    for line in text.split("\n"):
        if len(line.strip()) >= ECHO:
            said = said.replace(line.strip(), "")
    return said


def _answer(expected: Outcome, ran: Ran) -> Verdict:
    document = json.loads(ran.out, parse_float=Decimal) if ran.out.strip() else {}
    documents = document.get("results", [document])
    last = documents[-1] if documents else {}
    columns, rows = last.get("columns", []), last.get("rows", [])
    if expected.answer is None:
        return Verdict("different", f"answers {rows[:3]}; DuckDB refuses: {expected.error}")
    if not columns:
        return Verdict("silent", f"nothing; expected {expected.answer.rows[:3]}")
    names, types = [column["name"] for column in columns], [column["type"] for column in columns]
    kinds = expected.answer.types
    if len(kinds) == len(types):
        rows = [[typed_values.actual(value, kind, type_name) for value, kind, type_name in zip(row, kinds, types)] for row in rows]
    return _compared(expected.answer, names, types, rows)


def _compared(expected: oracle.Answer | None, names: list[str], types: list[str], rows: list[list]) -> Verdict:
    if expected is None:
        return Verdict("different", f"answers {rows[:3]}")
    # The names of a struct's fields and their types are not rules for numbers.
    kinds = [kind if re.fullmatch(r"\w+(\([\d,]+\))?", kind) else "VARCHAR" for kind in expected.types]
    rule = oracle.Answer(expected.columns, kinds, expected.keys, None, expected.rows)
    wrong = None
    if len(names) == rule.width:
        wrong = next((f"column `{got}`, expected `{name}`" for name, got in zip(rule.columns, names) if differs(name, got)), None)
        rows = _estimated(rule, rows)
    if wrong is None:
        try:
            wrong = compare.difference(rule, names, types, rows)
        except (InvalidOperation, TypeError):
            wrong = f"values of other types: got {rows[:2]}, expected {rule.rows[:2]}"
    return Verdict("different", wrong) if wrong else Verdict("alike", "")


def differs(expected: str, actual: str) -> bool:
    """Returns whether a column has another name, where DuckDB's is not made from an expression."""
    return expected != actual and not EXPRESSION.search(expected)


def _estimated(expected: oracle.Answer, rows: list[list]) -> list[list]:
    """Replaces estimates by DuckDB's where they are close to them."""
    if "approx_unique" not in expected.columns or len(rows) != len(expected.rows):
        return rows
    bounds = [ESTIMATES.get(name) for name in expected.columns]
    return [[_close(value, other, bound) for value, other, bound in zip(row, good, bounds)] for row, good in zip(rows, expected.rows)]


def _close(value: Any, expected: Any, bound: float | None) -> Any:
    if bound is None or value is None or expected is None:
        return value
    try:
        near = abs(float(value) - float(expected)) <= max(abs(float(expected)) * bound, 1 if bound > 0.01 else 0)
    except ValueError:
        return value
    return expected if near else value
