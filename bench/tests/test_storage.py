"""Tests of the storage matrix: agreement of rankings, intervals, kept files, and the page."""

import json
import math
import random
from pathlib import Path

import pytest

from bench.common import results
from bench.storage import agreement, causes, data, measured, rig, run, spark, table, workloads
from bench.storage.rig import Place
from bench.storage.sections import commits, layers, predictions, runtimes
from bench.storage.sections.examined import examined


def apart(*seconds: float) -> list[tuple[float, float]]:
    """Returns disjoint intervals."""
    return [(s - 0.1, s + 0.1) for s in seconds]


def test_tau_is_one_for_equal_orders_and_minus_one_for_opposite_ones():
    links = {"a": 0, "b": 2, "c": 4}
    assert agreement.tau_b(links, dict(zip("abc", apart(1, 2, 3), strict=True))) == 1.0
    assert agreement.tau_b(links, dict(zip("abc", apart(3, 2, 1), strict=True))) == -1.0


def test_tau_treats_ties_as_scipy_does():
    from scipy.stats import kendalltau

    numbers = random.Random(7)
    for _ in range(200):
        n = numbers.randint(2, 7)
        links = {str(i): numbers.randint(0, 3) for i in range(n)}
        # Equal times share an interval and different ones are disjoint, so ties are transitive as in scipy.
        values = {str(i): numbers.randint(1, 4) for i in range(n)}
        ours = agreement.tau_b(links, {name: (v, v) for name, v in values.items()})
        theirs = kendalltau([links[k] for k in links], [values[k] for k in links]).statistic
        assert (ours is None and theirs != theirs) or ours == pytest.approx(theirs), (links, values)


def test_overlapping_intervals_are_tied_and_outliers_are_named():
    links = {"GC": 0, "NC": 2, "GC-V": 2}
    times = {"GC": (1.0, 1.2), "NC": (1.5, 1.7), "GC-V": (1.1, 1.3)}
    assert agreement.order_of_times(times["GC"], times["GC-V"]) == 0
    assert agreement.outliers(links, times) == [("NC", "GC-V")]
    assert agreement.tau_b(links, times) == pytest.approx(1 / 2)


def test_every_workload_has_a_command_and_a_spark_request():
    files = ["text/part-0.csv", "points/part-0.parquet", *(f"{name}/part-0.parquet" for name in data.TABLES)]
    place = Place("S3", "s3://b", "s3a://b", files=files)
    for workload in workloads.WORKLOADS:
        command = workloads.command(workload, place, "x.trace")
        assert command[0] in ("sql", "iterate") and any("s3://b" in word for word in command)
        asked = json.dumps(workloads.spark_request(workload, place))
        assert "s3a://b" in asked and "[]" not in asked


def line(case: dict, build: str = "x", **found) -> str:
    common = {"suite": "storage", "build": build, "machine": "m", "memory": None, "at": "2026-01-01T00:00:00+00:00"}
    return json.dumps(common | {"case": case} | found)


def test_lines_are_of_the_newest_build_per_engine_and_workload(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)

    def run_of(engine, workload, number=0):
        return {"round": number, "workload": workload, "composition": "GC", "engine": engine}

    sparks, ours, words = run_of("Spark", "word count"), run_of("Pellucid", "word count"), run_of("Pellucid", "DFSIO")
    later = run_of("Pellucid", "word count", 1)
    written = [line(case, "old") for case in (sparks, {"tasks": sparks}, ours, words, {"probe": "GC"})]
    written += [line(case, "new") for case in (later, {"probe": "NC"})]
    (tmp_path / "storage.jsonl").write_text("\n".join(written) + "\n")
    assert [one["case"] for one in measured.lines()] == [sparks, {"tasks": sparks}, words, later, {"probe": "NC"}]


