"""Tests of the population of typed SQL: its files, its draw, and DuckDB's outcome of every case.

`python -m bench.typed` runs the cases in Pellucid.
"""

import os
import shutil
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from harness.sql import typed, typed_files

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
