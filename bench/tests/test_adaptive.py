"""Tests of the matrix of self-adaptive executors: its runs, its logs and its page."""

import json

from bench.adaptive import everyday, log, matrix, run, shapes, table
from bench.common import results
from bench.common.stats import ratio_interval
from bench.table import page as results_page


def test_settings_take_turns():
    cases = matrix.cases(1 << 20, 2)
    sort = [case for case in cases if (case.disk, case.job) == ("H150R", "sort")]
    assert [case.setting for case in sort[:8]] == [*(f"stock-{n}" for n in matrix.SWEEP), "throughput", "index", "remembered"]
    assert [case.repeat for case in sort] == [0] * 8 + [1] * 8
    assert {case.bytes for case in matrix.cases(None, 1) if case.job == "sort" and case.kind == "H150"} == {matrix.BYTES["sort"]}
    assert {case.bytes for case in matrix.cases(None, 1) if case.disk == "SSD50"} == {matrix.BYTES["sort"] // 2}
    assert len(set(cases)) == len(cases)
    # A round covers every case before the next one begins.
    assert [case.repeat for case in cases] == sorted(case.repeat for case in cases)
    assert {(case.disk, case.kind, case.disks) for case in cases} >= {("H150x2", "H150", 2), ("H150R", "H150R", 1)}


def test_only_policies_get_the_plugin(tmp_path):
    stock = run.spark_settings(run.Case("H150", "sort", "stock-4", 1, 0), [tmp_path], tmp_path, tmp_path)
    ours = run.spark_settings(run.Case("H150", "sort", "index", 1, 0), [tmp_path], tmp_path, tmp_path / "found")
    assert stock["spark.master"].startswith("local-cluster[1,4,") and "spark.plugins" not in stock
    assert ours["spark.master"].startswith("local-cluster[1,32,") and ours["spark.pellucid.policy"] == "index"
    assert {key for key in ours if key not in stock} == {
        "spark.jars", "spark.plugins", "spark.pellucid.mode", "spark.pellucid.policy", "spark.pellucid.memory"
    }  # fmt: skip
    again = run.spark_settings(run.Case("H150", "sort", "remembered", 1, 0), [tmp_path], tmp_path, tmp_path / "found")
    assert again == ours | {"spark.app.name": "H150/sort/remembered/0", "spark.pellucid.policy": "throughput"}


def test_runs_with_the_plugin_set_its_mode(tmp_path):
    """A run must not change when the plugin's default does."""
    modes = {}
    for case in matrix.cases(1, 1):
        found = run.spark_settings(case, [tmp_path, tmp_path], tmp_path, tmp_path)
        assert ("spark.plugins" in found) == ("spark.pellucid.mode" in found), case
        modes[case.setting] = found.get("spark.pellucid.mode")
    assert modes == {f"stock-{n}": None for n in matrix.SWEEP} | {"measure": "measure", "monotasks": "monotasks"} | dict.fromkeys(
        (*matrix.POLICIES, matrix.REMEMBERED), "adaptive"
    )
    for setting in everyday.SETTINGS:
        assert everyday.spark_settings(setting, tmp_path).get("spark.pellucid.mode", "stock") == setting


def test_everyday_table_uses_the_newest_complete_build():
    def lines(build, *settings):
        took = {"stock": 1500, "measure": 1500, "adaptive": 9000}
        return [
            {"case": {"setting": setting, "repeat": 0}, "build": build, "ms": dict.fromkeys(shapes.SHAPES, took[setting])} for setting in settings
        ]

    assert everyday.newest([]) == []
    whole = lines("b", *everyday.SETTINGS)
    assert everyday.newest([*lines("a", *everyday.SETTINGS), *whole, *lines("c", "stock")]) == whole
    assert "| 640 empty tasks | 1.50 s | 1.50 s (×1.00) | 9.00 s (×6.00) |" in everyday.table(whole)


def test_documented_everyday_cost_matches_the_results():
    lines = everyday.newest(results.load(everyday.SUITE))
    text = (results.ROOT / "docs" / "spark-plugin.md").read_text()
    assert "\n".join(everyday.table(lines)) in text and everyday.about(lines) in " ".join(text.split())


def test_stages_sum_wait_and_bytes_of_their_tasks(tmp_path):
    metrics = {
        "Executor Run Time": 1000, "Executor CPU Time": 300 * 10**6, "JVM GC Time": 100, "Disk Bytes Spilled": 0,
        "Input Metrics": {"Bytes Read": 4_000_000}, "Output Metrics": {"Bytes Written": 0},
        "Shuffle Read Metrics": {"Remote Bytes Read": 0, "Local Bytes Read": 0},
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 1_000_000},
    }  # fmt: skip

    def task(number, *told):
        accumulables = [{"Name": f"pellucid.{name}", "Update": str(value)} for name, value in told]
        info = {"Finish Time": number, "Accumulables": accumulables}
        return {"Event": "SparkListenerTaskEnd", "Stage ID": 3, "Task Info": info, "Task Metrics": metrics}

    lost = {**task(9), "Task Metrics": None}
    ended = {"Event": "SparkListenerStageCompleted", "Stage Info": {"Stage ID": 3, "Submission Time": 0, "Completion Time": 2000}}
    path = tmp_path / "log"
    told = task(2, ("io_wait_ns", 500 * 10**6), ("concurrency", 4), ("read_bytes", 9_000_000))
    path.write_text("".join(json.dumps(event) + "\n" for event in (told, task(1), lost, ended)))
    (stage,) = log.stages(path)
    assert stage["wait_ms"] == 600 + 500 and stage["bytes"] == 5_000_000 + 10_000_000
    assert (stage["ms"], stage["tasks"], stage["concurrency"]) == (2000, 3, 4)


