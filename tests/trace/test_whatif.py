"""`whatif` and `backtest`: document formats, predictions that can be computed by hand, bad input."""

import json
from pathlib import Path

import pytest

from harness import binary, traces
from harness.terminal import SCREEN_COLUMNS, on_screen
from lab.rates import parse_rate

KEYS = {"format", "set", "baseline", "prediction", "bottleneck_before", "bottleneck_after", "assumptions", "sweep", "singles"}


def scan(disk_rate: float = 50e6, machines: int = 1, end: bool = True) -> list[dict]:
    """Returns records of four sequential reads of 400 ms, each followed by 150 ms on one of two cores."""
    records = [
        {"t": "header", "format": "pellucid.trace/1.1", "producer": "engine", "producer_version": "0", "origin_unix_ns": 1},
        {"t": "machine", "name": "here", "cores": 2},
        {"t": "resource", "name": "cores", "kind": "cpu", "machine": 0, "capacity": 2.0, "capacity_from": "counted", "concurrency": 2},
        {"t": "resource", "name": "sda", "kind": "disk", "machine": 0, "capacity": disk_rate, "capacity_from": "set", "concurrency": 1},
        {"t": "job", "name": "SELECT sum(x) FROM t", "submitted_ns": 0},
        {"t": "stage", "job": 0, "name": "scan", "submitted_ns": 0},
    ]
    took = int(20e6 / disk_rate * 1e9)
    for part in range(4):
        read_ends = (part + 1) * took
        records += [
            {"t": "multitask", "stage": 0, "partition": part, "admitted_ns": 0},
            {
                "t": "monotask",
                "multitask": part,
                "resource": 1,
                "phase": "read",
                "queued_ns": 0,
                "queue_ns": part * took,
                "service_ns": took,
                "bytes": 20_000_000,
            },
            {
                "t": "monotask",
                "multitask": part,
                "resource": 0,
                "phase": "compute",
                "queued_ns": read_ends,
                "queue_ns": 0,
                "service_ns": 150_000_000,
                "decode_ns": 90_000_000,
            },
        ]
    last = 4 * took + 150_000_000
    records += [{"t": "stage_end", "stage": 0, "ended_ns": last}]
    if end:
        records += [{"t": "job_end", "job": 0, "ended_ns": last}]
    return records + [{"t": "end", "records": len(records)}]


@pytest.fixture
def trace(tmp_path) -> Path:
    """A trace of 1750 ms whose what-ifs can be computed by hand."""
    return written(tmp_path / "scan.trace", scan())


def short() -> list[dict]:
    """Returns records of a query of 2.1 ms: 1.2 ms of planning, then 0.5 ms on one of two cores."""
    records = scan()[:3] + [
        {"t": "job", "name": "SELECT 1", "submitted_ns": 0},
        {"t": "stage", "job": 0, "name": "scan", "submitted_ns": 1_200_000},
        {"t": "multitask", "stage": 0, "partition": 0, "admitted_ns": 1_300_000},
        {"t": "monotask", "multitask": 0, "resource": 0, "phase": "compute", "queued_ns": 1_400_000, "queue_ns": 0, "service_ns": 500_000},
        {"t": "stage_end", "stage": 0, "ended_ns": 1_900_000},
        {"t": "job_end", "job": 0, "ended_ns": 2_100_000},
    ]
    return [*records, {"t": "end", "records": len(records) + 1}]


def test_query_without_a_bottleneck_shows_its_steps(tmp_path):
    trace = written(tmp_path / "short.trace", short())
    assert " · not limited by one resource: planning 1.2 of 2.1 ms" in " ".join(binary.run("analyze", trace).check().out.split())
    (job,) = binary.run("analyze", trace, "--json").check().json()["jobs"]
    assert job["bottleneck"] is None and job["next"] is None and float(job["steps_ms"]["planning"]) == 1.2
    answer = whatif(trace)
    assert answer["bottleneck_before"] is None
    assert "limited by   no single resource" in binary.run("whatif", trace).check().out
    page = tmp_path / "short.html"
    binary.run("report", trace, "-o", page).check()
    assert "<h1>This job was not limited by one resource: planning 1.2 of 2.1\u00a0ms.</h1>" in page.read_text()


