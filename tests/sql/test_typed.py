"""Tests of the population of typed SQL: its files, its draw, and DuckDB's outcome of every case.

`python -m bench.typed` runs the cases in Pellucid.
"""

import json
import os
import shutil
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from harness.binary import Ran
from harness.sql import typed, typed_files
from harness.sql.oracle import Answer
from harness.sql.typed_judge import differs, judge
from harness.sql.typed_values import actual, interval, stamp

CASES = typed.load()
# Cases in 256 of a review of what analysts type.
SHARES = {
    "select": 28, "joins": 14, "reshaping": 9, "windows": 11, "aggregates": 20, "sets": 6, "text": 15, "dates": 16, "casts": 11,
    "nested": 12, "csv": 23, "files": 23, "describe": 13, "tables": 17, "copy": 10, "scripts": 15, "mistakes": 13,
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    typed_files.make(folder)
    return folder


def test_population_is_large_and_keeps_the_shares():
    counts = Counter(case.group for case in CASES)
    assert len(CASES) >= 540 and len({case.id for case in CASES}) == len(CASES)
    assert counts.keys() == SHARES.keys()
    for group, share in SHARES.items():
        assert abs(counts[group] / len(CASES) - share / sum(SHARES.values())) < 0.015, group


def test_reserved_cases_are_the_drawn_ones():
    for group in SHARES:
        cases = [case for case in CASES if case.group == group]
        assert {case.id for case in cases if case.reserved} == typed.draw([case.id for case in cases])


def test_deliberate_differences_are_few_and_have_reasons():
    reasons = tomllib.loads(typed.DELIBERATE.read_text())
    assert reasons.keys() <= {case.id for case in CASES}
    assert all(reasons.values()) and len(reasons) <= len(CASES) * 0.02


@pytest.mark.parametrize("group", SHARES)
def test_duckdb_answers_all_but_mistakes(files, tmp_path, group):
    before = Path.cwd()
    for case in CASES:
        if case.group == group:
            shutil.copytree(files, tmp_path / case.id)
            os.chdir(tmp_path / case.id)
            try:
                outcome = typed.run(case)
            finally:
                os.chdir(before)
            assert (outcome.answer is None) == case.refused, f"{case.id}: {outcome.error}"
            assert case.refused or outcome.answer.columns


def test_files_are_the_same_each_time(files, tmp_path):
    typed_files.make(tmp_path)
    for path in files.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / path.relative_to(files)).read_bytes(), path


def test_parse_reads_headers_notes_and_comments():
    text = "-- A file.\n\n-- case: x-01\n-- read: FROM 'o.csv'\nCOPY t\nTO 'o.csv'\n\n-- case: x-02 (reserved)\n-- a comment\nSELECT 1\n"
    first, second = typed.parse(text)
    assert (first.read, first.text, first.reserved, first.group) == ("FROM 'o.csv'", "COPY t\nTO 'o.csv'", False, "x")
    assert (second.text, second.reserved) == ("-- a comment\nSELECT 1", True)
    with pytest.raises(ValueError, match="cannot read the case header"):
        typed.parse("-- case: 1\nSELECT 1")


ONE = typed.Outcome(Answer(["a", "n"], ["INTEGER", "VARCHAR"], [], None, [[1, "x"], [2, None]]), None)
REFUSED = typed.Outcome(None, "Binder Error")


def judged(text, expected=ONE, code=0, err="", columns=("a", "n"), rows=((1, "x"), (2, None)), **notes):
    """Returns the verdict on an answer or an error."""
    out = json.dumps({"columns": [{"name": name, "type": "Int64"} for name in columns], "rows": rows}) if code == 0 else ""
    return judge(typed.Case("x-01", False, text, **notes), expected, Ran([], code, out, err)).kind


def test_answers_are_judged_by_names_and_rows():
    assert judged("FROM t") == "alike"
    assert judged("FROM t", rows=((2, None), (1, "x"))) == "alike"
    assert judged("FROM t", rows=((1, "x"),)) == "different"
    assert judged("FROM t", columns=("A", "n")) == "different"
    assert judged("FROM t", columns=(), rows=()) == "silent"
    assert judged("FROM t", expected=REFUSED, error="t") == "different"
    assert judge(typed.Case("x-01", False, "FROM t"), ONE, Ran([], 0, "", "")).kind == "silent"
    assert judge(typed.Case("x-01", False, "FROM t"), ONE, None).kind == "panic"
    assert judged("FROM t", code=101, err="thread panicked at src/x.rs") == "panic"
    assert not differs("sum(Amount)", "sum(t.Amount)") and not differs("(a + 1)", "t.a + 1") and differs("Total (EUR)", "total (EUR)")


def test_errors_are_clear_if_they_place_and_name_a_word():
    text = "SELECT a,\n  strftime(d, '%Y') FROM t"
    assert judged(text, code=1, err="error: unknown function strftime at line 2, column 3") == "clear error"
    assert judged(text, code=1, err="error: unknown function `strftime`") == "unclear error"
    assert judged(text, code=1, err="error: cannot plan at Line: 2, Column: 3\n  strftime(d, '%Y') FROM t\n  ^") == "unclear error"
    assert judged(text, code=1, err="error: unknown at line 7, column 3") == "unclear error"


def test_mistakes_need_place_name_and_candidate():
    text, err = "SELECT Ctiy FROM c", "no column `Ctiy` at line 1, column 8; did you mean `City`?"
    for message, verdict in (
        (err, "alike"),
        (err.replace("City", "Name"), "unclear error"),
        (err.replace("column 8", "column 13"), "unclear error"),
        (err.replace("Ctiy", "column"), "unclear error"),
    ):
        assert judged(text, REFUSED, 1, message, error="Ctiy|c.Ctiy -> City") == verdict
    assert judged("SELECT 1 WHERE", REFUSED, 1, "unexpected end of input at line 1, column 15", error="end") == "alike"
    assert judged("SELECT 'x'::INT", REFUSED, 1, "cannot cast x", data_error="x|y") == "alike"
    assert judged("CREATE TABLE t (a INT CHECK (a > 0))", REFUSED, 1, "CHECK is not supported", data_error="CHECK") == "unclear error"
    assert judged("SELECT to_char(d)", code=1, err="no to_char at line 1, column 8", duckdb="SELECT 1") == "alike"


def test_values_have_one_form():
    assert stamp("2024-01-01 10:00:00.500000000+02:00") == "2024-01-01T08:00:00.500000+00:00" == stamp("2024-01-01T08:00:00.5Z")
    assert stamp("10:00:00.250") == "10:00:00.25" and stamp("2024-01-01") == "2024-01-01"
    assert interval("1 years 2 mons 3 days 4 hours 5.5 secs") == "14 months 273605500000 us" and interval("P3DT-1H") == "0 months 255600000000 us"
    assert actual({"a": 1, "b": [1.50]}, "STRUCT", "Struct") == '{"a": "1", "b": ["1.5"]}'