def test_gated_io_is_read_from_the_metrics_files(tmp_path):
    folders = [tmp_path / "a.b", tmp_path / "c"]
    names = ["_".join(str(folder).replace(".", "/").strip("/").split("/")) for folder in folders]

    def told(name, what, *values):
        text = "t,value\n" + "".join(f"{second},{value}\n" for second, value in enumerate(values))
        (tmp_path / f"app-1.0.plugin.{run.PLUGIN}.disk.{name}.{what}.csv").write_text(text)

    told(names[0], "peak", 0, 3, 4)
    told(names[0], "over", 0, 0, 1)
    told(names[1], "peak", 1, 1)
    assert log.gated(tmp_path, folders) is None
    told(names[1], "over", 0, 0)
    assert log.gated(tmp_path, folders) == [{"peak": 4, "over": 1}, {"peak": 1, "over": 0}]


def line(setting: str, repeat: int, ms: float, stages: list[float]) -> dict:
    """Returns the line of a run."""
    numbers = [
        {"id": n, "tasks": 9, "ms": ms, "wait_ms": 5.0, "bytes": 8, "concurrency": None if setting.startswith("stock") else 8}
        for n, ms in enumerate(stages)
    ]
    case = {"disk": "H150", "job": "sort", "setting": setting, "bytes": 1 << 20, "repeat": repeat}
    drives = [{"busy_ns": 10**9, "positioning_ns": 10**8, "in_flight_ns": 4 * 10**9}]
    return {
        "case": case, "build": "b", "machine": "m", "label": "emulated", "answer": "7", "others_cores": 0.0,
        "ms": ms, "stages": numbers, "drives": drives,
    }  # fmt: skip


def test_best_fixed_setting_uses_the_repeats_that_all_settings_have():
    lines = [line(name, 0, 10_000, [10_000]) for name in ("stock-4", "stock-32", "throughput")]
    lines += [line(name, repeat, 20_000, [20_000]) for name in ("stock-32", "throughput") for repeat in (1, 2)]
    page = table.page(lines)
    assert "together 10.0 s (over the 1 repeats that every setting has)." in page
    assert "throughput over the best fixed setting: **1**" in page and "| throughput | 3 | 20.0 |" in page


