"""Event logs that the project made itself, by `lab/spark_logs.py`: they are kept with it, so no test is skipped.

`tests/event_logs` has small ones of two versions of Spark in every compression, with what was counted
in their text before they were compressed. `bench/results/spark` has those that were made on a quiet
machine: jobs slow by one known cause, and the same job run two ways.
"""

import csv
import json

import pytest

from bench import results
from bench.spark import cases, table
from tests import binary
from tests.test_analyze_spark import SCREEN_COLUMNS, SCREEN_LINES, on_screen

SMALL = binary.ROOT / "tests" / "event_logs"
COUNTED = ("tasks", "stages", "jobs", "sql_executions")
# By how much a pair may be off more than when the page was made, as a share.
SLACK = 0.02


def small() -> list[dict]:
    """The small logs: folder, file, cause, and the counts of events."""
    columns = ("log", "cause", *COUNTED)
    found = []
    for made in sorted(SMALL.glob("*/made.tsv")):
        rows = csv.DictReader(made.open(), columns, delimiter="\t")
        found += [row | {"path": made.parent / row["log"]} for row in rows]
    return found


def analysis(log) -> dict:
    """The document that `analyze --json` prints for one log."""
    return binary.run("analyze", "--json", log).check().json()


def test_both_versions_and_every_compression_are_there():
    rows = small()
    assert {row["path"].parent.name[:9] for row in rows} == {"spark-3.5", "spark-4.3"}
    files = [part.name for row in rows for part in ([row["path"]] if row["path"].is_file() else row["path"].iterdir())]
    assert {name.rpartition(".")[2] for name in files} >= {"zstd", "lz4", "lzf", "snappy"}
    assert any(row["path"].is_dir() for row in rows), "none is rolling"


@pytest.mark.parametrize("row", small(), ids=lambda row: f"{row['path'].parent.name}/{row['log']}")
def test_what_ended_is_what_stands_in_the_text(row):
    source = analysis(row["path"])["source"]
    assert [source[key] for key in COUNTED] == [int(row[key]) for key in COUNTED]
    assert source["complete"] and source["kind"] == "spark-event-log"
    assert row["path"].parent.name == f"spark-{source['engine_version']}"


@pytest.mark.parametrize("row", small(), ids=lambda row: f"{row['path'].parent.name}/{row['log']}")
def test_small_as_it_is_it_has_a_screen(row):
    out = on_screen("analyze", row["path"])
    lines = out.splitlines()
    assert row["cause"] in lines[0], out
    assert len(lines) <= SCREEN_LINES and all(len(line) <= SCREEN_COLUMNS for line in lines), out


def quiet(suite: str) -> list[dict]:
    """The lines of a suite that count."""
    return [line for (of, *_), line in sorted(table.newest(results.load(table.SUITE)).items()) if of == suite]


@pytest.mark.parametrize("line", quiet("causes"), ids=lambda line: line["log"])
def test_a_job_that_is_slow_by_one_cause_has_that_named_first(line):
    job = next(job for job in cases.CAUSES if cases.cause_of(job).name == line["case"]["way"])
    named, is_right = table.first_cause(analysis(table.LOGS / line["log"]), cases.CAUSES[job])
    assert is_right, f"{cases.CAUSES[job]} is not first in {named}"


@pytest.mark.parametrize("line", [line for line in quiet("causes") if line["case"]["way"].startswith("skew")], ids=lambda line: line["log"])
def test_the_stage_that_makes_the_skewed_key_is_named(line):
    (cause,) = [cause for cause in analysis(table.LOGS / line["log"])["causes"] if cause["cause"] == "skew"]
    assert "by the key of stage" in cause["evidence"], "under adaptive execution another job ran that stage"


def test_recorded_pairs_are_predicted_as_well_as_they_were():
    if not table.PREDICTIONS.exists():
        pytest.skip("no recorded pairs: `make bench-spark` on a machine where the lab works")
    document = json.loads(binary.run("backtest", "--json", table.MANIFEST).check().out)
    noted = {case["name"]: case["error"] for case in json.loads(table.PREDICTIONS.read_text())["cases"]}
    found = {case["name"]: case["error"] for case in document["cases"]}
    assert set(noted) == set(found), "the page is not of these logs: python -m bench.spark.table"
    worse = {name: (noted[name], error) for name, error in found.items() if error > noted[name] + SLACK}
    assert not worse, worse
