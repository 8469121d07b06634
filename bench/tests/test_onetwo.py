"""Tests of one disk against two on stock Spark: runs, models and page. No Spark runs here."""

import pytest

from bench.common import results
from bench.onetwo import cases, models, run, table


def test_disks_and_settings_take_turns():
    wanted = cases.cases(1 << 20, 2)
    sort = [(case.disks, case.setting) for case in wanted if case.job == "sort"]
    assert sort[:4] == [(1, "stock"), (1, "measure"), (2, "stock"), (2, "measure")] == sort[4:]
    assert len(set(wanted)) == len(wanted) and {case.kind for case in wanted} == {"H150R"}
    assert [case.repeat for case in wanted] == sorted(case.repeat for case in wanted)


def test_use_is_interpolated_between_samples():
    looks = [(10.0, [1.0, 0.0, 100.0]), (12.0, [3.0, 50.0, 100.0]), (14.0, [4.0, 50.0, 500.0])]
    assert models.between(looks, 11.0) == [2.0, 25.0, 100.0]
    assert models.between(looks, 9.0) == looks[0][1] and models.between(looks, 15.0) == looks[-1][1]
    first, second = models.uses([(10.0, 13.0), (13.0, 20.0)], looks)
    assert first == {"s": 3.0, "core_s": 2.5, "disk_bytes": [50, 200]}
    assert second == {"s": 7.0, "core_s": 0.5, "disk_bytes": [0, 200]}


def test_the_bottleneck_of_each_stage_decides():
    reads = {"core_s": 2.0, "disk_bytes": [400e6, 0]}
    computes = {"core_s": 8.0, "disk_bytes": [100e6, 0]}
    # 4 s of a disk of 100 MB/s, then 4 s of two cores; on two disks 2 s and 4 s.
    assert models.by_resources(16.0, [reads, computes], (1, 2), 2, 100e6) == 12.0
    assert models.by_resources(12.0, [reads, computes], (2, 1), 2, 100e6) == 16.0
    assert models.by_slots(10.0, (1, 2)) == {"slots per core": 10.0, "slots per disk": 5.0}


def line(job: str, disk: str, setting: str, repeat: int, s: float, build: str = "b") -> dict:
    """Returns a run of one stage that reads 100 MB."""
    count = int(disk.partition("x")[2] or 1)
    stage = {"s": s, "core_s": 1.0, "disk_bytes": [100e6 / count] * count}
    drive = {"busy_ns": s * 5e8, "read_bytes": 100e6 / count, "write_bytes": 0}
    return {
        "case": {"disk": disk, "job": job, "setting": setting, "bytes": 1, "repeat": repeat}, "build": build, "at": "", "machine": "m", "spark": "4.3.0",
        "others_cores": 0.3 if repeat else 0.0, "ms": s * 1e3, "stages": [stage], "drives": [drive] * count, "cores": 2,
        "calibration": [50e6] * count, "label": "emulated H150R (measured 50MB/s), ext4", "log": f"{job}-{disk}-{setting}-{repeat}",
    }  # fmt: skip


@pytest.fixture
def lines() -> list[dict]:
    """Returns two repeats of every setting of one job: 10 s on one disk, 6 s on two."""
    return [
        line("scan", disk, setting, repeat, s) for repeat in range(2) for disk, s in (("H150R", 10.0), ("H150Rx2", 6.0)) for setting in cases.SETTINGS
    ]


def test_manifest_predicts_stock_times_from_both_logs(lines):
    found = table.manifest(table.newest(lines))["cases"]
    assert [case["name"] for case in found] == ["scan, 1 to 2, stock", "scan, 1 to 2, measure", "scan, 2 to 1, stock", "scan, 2 to 1, measure"]
    assert found[1]["baseline"] == ["scan-H150R-measure-0", "scan-H150R-measure-1"]
    assert found[1]["measured"] == ["scan-H150Rx2-stock-0", "scan-H150Rx2-stock-1"]
    assert [case["set"]["disk.rate"] for case in found] == ["x2", "x2", "x0.5", "x0.5"]
    # Without one of the four, the manifest is empty.
    assert not table.manifest(table.newest([one for one in lines if one["case"]["setting"] == "stock"]))["cases"]