def test_page_shows_measured_compositions_only(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert "Nothing is measured" in table.page()
    use = {key: [0.1, 0.2, 0.3, 0.4, 0.5] for key in ("compute_cores", "data_cores", "disk_mb_s", "link_mb_s")}
    use |= {"disk_mb": 141.3, "link_mb": 142.4, "data_core_s": 1.11}
    written = []
    for number in range(5):
        for name, seconds in (("GC", 1.0), ("NC", 2.0), ("S3", 4.0)):
            case = {"round": number, "workload": "word count", "composition": name, "engine": "Pellucid"}
            written.append(line(case, s=seconds + number / 100, use=use, bottleneck="disk", others_cores=0.0, hardware="h"))
    saving = {"low_ms": 8000.0, "saves_ms": 9000.0, "high_ms": 10_000.0}
    finding = {"title": "output to s3a:// is committed by rename", "evidence": "a; tasks 3 ms", **saving}
    commit = {"rename_s": [10.0] * 3, "magic_s": [7.0] * 3, "rename_findings": [finding], "magic_findings": [], "report": {}}
    written.append(line({"commits": "S3", "times": 2}, **commit))
    (tmp_path / "storage.jsonl").write_text("\n".join(written) + "\n")
    page = table.page()
    assert "- **NC**: HDFS, one replica, behind a link." in page and "**MINIO**" not in page, page
    assert "| NC | 2 | 2.02 | 2.00 to 2.04 | 5 |" in page, page
    # NC and S3 have paths of the same length, and S3 is slower.
    assert "τ-b 0.82" in page and "S3 is slower than NC: no cause found" in page and "S3 0, 0.3; NC 0, 0.3" in page, page
    assert "| S3 | 576 | 30.0 | 21.0 | 9.0 ± 0.0 | 9.0 (0%) | met | 8.0 to 10.0: inside |" in page, page


@pytest.mark.parametrize(
    ("predicted_s", "verdict"), [(8.6, "met"), (11.4, "met"), (12.5, "not resolved"), (8.0, "not resolved"), (13.0, "not met"), (7.5, "not met")]
)
def test_goal_is_not_resolved_within_the_interval_of_the_saving(predicted_s, verdict):
    assert commits.verdict(predicted_s * 1e3, saved_s=10.0, half_s=1.0) == verdict
    assert commits.verdict(None, 10.0, 1.0) == "not seen"


def test_findings_explain_only_their_direction_of_io():
    def found(*titles: str) -> list[dict]:
        return [{"title": title} for title in titles]

    written = found("GC-VB: both layers replicate", "output waits for its uploads to be completed", "writes leave the link idle")
    read = found("one stream per read leaves the link idle", "planning waits for listings", "more is read than the job asks for")
    renamed, proxy = found("output is committed by rename, and a rename copies"), found("the proxy is near its link's rate")
    memory = found("input was in memory: where it is stored makes no difference")
    every = [*written, *read, *renamed, *proxy, *memory]

    def titles(*some: list[dict]) -> str:
        return "; ".join(f["title"] for one in some for f in one)

    assert causes.reasons(every, [], "read", "Spark") == titles(read, proxy)
    assert causes.reasons(every, [], "write", "Spark") == titles(written, renamed, proxy)
    assert causes.reasons(every, memory, "write", "Pellucid") == titles(written, proxy)
    assert causes.reasons(written, memory, "read", "Pellucid") == f"for the faster, {titles(memory)}"
    assert causes.reasons(memory, written, "read", "Pellucid") == ""
    # A finding that the faster one shares explains nothing.
    assert causes.reasons(every, [*written, *proxy], "write", "Spark") == titles(renamed)
    slow, slower = ([{"title": "output waits for its uploads", "saves_ms": ms}] for ms in (100.0, 900.0))
    assert causes.reasons(slower, slow, "write", "Spark") == "output waits for its uploads"
    assert causes.reasons(slow, slower, "write", "Spark") == ""
    assert causes.reasons([slower[0] | {"saves_ms": 110.0}], slow, "write", "Spark") == ""


def test_findings_of_several_queries_are_merged():
    each = [{"title": title, "query": query} for title, query in (("a", 1), ("b", 2), ("a", 3))]
    assert causes.titled([*each, {"title": "c"}]) == ["a (in query 1, 3 of 5)", "b (in query 2 of 5)", "c"]


def test_examined_runs_are_shown_by_condition(tmp_path, monkeypatch):
    assert examined([]) == []
    lines = []
    for number in range(5):
        for seconds, condition in ((1.4, "as it is"), (1.2, "a core each")):
            use = {"disk_mb_s": [1, 2, 90, 4, 5], "data_core_s": seconds / 2}
            case = {"condition": condition, "round": number, "composition": "GC-V"}
            lines.append({"case": case, "s": seconds + number / 100, "use": use})
    page = "\n".join(examined(lines))
    assert "| GC-V | as it is | 1.42 (1.40 to 1.44) | 90 | 0.70 | 5 |\n| GC-V | a core each | 1.22 (1.20 to 1.24) | 90 | 0.60 | 5 |" in page, page


def test_kept_traces_are_diagnosed_when_the_page_is_made(monkeypatch):
    monkeypatch.setattr(causes, "diagnosed", lambda log, report: [{"title": log.name, "report": report}])
    kept = {("word count", "NC"): ["w.trace"], ("TPC-DS", "NC"): ["0.trace", "1.trace"], ("word count", "GC"): ["g.trace"]}
    found = causes.traced_findings(kept, {"NC": {"a": 1}})
    assert found["word count", "NC"] == [{"title": "w.trace", "report": {"a": 1}, "query": None}]
    assert [(f["title"], f["query"]) for f in found["TPC-DS", "NC"]] == [("0.trace", 1), ("1.trace", 2)]
    # A composition without such a probe is diagnosed without one.
    assert [f["report"] for f in found["word count", "GC"]] == [None]


def test_only_the_median_run_keeps_its_files_once_all_repeats_exist(tmp_path, monkeypatch):
    def run_of(number: int, seconds: float, engine: str, name: str, **more) -> dict:
        return {"case": {"round": number, "workload": "word count", "composition": name, "engine": engine}, "s": seconds, **more}

    ours = [run_of(number, seconds, "Pellucid", "NC", files=[f"ours-{number}"]) for number, seconds in enumerate((3.0, 1.0, 2.0))]
    sparks = [run_of(number, seconds, "Spark", "NC") for number, seconds in enumerate((5.0, 4.0, 6.0))]
    tasks = [{"case": {"tasks": run["case"]}, "files": [f"spark-{n}"], "task_s": []} for n, run in enumerate(sparks)]
    fewer = [run_of(number, 1.0, "Pellucid", "S3", files=[f"fewer-{number}"]) for number in range(2)]
    # A run whose session was lost has no files, but can still be the median.
    lost = [run_of(number, seconds, "Spark", "S3") for number, seconds in enumerate((1.0, 2.0, 3.0))]
    found = [*ours, *sparks, *tasks, *fewer, *lost]
    assert measured.kept(found, "Pellucid") == {("word count", "NC"): ["ours-2"], ("word count", "S3"): ["fewer-1"]}
    assert measured.kept(found, "Spark") == {("word count", "NC"): ["spark-0"]}
    stay = {"ours-2", "spark-0", "fewer-0", "fewer-1"}
    assert measured.files_to_keep(found, 3) == stay

    monkeypatch.setattr(measured, "TRACES", tmp_path)
    monkeypatch.setattr(measured, "lines", list)
    others = ("commits-NC-1-rename.zstd", "predicted-DFSIO.trace")
    for name in (*others, "word-count-NC-r0.trace", "TPC-DS-GC-VB-r4-5.trace", "DFSIO-NC-r1-spark.zstd"):
        (tmp_path / name).touch()
    run.keep_medians()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_totals_of_median_runs_are_shown_by_engine():
    def run_of(engine: str, seconds: float, disk_mb: float) -> dict:
        use = {"disk_mb": disk_mb, "link_mb": 142.4, "data_core_s": 1.11}
        return {"case": {"round": 0, "workload": "word count", "composition": "GC-VB", "engine": engine}, "s": seconds, "use": use}

    page = "\n".join(
        layers.moved([run_of("Pellucid", 1.5, 141.3), run_of("Pellucid", 1.4, 7.0), run_of("Pellucid", 1.6, 8.0), run_of("Spark", 2.0, 9.0)])
    )
    assert "| word count | Pellucid | GC-VB | 1.50 | 141 | 142 | 1.11 |\n| word count | Spark | GC-VB | 2.00 | 9 | 142 | 1.11 |" in page, page


def test_predictions_are_compared_with_the_jobs_own_times(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert predictions.predicted() == []
    first = {"median": 1.0, "p99": 1.0}
    read = [{"concurrency": 1, "pattern": "sequential", "request_bytes": 8 << 20, "bytes_per_s": 1e8, "first_byte_ms": first}]
    upload = {"bytes": 10 << 20, "sent_ms": 200.0, "complete_ms": 50.0, "complete_small_ms": 10.0}
    names = ("chosen_concurrency", "write_bytes_per_s", "small_objects_per_s", "list_per_s", "rename", "read_after_write")
    unmeasured = dict.fromkeys(names)
    commit = {"rename_ms": None, "multipart_ms": None}
    report = {"format": "pellucid.probe/1", "url": "s3://b", "read": read, "upload": upload, "commit": commit} | unmeasured
    written = [line({"probe": "S3"}, report=report, others_cores=0.0)]
    for number in range(5):
        case = {"workload": "DFSIO", "composition": "S3", "round": number}
        written.append(line(case, job_s=9.0, publish_s=1.5, others_cores=0.0, hardware="h"))
    (tmp_path / "storage-predicted.jsonl").write_text("\n".join(written) + "\n")
    (row,) = (part for part in predictions.predicted() if part.startswith("| DFSIO"))
    # The kept trace writes 384 MB; at this probe's 52 MB/s that takes 7.3 s, before the completion.
    assert row.startswith("| DFSIO | S3 | 9.00 (9.00 to 9.00) | ") and row.endswith(" % | inside | 1.50 | 1.47 |"), row


def test_log_is_split_into_jobs_driver_commits_and_tasks(tmp_path):
    def task(run_ms: int, commit_ms: str) -> dict:
        updates = [{"Name": "task commit time", "Update": commit_ms}, {"Name": "duration", "Update": "9"}]
        return {"Event": "SparkListenerTaskEnd", "Task Info": {"Accumulables": updates}, "Task Metrics": {"Executor Run Time": run_ms}}

    begun, ended = {"Submission Time": 1000}, {"Completion Time": 3000}
    sql = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"
    events = [{"Event": "SparkListenerJobStart"} | begun, task(800, "300"), task(500, "100"), {"Event": "SparkListenerJobEnd"} | ended]
    log = tmp_path / "log"
    log.write_text("".join(json.dumps(event) + "\n" for event in [*events, {"Event": sql, "time": 3500}]))
    found = commits.parts(log)
    expected = {"jobs": 2.0, "driver after the jobs": 0.5, "task commits": 0.4, "tasks without commits": 0.9}
    assert found == pytest.approx(expected)
    [said] = commits.requests(log, {"commit": {"request_ms": 4.0}})
    assert "took 200 ms on average" in said and "22.2 ms, against 4.0 ms in the probe" in said
    assert commits.requests(log, {"commit": {}}) == commits.requests(tmp_path / "none", {"commit": {"request_ms": 4.0}}) == []


def test_spark_does_not_write_to_stores_that_refuse_it():
    assert not run.runs("DFSIO", "S3", "Spark")
    assert run.runs("DFSIO", "S3", "Pellucid") and run.runs("word count", "S3", "Spark") and run.runs("DFSIO", "SWI", "Spark")


def test_compositions_are_ranked_and_double_replication_is_found():
    links = runtimes.ranks()
    assert {name: links["read"][name] for name in rig.ALL} == dict.fromkeys(rig.ALL, 2) | {"GC": 0, "SWI": 4}
    volumes = {name: links["write"][name] for name in ("GC", *rig.VOLUMES)}
    assert volumes == {"GC": 0, "GC-V": 2, "GC-VS": 4, "GC-VB": 10}
    # On this machine no link lies between copies.
    here = runtimes.ranks(as_placed=True)
    assert here["write"] == links["write"] | {"GC-VS": 2, "GC-VB": 4} and here["read"] == links["read"]
    report = {"format": "pellucid.probe/1", "url": "file:///v", "read": [], "commit": dict.fromkeys(("rename_ms", "multipart_ms"))}
    unmeasured = ("chosen_concurrency", "write_bytes_per_s", "small_objects_per_s", "list_per_s", "rename", "read_after_write")
    found = causes.compositions({name: report | dict.fromkeys(unmeasured) for name in rig.VOLUMES})
    titles = {name: [f["title"] for f in some] for name, some in found.items()}
    assert titles == {"GC-V": [], "GC-VS": [], "GC-VB": ["GC-VB: both layers replicate"]}


def test_interrupted_run_says_how_to_continue(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(results, "FOLDER", tmp_path)

    def stopped(*_) -> None:
        raise KeyboardInterrupt

    assert run.carry_out(stopped, None) == 130
    assert "run the same command to continue" in capsys.readouterr().err


def test_session_log_is_split_by_run_and_kept_without_machine_details(tmp_path):
    def ended(launched: int, took: int) -> dict:
        return {"Event": "SparkListenerTaskEnd", "Task Info": {"Launch Time": launched, "Finish Time": launched + took}}

    settings = {"spark.a": f"{results.ROOT}/x", "spark.b": "/mnt/emulated/local", "spark.driver.extraClassPath": "/jars"}
    environment = {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": settings, "JVM Information": {"a": "b"}}
    events = [environment, ended(10_000, 500), ended(10_500, 1_500), ended(20_000, 250)]
    log, kept = tmp_path / "log", tmp_path / "kept" / "log.zstd"
    log.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    assert spark.task_times(log, [(9.0, 11.0), (20.0, 21.0), (30.0, 31.0)]) == [[0.5, 1.5], [0.25], []]
    spark.keep(log, {kept: (0.0, math.inf)}, Path("/mnt/emulated"))
    first, *rest = [json.loads(line) for line in spark.lines_of(kept)]
    assert first == {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {"spark.a": "/project/x", "spark.b": "/disk/local"}}
    assert rest == events[1:]


def test_log_parts_have_their_jobs_and_all_events_without_a_job():
    def job(number: int, at: int, stages: list[int]) -> list[dict]:
        job = {"Event": "SparkListenerJobStart", "Job ID": number, "Submission Time": at, "Stage IDs": stages}
        query = {"Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart", "executionId": number, "time": at}
        ends = [{"Event": "SparkListenerTaskEnd", "Stage ID": n} for n in stages]
        completed = [{"Event": "SparkListenerStageCompleted", "Stage Info": {"Stage ID": n, "Submission Time": at}} for n in stages]
        return [query, job, *ends, *completed, {"Event": "SparkListenerJobEnd", "Job ID": number, "Completion Time": at + 9}]

    start, first, second = {"Event": "SparkListenerApplicationStart", "Timestamp": 1}, job(0, 1_000, [0, 1]), job(1, 2_000, [2])
    numbers = spark.began_within([(0.5, 1.5), (0.0, 9.0), (1.5, 2.5), (7.0, 8.0)])
    of = [list(numbers(event)) for event in (start, *first, *second)]
    assert of == [[0, 1, 2, 3], *([[0, 1]] * len(first)), *([[1, 2]] * len(second))]