def test_screen_and_document_name_the_same_bottleneck(tmp_path):
    for statement in ["SELECT 1", "SELECT count(*) FROM range(3000000) AS t(v) WHERE v % 7 = 1"]:
        ran = binary.run("sql", statement, "--trace", tmp_path / "t.trace").check()
        (job,) = binary.run("analyze", tmp_path / "t.trace", "--json").check().json()["jobs"]
        assert (" limited by cores " in ran.err) == (job["bottleneck"] is not None), ran.err
        assert "no resource" not in ran.err


def written(path: Path, records: list[dict]) -> Path:
    traces.write(path, records)
    return path


def whatif(trace: Path, *args: str) -> dict:
    document = binary.run("whatif", trace, *args, "--json").check().json()
    assert document["format"] == "pellucid.whatif/1" and set(document) == KEYS
    return document


def close(actual, expected: float):
    assert float(actual) == pytest.approx(expected, rel=0.01)


def test_prediction_has_an_interval_and_a_baseline(trace):
    document = whatif(trace, "--set", "disk.rate=x2")
    close(document["baseline"]["measured_ms"], 1750)
    close(document["baseline"]["simulated_ms"], 1750)
    prediction = document["prediction"]
    close(prediction["duration_ms"], 950)
    assert prediction["low_ms"] < prediction["duration_ms"] < prediction["high_ms"]
    assert prediction["by"] == "simulated"
    assert document["set"] == {"disk.rate": "x2"}
    assert document["bottleneck_before"] == {"kind": "disk", "name": "sda"}
    assert document["sweep"] is None and document["singles"] is None
    assert any("sda" in words for words in document["assumptions"])


def test_changes_are_combined(trace):
    close(whatif(trace, "--set", "disks=2")["prediction"]["duration_ms"], 950)
    close(whatif(trace, "--set", "no=disk", "--set", "cores=1")["prediction"]["duration_ms"], 600)
    # 20 MB per multitask come from memory at 4 GB/s: 5 ms each, two in sequence.
    close(whatif(trace, "--set", "disk.sda.rate=100MB/s", "--set", "input=memory-decoded")["prediction"]["duration_ms"], 130)


def test_sweep_shows_where_the_bottleneck_moves(trace):
    points = whatif(trace, "--sweep", "disk.rate=50MB/s..800MB/s")["sweep"]
    assert [p["value"] for p in points] == ["50MB/s", "100MB/s", "200MB/s", "400MB/s", "800MB/s"]
    close(points[1]["duration_ms"], 950)
    kinds = [p["bottleneck"]["kind"] for p in points]
    assert kinds[0] == "disk" and kinds[-1] == "cpu"
    text = binary.run("whatif", trace, "--sweep", "disk.rate=50MB/s..800MB/s").check().out
    assert "limited by cpu instead of disk" in text


def test_whatif_without_changes_lists_the_best_ones_first(trace):
    singles = whatif(trace)["singles"]
    times = [s["duration_ms"] for s in singles]
    assert times == sorted(times) and len(times) >= 5
    assert singles[0]["set"] == {"input": "memory-decoded"}
    for single in singles:
        assert single["low_ms"] < single["duration_ms"] < single["high_ms"]
        assert single["bound"] == ("no" in single["set"])
    changes, bounds = binary.run("whatif", trace).check().out.split("Upper bounds: ")
    assert "no=" not in changes and "cores=x2" in changes and "no=cpu" in bounds and "=x2" not in bounds


def test_output_is_deterministic(trace):
    run = lambda: binary.run("whatif", trace, "--set", "disk.rate=x3", "--set", "cores=1.5", "--json").check().out
    assert len({run() for _ in range(3)}) == 1


@pytest.mark.parametrize("args", [(), ("--set", "disk.rate=x2"), ("--sweep", "cores=1..8")])
def test_text_fits_eighty_columns(trace, args):
    text = on_screen("whatif", trace, *args)
    assert text and max(map(len, text.splitlines())) <= SCREEN_COLUMNS == 80, text


