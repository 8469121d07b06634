"""Tests of the benchmarks' pure parts: statistics, resuming, reading of measurements, and the page."""

import json
from pathlib import Path

import pytest

from bench import advice, events, table
from bench.common import results, stats
from bench.engine import event_logs, micro, recording, warm
from bench.engine.sessions import ENGINES


def test_page_names_every_module_that_runs():
    folder = Path(table.__file__).parent
    page = (folder / "README.md").read_text()
    runs = [path.relative_to(folder) for path in folder.rglob("*.py") if "__main__" in path.read_text() and path.name != "table.py"]
    runs = [path for path in runs if "tests" not in path.parts]
    assert len(runs) > 20
    names = {path: (f"`{path}`", f"bench.{'.'.join(path.with_suffix('').parts)}") for path in runs}
    assert [str(path) for path, either in names.items() if not any(name in page for name in either)] == []


def test_geometric_mean_cancels():
    assert stats.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_ratio_of_medians():
    assert stats.median_ratio([1, 2, 90], [4, 4, 4]) == 0.5


def test_interval_by_hand():
    # logarithms 0.1 and 0.3: mean 0.2, deviation 0.1414, half width 12.706 * 0.1
    e = 2.718281828459045
    ratio, low, high = stats.ratio_interval([(e**0.1, 1), (e**0.3, 1)])
    assert ratio == pytest.approx(e**0.2)
    assert (low, high) == (pytest.approx(e ** (0.2 - 1.2706)), pytest.approx(e ** (0.2 + 1.2706)))


def test_interval_needs_two():
    with pytest.raises(ValueError, match="two pairs"):
        stats.ratio_interval([(1, 1)])


def test_resolved_means_without_one():
    assert stats.resolved(1.001, 1.02) and stats.resolved(0.8, 0.9) and not stats.resolved(0.99, 1.01)


def test_each_engine_is_first_in_turn():
    assert {warm.rotated(run)[0] for run in range(len(ENGINES))} == set(ENGINES)
    assert sorted(warm.rotated(3)) == sorted(ENGINES)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Uses an empty folder of results, and a build that needs no binary."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(results, "build", lambda: "b1")


def test_a_case_is_done_once_it_is_appended(kept, monkeypatch):
    case = {"scale": 1.0, "query": 6, "mode": "one process"}
    assert not results.done("warm", case)
    results.append("warm", case, {"others_cores": 0.0})
    assert results.done("warm", json.loads(json.dumps(case)))
    assert not results.done("warm", case | {"query": 7})
    monkeypatch.setattr(results, "build", lambda: "b2")
    assert not results.done("warm", case)


def test_case_with_too_few_runs_is_not_done(kept):
    results.append("warm", {"query": 1}, {"runs": 2})
    assert results.done("warm", {"query": 1}, runs=2) and not results.done("warm", {"query": 1}, runs=5)


def test_measuring_again_ignores_older_lines(kept, monkeypatch):
    results.append("warm", {"query": 1}, {})
    monkeypatch.setattr(results, "since", "9999-01-01T00:00:00+00:00")
    assert not results.done("warm", {"query": 1})


