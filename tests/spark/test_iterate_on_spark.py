"""`pellucid iterate --on spark`: workers in the tasks of a real Spark give the same results as local threads."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import binary, spark

needs_spark = pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}")
# Two executors of one core each: a cluster on this machine.
CLUSTER = "spark=local-cluster[2,1,1024]"
FEATURES = 5


@pytest.fixture(scope="module")
def points(tmp_path_factory) -> Path:
    """Rows for a regression that takes thousands of iterations of gradient descent."""
    random = np.random.default_rng(3)
    x = random.normal(size=(20_000, FEATURES))
    y = (x @ np.arange(1.0, FEATURES + 1) + random.logistic(size=len(x)) > 0).astype(np.int64)
    path = tmp_path_factory.mktemp("points") / "points.parquet"
    pq.write_table(pa.table({f"f{c}": x[:, c] for c in range(FEATURES)} | {"y": y}), path)
    return path


def job(points: Path, iterations: int) -> list:
    """Returns the arguments of a gradient descent with a fixed number of iterations."""
    options = ["--label", "y", "--solver", "gd", "--tolerance", 0, "--iterations", iterations, "--partitions", 6]
    return ["iterate", "logistic-regression", points, *options, "--json"]


def processes_with(text: str, other: str) -> list[int]:
    """Returns the processes whose command line contains both texts."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if text in line and other in line and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


@needs_spark
def test_lost_executor_only_costs_time(points, tmp_path):
    """Kills an executor after the first snapshots: Spark restarts all workers, and the result is the same."""
    iterations = 60_000
    expected = json.loads(binary.run(*job(points, iterations)).check().out)
    marker, place = f"-Dpellucid.test={tmp_path.name}-{os.getpid()}", tmp_path / "kept"
    options = ["--on", CLUSTER, "--processes", 2, "--snapshot", place, "--snapshot-every", 500]
    options += ["--conf", f"spark.executor.extraJavaOptions={marker}", "--conf", "spark.executor.memory=700m"]
    process = binary.start(*job(points, iterations), *options, env=spark.environment())
    try:
        binary.wait_until(lambda: place.exists() and list(place.glob("**/*manifest*")), process, timeout=180)
        victims = processes_with("CoarseGrainedExecutorBackend", marker)
        assert len(victims) == 2, victims
        os.kill(victims[0], signal.SIGKILL)
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["recoveries"] > 0, "the executor was killed too late"
    assert found["result"] == expected["result"] and found["iterations"] == iterations
    assert "2 workers in Spark tasks" in err
    deadline = time.monotonic() + 60
    while processes_with("CoarseGrainedExecutorBackend", marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with("CoarseGrainedExecutorBackend", marker) == []


@needs_spark
def test_readme_examples_run_on_a_cluster(points, tmp_path):
    """Runs them with another master and snapshot folder."""
    shutil.copy(points, tmp_path / "points.parquet")
    found = spark.examples("iterate")
    assert found
    for example in found:
        here = [word for word in example if not word.startswith("spark=")]
        here.remove("--on")
        del here[here.index("--snapshot") : here.index("--snapshot") + 2]
        expected = json.loads(binary.run(*here, "--json", cwd=tmp_path).check().out)
        other = {word: CLUSTER if word.startswith("spark=") else "snapshots" if word.startswith("s3:") else word for word in example}
        command = [other[word] for word in example]
        more = ["--processes", 2, "--snapshot-every", 1, "--json", "--conf", "spark.executor.memory=700m"]
        ran = binary.run(*command, *more, env=spark.environment(), cwd=tmp_path).check()
        assert json.loads(ran.out)["result"] == expected["result"]
        assert "2 workers in Spark tasks" in ran.err
        # The job may end before its first snapshot is durable.
        assert list((tmp_path / "snapshots").glob("**/lock"))


@needs_spark
def test_local_master_runs_one_worker_per_core(points):
    expected = json.loads(binary.run(*job(points, 30)).check().out)
    # Spark's own default parallelism must not affect the number of workers.
    more = ["--conf", "spark.default.parallelism=7"]
    found = binary.run(*job(points, 30), "--on", "spark=local[2]", *more, env=spark.environment()).check()
    assert json.loads(found.out)["result"] == expected["result"]
    assert "2 workers in Spark tasks" in found.err


@needs_spark
def test_error_of_all_workers_is_reported_once(points, tmp_path):
    """Deletes the data as soon as the command has read their schema, so that no task can read them."""
    copy = shutil.copy(points, tmp_path / "gone.parquet")
    process = binary.start(*job(copy, 30), "--on", "spark=local[2]", env=spark.environment(TMPDIR=str(tmp_path)))
    try:
        binary.wait_until(lambda: list(tmp_path.glob("pellucid-spark-*")), process)
        copy.unlink()
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1 and out == ""
    assert "error: Spark: worker on " in err and "gone.parquet" in err, err
    assert "Traceback" not in err and not binary.PANIC.search(err)


@needs_spark
@pytest.mark.full
def test_more_workers_than_slots_is_an_error(points):
    ran = binary.run(*job(points, 30), "--on", "spark=local[2]", "--processes", 3, env=spark.environment())
    assert ran.code == 1 and "slots" in ran.err, ran.err


@needs_spark
def test_ctrl_c_stops_spark(points, tmp_path):
    process = binary.start(*job(points, 100_000_000), "--on", "spark=local[2]", env=spark.environment(TMPDIR=str(tmp_path)), start_new_session=True)
    worker = "logistic-regression"
    try:
        binary.wait_until(lambda: len(processes_with(worker, str(points))) == 3, process, timeout=120)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert not list(tmp_path.glob("pellucid-spark-*"))
    deadline = time.monotonic() + 30
    while processes_with(worker, str(points)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(worker, str(points)) == []


@needs_spark
def test_spark_properties_reach_no_arguments(points):
    """Neither of the workers, nor of Spark's own processes: other users can read arguments."""
    secret = f"pellucid-secret-{os.getpid()}"
    more = ["--on", CLUSTER, "--processes", 2, "--conf", "spark.executor.memory=700m", "--conf", f"spark.hadoop.secret={secret}"]
    process = binary.start(*job(points, 100_000_000), *more, env=spark.environment())
    try:
        binary.wait_until(lambda: len(processes_with("logistic-regression", str(points))) == 3, process, timeout=120)
        assert processes_with(secret, "") == [process.pid]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_usage_errors_need_no_spark(points):
    for options, message in [
        (["--on", "flink"], "expected spark or spark=MASTER"),
        (["--on", "spark", "--bandwidth"], "cannot use --bandwidth with --on spark"),
        (["--on", "spark", "--processes", 2, "--listen", "127.0.0.1:0"], "cannot use --listen with --on spark"),
        (["--on", "spark", "--conf", "memory=4g"], "expected a Spark property"),
        (["--conf", "spark.executor.memory=4g"], "--on"),
    ]:
        ran = binary.run(*job(points, 30), *options)
        assert ran.code == 2 and message in ran.err, ran.err


def test_missing_pyspark_is_reported(points, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    trace = tmp_path / "job.trace"
    binary.run("sql", "SELECT 1", "--trace", trace).check()
    earlier = trace.read_bytes()
    lacking = {**os.environ, "PYSPARK_PYTHON": str(bare)}
    ran = binary.run(*job(points, 30), "--on", "spark", "--trace", trace, env=lacking)
    assert ran.code == 1 and "cannot find PySpark" in ran.err, ran.err
    assert trace.read_bytes() == earlier, "a job that cannot start must not replace the trace"