def test_concurrent_stages_have_one_best_setting_for_the_job():
    lines = [line("stock-4", 0, 6_000, [4000, 5000]), line("stock-32", 0, 7_000, [6000, 3000]), line("throughput", 0, 9_000, [4000, 6000])]
    for job in ("join", "pagerank"):
        for one in lines:
            one["case"]["job"] = job
        assert table.best_fixed(next(iter(table.newest(lines[:2]).values()))) == (6000, ["4"])
        page = table.page(lines)
        assert "only the whole job has a best fixed setting: 4, 6.0 s." in page and "throughput over the best fixed setting: **1.5**" in page
        assert "by stage:" not in page
    # If the order of stages varies, a median would mix several of them.
    assert "| order varies |" in page and "ζ (ms" not in page


def test_throughput_uses_the_plugins_byte_count():
    lines = [line(name, repeat, 10_000, [9000]) for repeat in range(2) for name in ("stock-4", "stock-32", "throughput")]
    for one in lines:
        one["stages"][0]["bytes"] = 180_000_000 if one["case"]["setting"] == "throughput" else 1000
        one["stages"][0]["wait_ms"] = 4000.0
    assert "| 0 | 4.0 / 20.0 / 200 | 4.0 / 20.0 / 200 |" in table.page(lines)


def test_congestion_index_is_compared_with_the_best_setting():
    lines = [line(name, repeat, ms, [ms]) for repeat in range(3) for name, ms in (("stock-2", 9000), ("stock-32", 8000), ("throughput", 8000))]
    for one in lines:
        one["stages"][0] |= {"tasks": 64, "bytes": 72_000_000, "wait_ms": 4000.0 if one["case"]["setting"] == "stock-2" else 64_000.0}
    text = " ".join(table.page(lines).split())
    assert "is lowest at 2 tasks in each of the 1 measured stages.** Yet the best fixed setting is another number in 1 of the 1 stages" in text
    assert "(in 0 of them, five repeats" in text
    assert "from 2 to 32 tasks at once it grows 16 to 16 times" in text and "never exceeds 1.1 times its value at 2 tasks" in text
    assert "congestion index" not in table.page([])


def test_cost_per_task_has_an_interval():
    lines = [line(name, repeat, ms, [ms]) for repeat in range(5) for name, ms in (("stock-32", 12_000), ("measure", 12_600 + repeat))]
    for one in lines:
        one["case"] |= {"job": "tasks", "disk": "memory"}
    # A twentieth of 2 ms.
    assert "measure adds 100 µs per task (95 %: 100 to 101) to stock Spark's 2000 µs" in table.page(lines)


def test_policies_are_compared_with_the_best_setting_of_each_stage():
    lines = [
        line("stock-4", 0, 10_000, [4000, 5000]),
        line("stock-32", 0, 12_000, [8000, 3000]),
        line("throughput", 0, 8_500, [4200, 3300]),
    ]
    settings = next(iter(table.newest(lines).values()))
    assert table.best_fixed(settings) == (4000 + 3000 + 1000, ["4", "32"])
    page = table.page(lines)
    assert "throughput over the best fixed setting: **1.062** (goal: at most 1.1): not decided: 1 of 5 repeats" in page
    assert "throughput over stock-32: **0.7083** (goal: at most 0.85): not decided: 1 of 5 repeats" in page
    assert "tasks at once by throughput (best), by stage: **0: 8 (4); 1: 8 (32)** (goal: within one doubling of the best): not met" in page
    assert "\n  - stage 1: not met: stock-4 takes 1.67 times as long as stock-32\n" in page
    assert "Not measured: stock-2, stock-8, stock-16, index, remembered." in page and "- pagerank on H150R" in page
    assert "0.71 (one pair)" in page and "| 1.0 | 0.1 | 4.0 |" in page


def test_stages_of_one_task_have_no_choice():
    lines = [
        line("stock-4", 0, 10_000, [4000, 5000]),
        line("stock-32", 0, 12_000, [3000, 8000]),
        line("throughput", 0, 8_500, [4200, 3300]),
    ]
    for one in lines:
        one["stages"][0]["tasks"] = 1
    assert table.best_fixed(next(iter(table.newest(lines).values()))) == (10_000, ["4", "4"])
    assert "tasks at once by throughput (best), by stage: **1: 8 (4)** (goal" in table.page(lines)