@pytest.mark.parametrize(
    "setting, words",
    [
        ("disc.rate=x2", "the keys are cores, disks, disk.rate"),
        ("disk.rate", "write KEY=VALUE"),
        ("disk.rate=200", "50MB/s"),
        ("disk.rate=200MB", "a size per second"),
        ("disk.rate=0MB/s", "at least one byte"),
        ("disk.rate=-5MB/s", "must be over 0"),
        ("cores=0", "must be over 0"),
        ("cores=-2", "must be over 0"),
        ("cores=many", "a number of cores"),
        ("disks=1.5", "whole number"),
        ("machines=4", "machines: this trace is of one machine"),
        ("workers=2", "workers: this trace is of one machine"),
        ("workers=2", "can answer cores, disks, disk.rate, disk.NAME.rate, concurrency.KIND, memory, input, input.scale, decode.time, storage, no"),
        ("executors=2", "Spark"),
        ("no=gpu", "no=cpu, no=disk"),
        ("disk.sdb.rate=x2", "it has sda"),
        ("input=disk", "memory or memory-decoded"),
        ("network.rate=x2", "no network"),
        ("store.rate=x2", "no store"),
    ],
)
def test_invalid_setting_names_valid_ones(trace, setting, words):
    ran = binary.run("whatif", trace, "--set", setting)
    assert ran.code == 2 and words in ran.err and not binary.PANIC.search(ran.err), ran.err
    assert ran.out == ""


@pytest.mark.parametrize("first, second", [("cores=4", "cores=8"), ("machines=2", "workers=4")])
def test_repeated_key_is_refused(trace, first, second):
    ran = binary.run("whatif", trace, "--set", first, "--set", second)
    assert ran.code == 2 and f"set twice, first as `{first}`" in ran.err and ran.out == "", ran.err
    assert binary.run("whatif", trace, "--set", "no=cpu", "--set", "no=disk").code == 0


@pytest.mark.parametrize("sweep", ["disk.rate", "disk.rate=x2", "cores=4..2", "cores=0..2", "cores=1..8:1", "input=a..b"])
def test_invalid_sweep_shows_an_example(trace, sweep):
    ran = binary.run("whatif", trace, "--sweep", sweep)
    assert ran.code == 2 and any(words in ran.err for words in ("for example", "input takes memory")), ran.err
    assert not binary.PANIC.search(ran.err)


def test_disk_setting_needs_a_disk_in_the_trace(tmp_path):
    records = [r for r in scan() if r.get("kind") != "disk" and r.get("phase") != "read"]
    records[-1]["records"] = len(records) - 1
    ran = binary.run("whatif", written(tmp_path / "warm.trace", records), "--set", "disks=2")
    assert ran.code == 2 and "no disk" in ran.err and "cores" in ran.err


def test_incomplete_trace_is_refused(tmp_path, trace):
    cut = tmp_path / "cut.trace"
    cut.write_bytes(trace.read_bytes()[:-20])
    unfinished = written(tmp_path / "open.trace", scan(end=False))
    for path, words in [(cut, "run the job again"), (unfinished, "has no end"), (tmp_path / "none", "No such file")]:
        ran = binary.run("whatif", path)
        assert ran.code == 1 and words in ran.err and str(path) in ran.err, ran.err
        assert not binary.PANIC.search(ran.err)


def manifest(tmp_path, cases: list[dict]) -> Path:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"format": "pellucid.manifest/1", "cases": cases}))
    return path


def pair(tmp_path, **more) -> dict:
    written(tmp_path / "slow.trace", scan(50e6))
    written(tmp_path / "fast.trace", scan(100e6))
    case = {"name": "twice the rate", "query": "q", "set": {"disk.rate": "x2"}, "baseline": ["slow.trace"], "measured": ["fast.trace"]}
    return {**case, **more}


def test_backtest_compares_predicted_and_measured_times(tmp_path):
    path = manifest(tmp_path, [pair(tmp_path), pair(tmp_path, name="void", void="busy machine", measured=[], measured_ms=[1.0])])
    document = binary.run("backtest", path, "--json").check().json()
    assert document["format"] == "pellucid.backtest/1"
    case, void = document["cases"]
    assert {"name", "set", "measured_ms", "measured_spread", "predicted_ms", "low_ms", "high_ms", "error"} <= set(case)
    close(case["measured_ms"], 950)
    assert float(case["error"]) < 0.001 and case["inside"] and void["void"] == "busy machine"
    assert float(document["median_error"]) < 0.001 and document["coverage"] == 1
    assert document["counts"]["cases"] == 1
    table = tmp_path / "residuals.tsv"
    text = binary.run("backtest", path, "--residuals", table).check().out
    assert "twice the rate" in text and "1 of 1 inside" in text
    assert len(table.read_text().splitlines()) == 2


