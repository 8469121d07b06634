"""Tests of the backtest's matrix, validity rules, manifest and page, on recorded samples."""

import json
import re

import pytest

from bench.backtest import cases, judge, manifest, run, table
from bench.backtest.cases import Config
from bench.backtest.rig import QUERIES as TEXTS

# Measured times of a sort at 100 MB/s.
STEADY = [4012.1, 4025.7, 3998.4, 4031.0, 4007.9]
RESTLESS = [4012.1, 4525.7, 3998.4, 4431.0, 4007.9]


def runs(ms, **more):
    return [{"ms": one, "canary": 0.99, "server_cores": None} | more for one in ms]


def line(name="sort-10 2c-1x100mb to 2c-1x50mb", void=None, **more):
    """Returns a case as `run` appends it."""
    query, _, rest = name.partition(" ")
    base, target = rest.split(" to ")
    found = {
        "case": {"name": name},
        "machine": "2 cores",
        "build": "abc",
        "at": "2026-11-21T15:00:00",
        "emulation": "kernel",
        "query": query,
        "set": {"disk.rate": "50MB/s"},
        "why": "disk rate",
        "void": void,
        "configs": {"baseline": base, "target": target},
        "calibration": {"baseline": "disk 100.1 MB/s", "target": "disk 50.0 MB/s"},
    }
    for end, factor, kind in (("baseline", 1, "cpu"), ("target", 2, "disk")):
        found |= {
            f"{end}_ms": [] if void else [factor * ms for ms in STEADY],
            f"{end}_canary": 0.99,
            f"{end}_bottleneck": kind,
            f"{end}_ideal_ms": {"cpu": 3900.0, "disk": factor * 3800.0, "network": None},
        }
    found |= {"target_middle": 0, "target_trace": "target-0.trace"}
    found["baseline_traces"] = [] if void else [f"baseline-{index}.trace" for index in range(5)]
    return found | more


def test_matrix_covers_the_goals_and_the_papers_figures():
    matrix = cases.full()
    names = [case.name for case in matrix]
    assert len(set(names)) == len(names) >= table.CASES
    assert len({case.query.name for case in matrix}) >= table.QUERIES
    for figure in ("fig. 11", "fig. 12", "§6.3", "fig. 13", "fig. 14"):
        assert any(case.why.startswith(figure) for case in matrix), figure
    assert {config.cores for case in matrix for config in (case.base, case.target)} >= {0.5, 1, 1.5, 2}
    rates = {config.disk_mb for case in matrix for config in (case.base, case.target)}
    assert min(rates) <= 25 and max(rates) >= 200
    links = {config.link_mbit for case in matrix for config in (case.base, case.target)} - {None}
    assert min(links) == 100 and max(links) == 1000
    for query in cases.QUERIES.values():
        assert (TEXTS / f"{query.path}.sql").exists() and query.data in cases.DATA


def test_groups_take_less_than_five_minutes():
    for _, _, several in cases.groups(cases.full()):
        assert run.expected_s(several, []) < 300


def test_settings_follow_from_the_configurations():
    base = Config(2, 100)
    assert cases.settings(base, Config(1, 100)) == {"cores": "1"}
    assert cases.settings(base, Config(1.5, 50)) == {"cores": "1.5", "disk.rate": "50MB/s"}
    assert cases.settings(base, Config(2, 100, disks=2)) == {"disks": "2"}
    assert cases.settings(base, Config(2, 100, input="memory-decoded")) == {"input": "memory-decoded"}
    assert cases.settings(base, Config(2, 100, input="cached")) == {"no": "disk"}
    linked = Config(2, link_mbit=100)
    assert cases.settings(linked, Config(2, link_mbit=500)) == {"store.rate": "500Mbit/s"}
    # A trace counts threads, and a thread under a quota is less than a core.
    assert cases.settings(Config(0.5, 50), Config(2, 200, input="memory")) == {"cores": "x4", "input": "memory"}
    little = Config(2, 100, memory="64MiB")
    assert cases.settings(little, Config(2, 50, memory="1GiB")) == {"disk.rate": "50MB/s", "memory": "1GiB"}
    assert little.name == "2c-1x100mb-64mib"
    with pytest.raises(ValueError, match="nothing differs"):
        cases.settings(base, base)
    with pytest.raises(ValueError, match="another place"):
        cases.settings(base, linked)


def test_interval_of_the_median_follows_from_ranks():
    assert judge.median_interval(STEADY) == (3998.4, 4031.0)
    assert judge.median_interval(list(range(1, 12))) == (3, 9)
    assert judge.uncertainty(STEADY) == pytest.approx((4031.0 - 3998.4) / 2 / 4012.1)
    with pytest.raises(ValueError, match="4 repeats"):
        judge.median_interval(STEADY[:4])


def test_ranks_cover_the_median_at_90_percent():
    """Checks the table of ranks against the binomial distribution."""
    from math import comb

    for count, rank in judge.RANKS.items():
        outside = 2 * sum(comb(count, k) for k in range(rank)) / 2**count
        assert outside <= 0.1
        one_more = outside + 2 * comb(count, rank) / 2**count
        assert one_more > 0.1, f"{count}: {rank + 1} would do"