def test_page_shows_the_error_of_each_model(lines):
    said = [
        ("1 to 2, stock", 10e3, 5e3, 6e3),
        ("1 to 2, measure", 10.1e3, 6.6e3, 6e3),
        ("2 to 1, stock", 6e3, 12e3, 10e3),
        ("2 to 1, measure", 6e3, 9e3, 10e3),
    ]
    document = {
        "cases": [
            {
                "name": f"scan, {name}",
                "baseline_ms": before,
                "baseline_spread": 0.04,
                "measured_ms": after,
                "measured_spread": 0.1,
                "predicted_ms": predicted,
                "low_ms": predicted - 1e3,
                "high_ms": predicted + 1e3,
                "inside": predicted != 12e3,
            }  # fmt: skip
            for name, before, predicted, after in said
        ]
    }
    page = table.page(lines, document)
    # 100 MB at 50 MB/s take 2 s, and 1 s on two disks; a core second is half of one on two cores.
    assert (
        "| scan | 1 → 2 | 10.0 (± 2%) | 6.0 (± 5%) | 10.0 (+67%) | 5.0 (-17%) | 5.0 (-17%) | 5.0 (-17%; 4.0 to 6.0) | 6.6 (+10%; 5.6 to 7.6) |"
        in page
    )
    assert (
        "| scan | 2 → 1 | 6.0 (± 2%) | 10.0 (± 5%) | 6.0 (-40%) | 12.0 (+20%) | 12.0 (+20%) | 12.0 (+20%; 11.0 to 13.0) | 9.0 (-10%; 8.0 to 10.0) |"
        in page
    )
    assert "| median error |  |  |  | 53% | 18% | 18% | 18% | 10% |" in page
    assert "stock log: 1 of 2 of its 90 % intervals" in page and "plugin's trace: 2 of 2 of its 90 % intervals" in page
    assert "(job, disks): scan, 1: 1.010; scan, 2: 1.000" in page
    assert "In 4 of 8 runs other processes" in page and "at least 2 of 5" in page
    assert "| scan | 2 | 0 | 6.0 | 1.0 | 0.5 | 50 + 50 | 1.0 | 3.0 | 17 |" in page
    assert "Nothing is measured yet." in table.page([], None)


def test_newer_build_replaces_older_lines(lines):
    runs = table.newest([*lines, line("scan", "H150R", "measure", 1, 9.0, build="c")])
    assert [one["build"] for one in runs["scan", 1, "measure"]] == ["c"] and len(runs["scan", 1, "stock"]) == 2


def test_run_is_missing_without_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(run, "version", lambda: "b")
    first, second = cases.cases(1, 1)[:2]
    done = [line(case.job, case.disk, case.setting, case.repeat, 1.0) for case in (first, second)]
    monkeypatch.setattr(results, "load", lambda suite: done)
    (tmp_path / done[0]["log"]).touch()
    assert run.missing([first, second]) == [second]
    done[0]["build"] = "older"
    assert run.missing([first, second]) == [first, second]


def test_only_measure_runs_have_the_plugin(tmp_path):
    class OneDisk:
        def folders(self, case):
            return [tmp_path / str(number) for number in range(case.disks)]

    stock, ours = (run.settings_of(OneDisk(), run.Case("H150Rx2", "sort", setting, 1, 0), tmp_path) for setting in cases.SETTINGS)
    assert {key for key in ours if key not in stock} == {"spark.jars", "spark.plugins", "spark.pellucid.mode"}
    assert stock["spark.local.dir"].count(",") == 1
