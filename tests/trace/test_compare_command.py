"""`pellucid compare` on a real trace and on copies of it changed by known factors."""

import json
from pathlib import Path

import duckdb
import pytest
import zstandard

from harness import binary, traces

QUERY = "SELECT k % 7, count(*), max(v) FROM t GROUP BY 1 ORDER BY 1"
TIMES = ["submitted_ns", "admitted_ns", "queued_ns", "queue_ns", "service_ns", "ended_ns", "at_ns", "interval_ns"]
TIMES += ["cpu_ns", "decode_ns", "operator_ns", "encode_ns", "not_split_ns", "started_ns", "duration_ns", "first_byte_ns"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    for part in range(8):
        duckdb.sql(f"""COPY (SELECT i AS k, hash(i) % 1000 AS v FROM range(200000) t(i))
                       TO '{folder}/part-{part}.parquet'""")
    path = folder / "query.trace"
    # Long enough that a change of 50 % exceeds the noise of any run.
    options = ["--io", "direct", "--disk-rate", f"{folder}=15MB/s"]
    binary.run("sql", QUERY, "--table", f"t={folder}/*.parquet", *options, "--trace", path).check()
    return path


def changed(trace: Path, name: str, times: float, of=lambda record: record) -> Path:
    """Writes a copy of the trace with every time multiplied and each record passed through a function."""
    path = trace.with_name(name)
    frames = []
    for record in traces.lines(trace):
        slower = {key: round(value * times) if key in TIMES else value for key, value in record.items()}
        frames.append(zstandard.compress((json.dumps(of(slower)) + "\n").encode()))
    path.write_bytes(b"".join(frames))
    return path


def compare(a: Path, b: Path, *options: str) -> tuple[int, dict]:
    ran = binary.run("compare", a, b, "--json", *options)
    assert not binary.PANIC.search(ran.err)
    return ran.code, ran.json()


def test_run_equals_itself(recorded):
    code, document = compare(recorded, recorded, "--fail-slower", "0%")
    assert code == 0 and document["verdict"] == "same within noise"
    assert document["format"] == "pellucid.comparison/1"
    assert document["duration_ms"]["a"] == document["duration_ms"]["b"] > 0
    assert document["low_ms"] < 0 < document["high_ms"]
    assert all(stage["change_ms"] == 0 and stage["a"] == stage["b"] for stage in document["stages"])
    assert {"cpu", "disk", "network"} <= set(document["stages"][0]["explained_by"])


@pytest.mark.parametrize(
    "times, verdict, code",
    [(1.5, "slower", 1), (0.5, "faster", 0), (1.02, "same within noise", 0), (0.98, "same within noise", 0)],
)
def test_known_change_gives_its_verdict(recorded, times, verdict, code):
    other = changed(recorded, f"times-{times}.trace", times)
    got, document = compare(recorded, other, "--fail-slower", "10%")
    assert (document["verdict"], got) == (verdict, code)
    relative = document["change_ms"] / document["duration_ms"]["a"]
    assert abs(float(relative) - (times - 1)) < 0.001
    assert document["low_ms"] <= document["change_ms"] <= document["high_ms"]


def test_gate_fails_only_beyond_its_limit(recorded):
    other = changed(recorded, "half-again.trace", 1.5)
    assert compare(recorded, other, "--fail-slower", "60%")[0] == 0
    assert compare(recorded, other)[0] == 0
    ran = binary.run("compare", recorded, other, "--fail-slower", "10%")
    assert ran.code == 1 and "Slower by" in ran.out and "half-again.trace is slower" in ran.err
    # With stdout closed, the gate must still fail.
    process = binary.start("compare", recorded, other, "--fail-slower", "10%")
    process.stdout.close()
    assert process.wait(timeout=60) == 1


def test_change_is_explained_by_its_resource(recorded):
    """Doubles all times: the scan takes longer because of the disk, which is paced."""
    document = compare(recorded, changed(recorded, "twice.trace", 2.0))[1]
    largest = max(document["stages"], key=lambda stage: stage["change_ms"])
    kinds = {kind: ms for kind, ms in largest["explained_by"].items() if ms}
    assert max(kinds, key=kinds.get) == "disk" and "on disk, over the same bytes" in largest["why"], largest


def test_new_stage_does_not_shift_the_others(recorded):
    def renamed(record):
        return record | {"name": "Quite another operator"} if record["t"] == "stage" and not record.get("after") else record

    document = compare(recorded, changed(recorded, "renamed.trace", 1.0, renamed))[1]
    alone = [stage for stage in document["stages"] if None in (stage["a"], stage["b"])]
    assert alone and all(stage["change_ms"] is None for stage in alone)
    assert any(stage["a"] == stage["b"] is not None for stage in document["stages"])


def test_failed_run_is_not_faster(recorded):
    def failed(record):
        return record | {"outcome": "failed", "error": "division by zero"} if record["t"] == "job_end" else record

    ran = binary.run("compare", recorded, changed(recorded, "failed.trace", 0.1, failed), "--fail-slower", "10%")
    assert ran.code == 1 and "succeeded in both" in ran.err, ran.out + ran.err


def test_gate_refuses_different_queries(recorded):
    def other(record):
        return record | {"name": "SELECT 2"} if record["t"] == "job" else record

    different = changed(recorded, "different.trace", 1.0, other)
    ran = binary.run("compare", recorded, different, "--fail-slower", "10%", "-q")
    assert ran.code == 2 and "cannot use --fail-slower" in ran.err and "remove --fail-slower" in ran.err, ran.err
    ran = binary.run("compare", recorded, different).check()
    assert "different texts" in ran.err


def test_truncated_trace_and_invalid_limit_are_refused(recorded, tmp_path):
    cut = tmp_path / "cut.trace"
    cut.write_bytes(recorded.read_bytes()[: recorded.stat().st_size // 2])
    ran = binary.run("compare", recorded, cut)
    assert ran.code == 1 and "nothing to compare" in ran.err and not binary.PANIC.search(ran.err)
    ran = binary.run("compare", recorded, recorded, "--fail-slower", "much")
    assert ran.code == 2 and "10%" in ran.err
    ran = binary.run("compare", recorded, recorded, "--fail-slower", "10")
    assert ran.code == 2 and "write 10%" in ran.err
    assert binary.run("compare", recorded, recorded, "--fail-slower", "0.1").code == 0
