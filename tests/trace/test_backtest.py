"""Predictions against measured times: a short matrix paced by the engine, and the recorded matrix.

The short matrix needs neither root nor a quiet machine: the disk is the limit, and the engine sets its pace. It cannot show
how good predictions are on shared hardware; `make backtest` can, and its traces are replayed here.
"""

import json

import pytest

from bench.backtest import cases, manifest, rig, run, table
from bench.common import results
from harness import binary

# Maximum error of a prediction in the short matrix, which runs while other tests use the machine.
LIVE_ERROR = "15%"
REPEATS = 3
# Tolerated growth of a recorded case's error since the page was made, as a share.
SLACK = 0.02


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The measured short matrix: the manifest's path and its cases."""
    folder = tmp_path_factory.mktemp("backtest")
    lines = []
    with rig.rig("engine", small=True) as hardware:
        for query, base, several in cases.groups(cases.short()):
            hardware.place(query)
            found = {config: [] for config in (base, *(case.target for case in several))}
            for repeat in range(REPEATS):
                for config, of in found.items():
                    trace = folder / f"{query.name} {config.name} {repeat}.trace"
                    # A canary would be pointless here: the disk's pace is the limit, whatever else uses the cores.
                    of.append(hardware.run(query, config, trace) | {"trace": trace.name, "canary": 1.0})
            for case in several:
                name = {"case": {"name": case.name}, "machine": results.machine(), "emulation": "engine-paced"}
                lines.append(name | run.line(case, found, {}, None))
    return manifest.write(lines, folder), lines


def test_short_matrix_is_predicted_within_live_error(measured):
    path, lines = measured
    ran = binary.run("backtest", "--json", "--max-error", LIVE_ERROR, path)
    document = json.loads(ran.out)
    errors = {case["name"]: (case["measured_ms"], case["predicted_ms"], case["error"]) for case in document["cases"]}
    assert set(errors) == {line["case"]["name"] for line in lines}
    assert ran.code == 0, f"over {LIVE_ERROR}: {errors}\n{ran.err}"


def test_short_matrix_changes_times(measured):
    """Rules out that a prediction of no change passes for a good one."""
    _, lines = measured
    changed = [line for line in lines if not 0.77 < line["target_ms"][0] / line["baseline_ms"][0] < 1.3]
    assert len(changed) >= len(lines) // 2, [(line["case"]["name"], line["baseline_ms"], line["target_ms"]) for line in lines]


def test_max_error_fails_when_exceeded(measured):
    path, _ = measured
    ran = binary.run("backtest", "--max-error", "0.0001%", path)
    assert ran.code == 1 and not binary.PANIC.search(ran.err), ran.err


def test_predictions_are_deterministic(measured):
    path, _ = measured
    first, second = (binary.run("backtest", "--json", path).check().out for _ in range(2))
    assert first == second


def test_causal_check_slows_short_jobs_to_the_set_rate(tmp_path):
    """No job is faster than its bytes at the set rate: bandwidth that an idle engine saved up must not count."""
    file = tmp_path / "x.parquet"
    binary.run("sql", "SELECT md5(cast(value AS VARCHAR)) AS x FROM range(100000)", "-o", file).check()
    query = f"SELECT count(*), max(x) FROM '{file}'"
    ran = binary.run("backtest", "--json", "--repeats", "3", "--causal", query).check()
    paced = {case["set"]["disk.rate"]: case for case in ran.json()["cases"] if "disk.rate" in case["set"]}
    if not paced:
        pytest.skip(f"this folder is on no disk: {ran.err}")
    for rate, case in paced.items():
        min_ms = file.stat().st_size * 0.9 / (float(rate.removesuffix("MB/s")) * 1e3)
        assert float(case["measured_ms"]) >= min_ms, (rate, min_ms, case)
    if max(float(case["baseline_ms"]) for case in paced.values()) < 150:
        assert "below 200 ms" in ran.err, ran.err


# The first bound is that of the example in the help; queries that spill are predicted worse.
@pytest.mark.parametrize(("name", "bound"), [(manifest.NAME, "11%"), (manifest.SPILLING, "30%")])
def test_recorded_matrix_is_predicted_as_well_as_before(name, bound):
    """Replays traces of emulated hardware kept with the results: no prediction may be worse than the page says."""
    folder = results.FOLDER / "backtest"
    if not (folder / name).exists():
        pytest.skip("no recorded matrix: `make backtest` on a machine where the lab works")
    document = json.loads(binary.run("backtest", "--json", "--max-error", bound, folder / name).check().out)
    found = {case["name"]: case["error"] for case in document["cases"]}
    noted = {name: case["error"] for name, case in table.noted(folder, name).items()}
    assert set(noted) == set(found), "the page describes other traces; run python -m bench.backtest.table"
    worse = {name: (noted[name], error) for name, error in found.items() if error > noted[name] + SLACK}
    assert not worse, f"errors before and after: {worse}"