def test_choice_near_an_equally_fast_setting_is_not_resolved():
    lines = [line("stock-32", repeat, 9_000, [9000]) for repeat in range(5)]
    lines += [line("stock-16", repeat, 10_300, [9300 + off]) for repeat, off in enumerate((-900, -400, 0, 600, 1000))]
    lines += [line("throughput", repeat, 9_900, [9900]) for repeat in range(5)]
    page = table.page(lines)
    assert "by stage: **0: 8 (32)** (goal: within one doubling of the best): not resolved" in page
    assert "stage 0: not resolved: stock-16 takes 1.03 times as long as stock-32, but 16 cannot be told from 32" in page
    slower = [line("stock-16", repeat, 10_000, [9900 + repeat]) for repeat in range(5)]
    page = table.page([*lines[:5], *slower, *lines[10:]])
    assert "stage 0: not met: stock-16 takes 1.10 times as long as stock-32\n" in page


def test_gated_io_is_shown_for_monotasks_only():
    lines = [line(name, repeat, 1000, [900]) for repeat in range(2) for name in ("stock-32", "monotasks")]
    for one in lines:
        one["case"]["disk"] = "H150x2"
    assert "| 1.0 | 0.1 | 4.0 | not measured | 0.9 (8) |" in table.page(lines)
    for one, peak in zip(lines[1::2], (3, 2), strict=True):
        one["gated"] = [{"peak": peak, "over": 0}, {"peak": 1, "over": 0}]
    page = table.page(lines)
    assert "| 1.0 | 0.1 | 4.0 | 3 (0), 1 (0) | 0.9 (8) |" in page and "| 1.0 | 0.1 | 4.0 | – | 0.9 |" in page


def test_results_page_has_the_goals_and_links_to_the_reasons_for_misses():
    lines = [line(name, repeat, ms, [ms]) for repeat in range(5) for name, ms in (("stock-4", 8000), ("stock-32", 10_000), ("throughput", 9000))]
    page = results_page({"adaptive": lines})
    assert "| Self-adaptive executors: sort on H150, throughput over the best fixed setting | 1.125 | at most 1.1 | not met |" in page
    assert "| Self-adaptive executors: sort on H150, throughput over stock-32 | 0.9 | at most 0.85 | not met |" in page
    assert "(ADAPTIVE.md#why-a-policy-can-miss)" in page and table.WHY[0] == "## Why a policy can miss"
    assert "\n".join(table.WHY) in table.page(lines)


def test_setting_best_in_every_stage_is_compared_by_its_whole_time():
    lines = [line("stock-4", 0, 10_000, [4000, 5000]), line("stock-32", 0, 12_100, [6000, 6000])]
    assert table.best_fixed(next(iter(table.newest(lines).values()))) == (10_000, ["4", "4"])


def test_ratio_whose_interval_contains_one_is_not_resolved():
    lines = []
    for repeat, ours in enumerate((990, 1015, 1000)):
        lines += [line("stock-32", repeat, 1000, [900]), line("index", repeat, ours, [900])]
    page = table.page(lines)
    _, low, high = ratio_interval([(990, 1000), (1015, 1000), (1000, 1000)])
    assert f"({low:.2f} to {high:.2f}), not resolved" in page


def test_newer_build_replaces_older_lines():
    lines = [line("stock-32", 0, 1000, [900]), {**line("stock-32", 1, 2000, [900]), "build": "c"}]
    (settings,) = table.newest(lines).values()
    assert list(settings["stock-32"]) == [1]


def test_page_without_lines_says_so():
    assert "Nothing is measured yet." in table.page([])


def test_interrupted_run_says_how_to_continue(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "JAR", tmp_path)
    for program in (run.hdd, run.spark):
        monkeypatch.setattr(program, "missing", lambda: None)

    def stopped(*_) -> None:
        raise KeyboardInterrupt

    chosen = run.options("adaptive", "It measures.").parse_args(["--try-out"])
    case = matrix.Case("H150", "sort", "index", 1, 0)
    assert run.run_matrix("adaptive", chosen, [case], None, stopped, None) == 130
    assert "run the same command to continue" in capsys.readouterr().err