@pytest.mark.parametrize(
    "of, reason",
    [
        (runs(STEADY), None),
        (runs(STEADY[:4]), "4 of 5 repeats"),
        (runs(RESTLESS), "uncertain by"),
        (runs(STEADY, canary=0.8), "0 of 5 repeats, the machine was busy during 5 (canary 0.80)"),
        (runs(STEADY) + runs([9000.0], canary=0.8), None),
        (runs(STEADY, server_cores=0.09), None),
        (runs(STEADY, server_cores=0.11), "server took 0.11"),
    ],
)
def test_configuration_is_void_with_a_reason(of, reason):
    why = judge.void(of)
    assert (why is None) if reason is None else (reason in why)


def test_disturbed_run_is_repeated_and_not_counted():
    disturbed = runs(STEADY[:4]) + runs([9000.0], canary=0.5)
    assert not judge.enough(disturbed)
    assert judge.enough(disturbed + runs(STEADY[4:]))
    (case,) = [case for case in cases.full() if case.name == "sort-10 2c-1x100mb to 2c-1x50mb"]
    of = [run_ | {"trace": "x", "bottleneck": "cpu", "ideal_ms": {}} for run_ in disturbed + runs(STEADY[4:])]
    kept = run.line(case, {case.base: of, case.target: of}, {}, None)
    assert kept["baseline_ms"] == STEADY and kept["target_ms"] == STEADY


def test_short_runs_are_repeated_more_often():
    assert not judge.ended(runs(RESTLESS)) and judge.ended(runs([9000.0, 4000.0] * 6))
    short = runs([1000.0, 2000.0] * 6)
    assert not judge.ended(short) and judge.ended(short + short)


def test_balance_compares_the_two_largest_ideal_times():
    assert judge.balanced({"cpu": 100, "disk": 81, "network": None})
    assert not judge.balanced({"cpu": 100, "disk": 79, "network": None})
    assert not judge.balanced({"cpu": 100, "disk": None, "network": None})


def test_void_cases_are_missing_and_valid_ones_are_kept():
    matrix = cases.full()[:2]
    void, good = line(matrix[0].name, void="busy"), line(matrix[0].name)
    assert run.missing(matrix, [void]) == matrix
    assert run.missing(matrix, [void, good]) == matrix[1:]
    assert run.missing(matrix, [good, void]) == matrix[1:]
    assert manifest.newest([good, void]) == [good]
    assert manifest.newest([void, good]) == [good]


def test_estimated_time_uses_measured_times():
    case = next(case for case in cases.full() if case.query.name == "sort-10")
    slow = line(case.name)
    slow["baseline_ms"] = [60_000.0] * 5
    assert run.expected_s([case], [slow]) > run.expected_s([case], []) + 200


def test_manifest_names_traces_of_valid_cases():
    document = manifest.document([line(), line("bdb-4 1c-2x100mb to 1c-1x100mb", void="busy")])
    assert document["format"] == "pellucid.manifest/1"
    (good,) = document["cases"]
    assert good["baseline"] == [f"baseline-{index}.trace" for index in range(5)] and "void" not in good
    assert good["measured"] == ["target-0.trace"] and good["measured_ms"] == [2 * ms for ms in STEADY[1:]]
    assert all(isinstance(value, str) for value in good["set"].values())
    json.dumps(document)


def test_page_counts_cases_and_judges_unrounded_values(monkeypatch, tmp_path):
    monkeypatch.setattr(table, "same_work_ns", lambda paths: [93 if path.name.startswith("target") else 100 for path in paths])
    name = line()["case"]["name"]
    predicted = {"name": name, "measured_ms": 8024.0, "predicted_ms": 8634.0, "low_ms": 8100.0, "high_ms": 9000.0, "error": 0.076}
    page = table.page([line(), line("bdb-4 1c-2x100mb to 1c-1x100mb", void="busy")], {name: predicted}, 60, tmp_path)
    assert "1 of 60 cases measured, 1 of them predicted**; 1 are void" in page
    assert re.search(r"\| cases \| 1 \| at least 60 \| not met \|", page)
    assert re.search(r"\| cases that move the bottleneck \| 1 ", page)
    assert re.search(r"\| worst error \| 7.6% \| at most 7% \| not met \|", page)
    assert re.search(r"\| median error \| 7.6% \| at most 2% \| not decided", page)
    assert "| bdb-4 1c-2x100mb to 1c-1x100mb | busy |" in page
    assert "| cpu → disk |" in page
    assert f"| {name} | 7.6% | 0.93 | 0.1% | " in page
    assert "no predictions" not in table.page([], {}, 60, tmp_path)


def test_queries_that_spill_have_goals_of_their_own():
    of = [{"error": 0.1}] * table.SPILLING
    assert [goal.split("|")[-2].strip() for goal in table.spill_goals(of)] == ["met", "met"]
    assert [goal.split("|")[-2].strip() for goal in table.spill_goals(of[1:])] == ["not met", "not decided: cases are missing"]
    assert len(table.spill_goals([])) == 1
    assert manifest.spills(line(why=f"{cases.SPILL}: memory")) and not manifest.spills(line())


def test_queries_that_spill_have_a_manifest_of_their_own(tmp_path):
    spilling = line("sort-10 2c-1xssd100-128mib to 2c-1xssd50-128mib", why=f"{cases.SPILL}: memory")
    written = manifest.write([line(), spilling], tmp_path)
    assert written.name == manifest.NAME
    for name, of in ((manifest.NAME, line()), (manifest.SPILLING, spilling)):
        assert [case["name"] for case in json.loads((tmp_path / name).read_text())["cases"]] == [of["case"]["name"]]