def test_lines_are_keyed_by_the_fingerprint_of_their_program(kept, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1"), other.write_bytes(b"2")
    assert results.fingerprint([one]) != results.fingerprint([other])
    results.append("micro", {"name": "x"}, {}, by=results.fingerprint([one]))
    assert results.made("micro", results.fingerprint([one])) and not results.made("micro", results.fingerprint([other]))


def criterion_leaves(home, name, median, low, high):
    """Writes the two files of criterion that are read."""
    folder = home / name / "new"
    folder.mkdir(parents=True)
    (folder / "benchmark.json").write_text(json.dumps({"full_id": name, "directory_name": name}))
    interval = {"confidence_level": 0.95, "lower_bound": low, "upper_bound": high}
    estimate = {"point_estimate": median, "standard_error": 1.0, "confidence_interval": interval}
    (folder / "estimates.json").write_text(json.dumps({"mean": estimate | {"point_estimate": -1}, "median": estimate}))


def test_estimates_are_medians_of_criterion(tmp_path):
    criterion_leaves(tmp_path, "record/monotask", 25.7, 24.5, 31.7)
    (tmp_path / "record" / "monotask" / "base").mkdir()
    assert micro.estimates(tmp_path) == {"record/monotask": {"unit": "ns", "median": 25.7, "interval": [24.5, 31.7], "confidence": 0.95}}


def test_sizes_are_read_from_the_size_test():
    said = "running 1 test\nseed 1: 1210 events, 33.1 bytes each\nseed 2: 44020 events, 29.0 bytes each\nok"
    assert {name: figure["median"] for name, figure in micro.sizes(said).items()} == {
        "trace of 1210 events": 33.1,
        "trace of 44020 events": 29.0,
    }


@pytest.fixture
def cargo(kept, monkeypatch, tmp_path):
    """Replaces cargo: names a program and writes estimates. Returns the list of its runs."""
    program, ran = tmp_path / "program", []
    program.write_bytes(b"1")

    def answer(command, **environment):
        if "--no-run" in command:
            target = command[command.index("--no-run") - 1]
            other = {"reason": "compiler-artifact", "target": {"name": "lib"}, "executable": None}
            ours = {"reason": "compiler-artifact", "target": {"name": target}, "executable": str(program)}
            return "\n".join(map(json.dumps, [other, ours, {"reason": "build-finished"}]))
        ran.append(command)
        if command[1] == "bench":
            criterion_leaves(Path(environment["CRITERION_HOME"]), command[-1], 50.0, 49.0, 51.0)
        return "seed 1: 10 events, 30.0 bytes each" if command[1] == "test" else ""

    monkeypatch.setattr(micro, "_cargo", answer)
    return ran


def test_micro_measures_each_program_once(cargo, tmp_path):
    micro.run(lambda *_: None)
    micro.run(lambda *_: None)
    assert len(cargo) == len(micro.COMMANDS) == len(results.load("micro"))
    (tmp_path / "program").write_bytes(b"2")
    micro.run(lambda *_: None)
    assert len(cargo) == 2 * len(micro.COMMANDS), "another program is measured again"


def test_micro_without_a_figure_is_an_error(cargo, monkeypatch):
    monkeypatch.setattr(micro, "estimates", lambda home: {})
    with pytest.raises(micro.MeasureError, match="cargo bench.*no figure"):
        micro.run(lambda *_: None)
    assert results.load("micro") == []


def line(case, others_cores=0.0, **found):
    return {
        "case": case,
        "build": "b1",
        "machine": "m",
        "at": "2026-01-01T00:00:00",
        "others_cores": others_cores,
    } | found


def warm_line(query, pellucid, plain, **more):
    engines = {e: {"ms": [10.0], "peak_bytes": [], "rows": 1, "error": None} for e in ENGINES}
    engines["pellucid"] |= {"ms": [pellucid], "peak_bytes": [150]}
    engines["datafusion"] |= {"ms": [plain], "peak_bytes": [100]}
    case = {"scale": 1, "query": query, "mode": "fresh process"}
    return line(case, engines=engines, rows_agree=True, runs=1, **more)


def test_page_without_lines_says_so():
    page = table.page({})
    assert page.count("No results of") == page.count("not measured") == len(table.SECTIONS)


@pytest.mark.parametrize(
    ("value", "options", "verdict"),
    [
        (5.0, {}, "met"),
        (5.1, {}, "not met"),
        (None, {}, "not measured"),
        (4.0, {"interval": (3.0, 5.0)}, "met"),
        (4.0, {"interval": (3.0, 6.0)}, "not resolved"),
        (7.0, {"interval": (6.0, 8.0)}, "not met"),
        (4.0, {"failed": ["Q7"]}, "not met: failed on Q7"),
        (None, {"failed": ["Q7"]}, "not met: failed on Q7"),
        (4.0, {"lacks": "6 of 22 queries"}, "not decided: 6 of 22 queries"),
        (6.0, {"lacks": "6 of 22 queries"}, "not met: 6 of 22 queries"),
    ],
)
def test_verdicts(value, options, verdict):
    assert table.at_most("x", value, 5.0, **options).verdict == verdict


def test_warm_page_has_means_goals_and_marks():
    lines = [warm_line(1, 99, 100), *(warm_line(query, 80, 100) for query in range(1, 22))]
    page = table.page({"warm": [*lines, warm_line(22, 125, 100, others_cores=0.5)]})
    assert "| Q1 | 80 | 100 | 10 | 10 | 0.80 |" in page, "the newest line of a case counts"
    assert "Q22*" in page and "Other processes used 0.00 cores (median; at most 0.50)" in page
    assert "- Geometric mean over plain DataFusion: **0.8164** (goal: at most 0.85): met" in page
    assert "**1.25** (goal: at most 1.2): not met" in page
    assert "**1.5** (goal: at most 1.5): met" in page
    assert "`python -m bench.run --again warm --scales 1`" in page
    worst = "Warm TPC-H, scale 1, fresh process*: Worst query over plain DataFusion"
    assert f"| {worst} | 1.25 | at most 1.2 | not met |" in page
    assert "Runs per case: 1, in turns." in page
    missing = "**–** (goal: at most 0.85): not measured"
    assert page.count(missing) == 3, "the other scale, and the other mode of this one"


def test_goal_with_missing_queries_is_not_decided():
    page = table.page({"warm": [warm_line(1, 80, 100)]})
    assert "(goal: at most 0.85): not decided: 1 of 22 queries" in page


@pytest.mark.parametrize("broken", [{"ms": [], "rows": None, "error": "no memory"}, {"rows": 2}])
def test_failed_or_wrong_query_misses_the_goal(broken):
    lines = [warm_line(query, 80, 100) for query in range(1, 23)]
    lines[6]["engines"]["pellucid"] |= broken
    assert "(goal: at most 0.85): not met: failed on Q7" in table.page({"warm": lines})


def test_every_build_of_a_section_is_named():
    page = table.page({"warm": [warm_line(1, 80, 100), warm_line(2, 80, 100) | {"build": "b2"}]})
    assert "Build b1 (1 cases), b2 (1 cases), 2026-01-01." in page


def test_an_engine_that_failed_is_named_and_not_counted():
    broken = warm_line(1, 80, 100)
    broken["engines"]["polars"] |= {"ms": [], "error": "no such function"}
    page = table.page({"warm": [broken]})
    assert "| Q1 | 80 | 100 | 10 | – | 0.80 |" in page and "Q1 Polars: no such function" in page


def cold_run(ms, moved, kind="disk"):
    return {"ms": ms, "moved_bytes": moved, "error": None, "bottleneck": {"kind": kind, "name": "loop0"}}


def cold_line(query, read_ahead_kb, runs, ideal_ms=5000, warm="cpu"):
    return line(
        {"scale": 5, "query": query, "read_ahead_kb": read_ahead_kb},
        engines={"pellucid": runs, "duckdb": [cold_run(None, 0)]},
        ideal_ms=ideal_ms,
        needed_bytes=100,
        disk=f"a disk, read_ahead_kb {read_ahead_kb}",
        warm=cold_run(1, 0, warm),
    )


def cold_lines(**more):
    runs = [cold_run(5100, 102), cold_run(5200, 102)]
    return [cold_line(query, kb, runs, **more) for kb in (128, 2560) for query in (1, 6, 14)]


def test_cold_page():
    page = table.page({"cold": cold_lines()})
    assert "| 1.030, 1.020 | failed | disk; cpu |" in page
    assert "**1.03** (goal: at most 1.05): met" in page and "**1.02** (goal: at most 1.05): met" in page
    assert "**18 of 18** (goal: disk when cold, cores when warm): met" in page


def test_cold_goals_need_every_run():
    cold = cold_lines()
    cold[1]["engines"]["pellucid"] = [cold_run(5100, 102), cold_run(None, 7)]
    page = table.page({"cold": cold})
    assert "| 1.020, 1.020 (1 of 2 failed) |" in page and "not met: failed on Q6 at 128" in page
    nothing = table.page({"cold": [cold_line(6, 128, [cold_run(None, 0)])]})
    assert "**–** (goal: at most 1.05): not met: failed on Q6 at 128" in nothing


def test_cold_goals_need_a_long_ideal_time_and_the_right_bottleneck():
    page = table.page({"cold": cold_lines(ideal_ms=4900)})
    assert "not decided: an ideal time below 5 s" in page
    page = table.page({"cold": cold_lines(warm="disk")})
    assert "**12 of 18** (goal: disk when cold, cores when warm): not met" in page


def test_two_disks_page():
    took = {"one disk": [cold_run(10_000, 1)], "two disks": [cold_run(5_200, 1)]}
    page = table.page({"two-disks": [line({"scale": 5, "query": q}, took=took, runs=1, disks=["a", "b"]) for q in (1, 6, 14)]})
    assert "| Q1 | 10.00 | 5.20 | 0.520 |" in page and "**0.52** (goal: at most 0.55): met" in page


def share(query, **more):
    found = {"events": 100, "trace_bytes": 4800, "core_ns": 10**9, "recording_ns": 10**6, "writer_ns": 10**6}
    found |= {"operators": 20, "operator_calls": 1000, "bytes_with_and_without_operators": [4800, 2400]}
    found |= {"clock_reads": 400, "clock_ns": 1000.0, "wall_ns": 50.0}
    return line({"scale": 1, "what": "share", "query": query}, **(found | more))


def test_recording_page():
    pairs = line({"scale": 1, "what": "pairs", "queries": [1]}, pairs_ms=[[101, 100], [99, 100], [100, 100]])
    page = table.page({"recording": [*(share(query) for query in range(1, 23)), pairs]})
    # 1 ms to record, 1 ms to write, two reads of 50 ns for each of 1000 calls, and 400 of 1 µs, of a second.
    assert "**0.0025** (goal: at most 0.01): met" in page
    assert "**30** (goal: at most 40): met" in page and "**2** (goal: at most 2): met" in page
    assert "Calls of operators: 22,000, 0.0500% of core time at 50 ns a read of the wall clock and 1000 ns" in page
    assert "22 TPC-H queries, 2200 records, of which 440 of operators" in page
    assert f"(goal: a 95 % interval that reaches 1): not decided: 3 of {recording.PAIRS} pairs" in page
    slower = line(pairs["case"], pairs_ms=[[101, 100], [102, 100], [101, 100]] * 7)
    assert "1.0133, 1.0111 to 1.0155** (goal: a 95 % interval that reaches 1): not met" in table.page({"recording": [slower]})


def test_missing_share_leaves_the_goal_undecided():
    page = table.page({"recording": [share(1), share(2, writer_ns=None)]})
    assert "not decided: 1 of 22 queries" in page


def micro_line(name, median, interval, unit="ns", **more):
    found = {"unit": unit, "median": median, "interval": interval, "confidence": 0.95 if interval else None}
    return line({"target": "t", "name": name}, **found, command="cargo bench --bench t", **more)


def test_micro_page():
    page = table.page(
        {
            "micro": [
                micro_line("record/monotask", 25.0, [24.0, 31.0], others_cores=0.3),
                micro_line("record/multitask", 123.0, [119.0, 126.0]),
                micro_line("trace of 44020 events", 41.2, None, unit="bytes"),
            ]
        }
    )
    again = "`cargo bench --bench t`"
    assert f"| record/monotask* | 25.0 ns | 24.0 to 31.0 ns (95 %) | at most 100 ns | met | 0.30 | {again} |" in page
    assert f"| record/multitask | 123.0 ns | 119.0 to 126.0 ns (95 %) | none |  | 0.00 | {again} |" in page
    assert f"| trace of 44020 events | 41.2 bytes | counted | at most 40 bytes | not met | 0.00 | {again} |" in page
    assert "complete_and_start_with_10000_queued/…: **–** (goal: at most 1000): not measured" in page


def sparklog_line(ours_s: float, peer_s: float | None, codec: str = "plain") -> dict:
    def of(core_s, error=None):
        return {"core_s": [core_s] if core_s else [], "wall_s": [1.0], "peak_bytes": [50e6], "error": error}

    programs = {"pellucid analyze": of(ours_s), "reader": of(ours_s)}
    programs["Spark History Server"] = of(peer_s, None if peer_s else "not installed: no pyspark")
    programs["NVIDIA profiling"] = of(40.0)
    case = {"codec": codec, "base": "a.zstd", "copies": 15}
    rest = {"runs": 1, "log_bytes": 9e6, "bytes": 1e9, "tasks": 200000, "others_cores": 0.0}
    return {"case": case, "build": "b", "at": "2026-01-01", "programs": programs, **rest}


def test_event_logs_are_compared_with_the_faster_peer():
    text = "\n".join(map(str, table.sparklog_section([sparklog_line(2.0, 36.0), sparklog_line(4.0, 36.0, "zstd")])))
    assert "**18.0 times fewer** (goal: at least 15 times fewer): met" in text
    assert "**9.0 times fewer** (goal: at least 10 times fewer): not met" in text
    assert "| reader | 2.00 | 1.00 | 50 | 500 |" in text
    assert "MB per core second of the reader, plain: **500** (goal: at least 500): met" in text


def test_missing_peer_leaves_the_goal_undecided():
    text = "\n".join(map(str, table.sparklog_section([sparklog_line(2.0, None)])))
    assert "**20.0 times fewer** (goal: at least 15 times fewer): not decided: 1 of 2 peers" in text


def test_million_is_judged_by_the_slowest_answer_and_timeline():
    line = {"build": "b", "at": "2026-01-01", "runs": 3, "others_cores": 0.0}
    asked = {"wall_ms": [1400.0, 1500.0, 2600.0], "core_ms": [1800.0] * 3, "peak_bytes": 9e8}
    slower = asked | {"wall_ms": [2100.0] * 3}
    lines = [
        line | asked | {"case": {"ask": "whatif --set no=disk"}},
        line | slower | {"case": {"ask": "whatif"}},
        line | {"case": {"ask": "report"}, "page_bytes": 16e6, "light_ms": [900.0] * 3, "dark_ms": [3100.0] * 3},
    ]
    text = "\n".join(map(str, table.million_section(lines)))
    assert "| `whatif --set no=disk` | 1500 (at most 2600) | 1800 | 900 |" in text
    assert "median of the slowest question: **1500 ms** (goal: at most 2000 ms): met" in text
    assert "**16 MB** (goal: at most 30 MB): met" in text
    assert "slower of light and dark: **3100 ms** (goal: at most 3000 ms): not met" in text


def test_copies_of_a_log_have_distinct_ids_and_times(tmp_path):
    events = [
        {"Event": "SparkListenerApplicationStart", "Timestamp": 100},
        {"Event": "SparkListenerJobStart", "Job ID": 0, "Submission Time": 110, "Stage IDs": [0, 1]},
        {
            "Event": "SparkListenerStageCompleted",
            "Stage Info": {
                "Stage ID": 1,
                "RDD Info": [{"RDD ID": 7, "Parent IDs": [5, 6]}],
                "Parent IDs": [0],
                "Submission Time": 120,
            },
        },
        {"Event": "SparkListenerTaskEnd", "Stage ID": 1, "Task Info": {"Task ID": 3, "Launch Time": 130, "Finish Time": 140}},
        {"Event": "SparkListenerApplicationEnd", "Timestamp": 200},
    ]
    source = tmp_path / "log"
    source.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    event_logs.write(source, 2, tmp_path / "two", zstd=False)
    first, second = (json.loads(line) for line in (tmp_path / "two").read_text().splitlines() if "TaskEnd" in line)
    assert first == events[3]
    assert (second["Stage ID"], second["Task Info"]["Task ID"]) == (3, 7)
    assert second["Task Info"]["Launch Time"] > first["Task Info"]["Finish Time"]
    lines = [json.loads(line) for line in (tmp_path / "two").read_text().splitlines()]
    info = [line["Stage Info"] for line in lines if "Stage Info" in line][1]
    assert (info["Parent IDs"], info["RDD Info"][0]["Parent IDs"]) == ([2], [5, 6])
    assert [line["Stage IDs"] for line in lines if "Stage IDs" in line] == [[0, 1], [2, 3]]
    assert len(lines) == 2 + 2 * 3 and lines[-1]["Timestamp"] > 200


def piece(predicted, ratio, harm=1.0):
    return {"predicted": predicted, "low": predicted * 0.9, "high": predicted * 1.1, "ratio": ratio, "ratio_interval": (harm - 0.1, harm)}


def test_goals_of_advice_count_cases_outside_and_harmful_ones():
    cases = [piece(0.5, 0.5), piece(0.5, 0.51), piece(0.5, 0.7, harm=1.2), piece(0.8, 0.8)]
    found = {goal.what.split()[0]: goal for goal in advice.verdicts(cases)}
    assert found["share"].measured == "0.25" and found["share"].verdict == "not met"
    assert found["pieces"].measured == "1" and found["pieces"].verdict == "not met"
    assert {goal.verdict for goal in advice.verdicts(cases[:2])} == {"met"}
    assert [goal.verdict for goal in advice.verdicts([])] == ["not measured"]


def test_a_third_of_the_queries_is_kept_apart():
    names = [f"events-{name}" for name in events.queries()] + [f"tpch-{n:02}" for n in range(1, 23)] + [f"tpcds-{n:02}" for n in range(1, 100)]
    apart = sum(map(advice.is_kept_apart, names))
    assert len(names) >= 100 and len(events.queries()) >= 40 and len(events.COLUMNS) >= 60
    assert 0.25 <= apart / len(names) <= 0.42
