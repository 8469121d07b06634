"""Tests of the benchmark of Spark event logs: missing runs, manifest and page. No Spark runs here."""

import pytest

from bench.common import results
from bench.spark import cases, run, table


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Returns a function that writes a run's log into a temporary folder, and returns its line."""
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(table, "LOGS", tmp_path)

    def line(case: dict, ms: float = 1000.0, canary: float = 1.0) -> dict:
        log = f"{case['suite']}-{case['way']}-{case['round']}"
        (tmp_path / log).touch()
        rest = {"others_cores": 0.02, "disk": None, "machine": "m", "took_s": 12.0, "build": "spark-4.3.0"}
        return {"case": case, "ms": ms, "canary": canary, "log": log, "at": results.now(), **rest}

    return line


def test_every_configuration_runs_in_each_round_and_the_first_one_rotates():
    runs = run.wanted({"pairs"}, "4.3.0")
    names = {way.name for way in cases.ways()}
    for turn in range(cases.ROUNDS):
        assert {r["way"] for r in runs if r["round"] == turn} == names
    firsts = [next(r["way"] for r in runs if r["round"] == turn) for turn in range(cases.ROUNDS)]
    assert len(set(firsts)) == cases.ROUNDS
    assert {case.settings["disk.rate"] for case in cases.pairs() if "disk.rate" in case.settings} == {"x2", "x0.5"}


def test_run_is_missing_if_it_was_disturbed_or_has_no_log(kept):
    first, second, third = run.wanted({"pairs"}, "4.3.0")[:3]
    lines = [kept(first), kept(second, canary=0.5), kept(third)]
    (run.LOGS / lines[2]["log"]).unlink()
    left = run.missing([first, second, third], lines)
    assert left == [second, third]
    assert run.expected_s(first, lines) == 12.0 and run.expected_s({"way": "another"}, lines) == cases.RUN_S


def test_manifest_has_pairs_measured_in_both_configurations(kept):
    case = cases.pairs()[0]
    lines = [kept({"suite": "pairs", "way": case.base.name, "spark": "4.3.0", "round": 0})]
    assert table.manifest(table.newest(lines))["cases"] == []
    lines.append(kept({"suite": "pairs", "way": case.target.name, "spark": "4.3.0", "round": 0}))
    found = table.manifest(table.newest(lines))["cases"]
    assert [(one["set"], one["baseline"], one["measured"]) for one in found[:1]] == [(case.settings, [lines[0]["log"]], [lines[1]["log"]])]
    assert len(found) == 2, "and from the second to the first"


@pytest.mark.parametrize(("predicted", "verdict"), [(1100.0, "not decided"), (1300.0, "not met")])
def test_goal_needs_every_pair_inside_its_interval_and_within_15_percent(kept, predicted, verdict):
    case = cases.pairs()[0]
    lines = [kept({"suite": "pairs", "way": way.name, "spark": "4.3.0", "round": 0}) for way in (case.base, case.target)]
    one = {"name": case.name, "set": case.settings, "baseline_ms": 2000.0, "predicted_ms": predicted, "measured_ms": 1000.0}
    one |= {"low_ms": 900.0, "high_ms": 1400.0, "error": predicted / 1000 - 1}
    text = "\n".join(table.pairs_table({"cases": [one]}, table.manifest(table.newest(lines))))
    assert f": {verdict}" in text and "1 of 1 inside" in text, text


@pytest.mark.parametrize(
    ("expected", "causes", "right"),
    [
        ("skew", ["skew", "cpu"], True),
        ("skew", ["gc", "skew"], False),
        ("none", [], True),
        ("none", ["cpu"], True),
        ("none", ["cpu", "gc"], False),
        ("disk input", ["cpu", "unexplained", "disk input"], True),
        ("disk input", ["gc", "disk input"], False),
    ],
)
def test_first_cause_is_compared_with_the_known_one(expected, causes, right):
    document = {"causes": [{"cause": cause, "at_most": cause == "disk input"} for cause in causes]}
    assert table.first_cause(document, expected)[1] == right