def test_backtest_fails_beyond_max_error(tmp_path):
    wrong = pair(tmp_path, name="wrong", set={"disk.rate": "x4"})
    path = manifest(tmp_path, [wrong])
    ran = binary.run("backtest", path, "--max-error", "10%")
    assert ran.code == 1 and "wrong is off by" in ran.err
    assert binary.run("backtest", path, "--max-error", "90%").code == 0
    unclear = binary.run("backtest", path, "--max-error", "10")
    assert unclear.code == 2 and "write 10%" in unclear.err
    useless = binary.run("backtest", path, "--cores", "1")
    assert useless.code == 2 and "cannot use --cores with a manifest" in useless.err


@pytest.mark.parametrize(
    "change, words",
    [
        ({"sett": {}}, "unknown field"),
        ({"set": {"disk.rate": "fast"}}, "case `twice the rate`"),
        ({"baseline": ["none.trace"]}, "none.trace"),
        ({"measured": []}, "`measured` has no run"),
    ],
)
def test_invalid_manifest_is_located(tmp_path, change, words):
    ran = binary.run("backtest", manifest(tmp_path, [pair(tmp_path, **change)]))
    assert ran.code in (1, 2) and words in ran.err and not binary.PANIC.search(ran.err), ran.err


def test_causal_check_compares_predicted_and_measured_times(tmp_path):
    data = tmp_path / "n.parquet"
    rows = "SELECT value AS x, value % 7 AS g FROM generate_series(1, 3000000)"
    binary.run("sql", rows, "-o", data).check()
    query = f"SELECT g, sum(x), count(*) FROM '{data}' GROUP BY g"
    ran = binary.run("backtest", "--causal", query, "--repeats", "2", "--json").check()
    document = ran.json()
    names = [case["name"] for case in document["cases"]]
    assert any(name.startswith("disk.rate=") for name in names)
    for case in document["cases"]:
        assert case["low_ms"] < case["predicted_ms"] < case["high_ms"]
        predicted, measured = float(case["predicted_ms"]), float(case["measured_ms"])
        assert float(case["error"]) == pytest.approx(abs(predicted / measured - 1), abs=1e-6)
        assert case["inside"] == (case["low_ms"] <= case["measured_ms"] <= case["high_ms"])
    # A busy machine delays runs, but nothing is faster than the paced disk.
    paced = [case for case in document["cases"] if case["emulation"] == "engine-paced"]
    assert paced and all(case["name"].startswith("disk.rate=") for case in paced)
    for case in paced:
        at_least_ms = 0.8 * data.stat().st_size / parse_rate(case["name"].partition("=")[2]) * 1e3
        assert min(case["predicted_ms"], case["measured_ms"]) > at_least_ms, (case, at_least_ms)


def test_causal_check_without_a_slowable_resource_is_refused():
    ran = binary.run("backtest", "--causal", "SELECT 1", "--cores", "1")
    assert ran.code == 1 and "cannot slow any resource" in ran.err


def test_slowed_operator_takes_a_multiple_of_its_core_time(tmp_path):
    query = "SELECT g, count(*) FROM (SELECT value % 7 AS g FROM generate_series(1, 2000000)) GROUP BY g ORDER BY g"

    def run(*options: str) -> tuple[list, traces.Trace]:
        path = tmp_path / "query.trace"
        rows = binary.run("sql", query, "--json", "--trace", path, *options).check().json()["rows"]
        return rows, traces.read(path)

    rows, normal = run()
    largest = max(normal.of["operator"], key=lambda o: o["cpu_ns"])
    number = largest["operator"]
    slowed_rows, slowed = run("--slow-operator", f"{number}=x10")
    assert slowed_rows == rows and traces.violations(slowed) == []
    assert f"operator {number} slowed to 10 times its core time" in slowed.header["labels"]
    (same,) = [o for o in slowed.of["operator"] if o["operator"] == number]
    assert same["name"] == largest["name"] and same["cpu_ns"] > 4 * largest["cpu_ns"]


def test_operator_to_slow_must_exist():
    ran = binary.run("sql", "SELECT 1", "--slow-operator", "99=x2")
    assert ran.code == binary.USAGE and "cannot slow operator 99: the plan has no such operator" in ran.err
