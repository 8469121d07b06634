"""Tests of the trace checker: it names each planted violation of an invariant."""

import pytest

from harness import traces
from harness.traces import write


def valid_trace() -> list[dict]:
    """Returns a small complete trace: one job, two stages, a disk and two cores."""
    return [
        {
            "t": "header",
            "format": "pellucid.trace/1.1",
            "producer": "engine",
            "producer_version": "0",
            "origin_unix_ns": 1,
        },
        {"t": "machine", "name": "here"},
        {"t": "resource", "name": "cores", "kind": "cpu", "machine": 0, "capacity": 2.0, "concurrency": 2},
        {"t": "resource", "name": "disk0", "kind": "disk", "machine": 0, "concurrency": 1},
        {"t": "job", "name": "SELECT 1", "submitted_ns": 0},
        {"t": "stage", "job": 0, "name": "scan", "submitted_ns": 10_000_000},
        {"t": "multitask", "stage": 0, "partition": 0, "admitted_ns": 20_000_000},
        {
            "t": "monotask",
            "multitask": 0,
            "resource": 1,
            "phase": "read",
            "queued_ns": 20_000_000,
            "queue_ns": 0,
            "service_ns": 10_000_000,
            "bytes": 9,
        },
        {
            "t": "monotask",
            "multitask": 0,
            "resource": 0,
            "phase": "compute",
            "queued_ns": 30_000_000,
            "queue_ns": 0,
            "service_ns": 10_000_000,
            "decode_ns": 4_000_000,
        },
        {"t": "stage_end", "stage": 0, "ended_ns": 40_000_000},
        {"t": "stage", "job": 0, "name": "sort", "after": [0], "submitted_ns": 40_000_000},
        {"t": "multitask", "stage": 1, "partition": 0, "admitted_ns": 40_000_000},
        {"t": "stage_end", "stage": 1, "ended_ns": 45_000_000},
        {"t": "job_end", "job": 0, "ended_ns": 50_000_000},
        {"t": "end", "records": 14},
    ]


def test_valid_trace_has_no_violations(tmp_path):
    assert traces.violations(traces.read(write(tmp_path / "t", valid_trace()))) == []


@pytest.mark.parametrize(
    "record, change, expected",
    [
        (0, {"format": "other/1"}, "format"),
        (14, {"records": 13}, "the end says"),
        (13, {"ended_ns": 44_000_000}, "ended after its job"),
        (11, {"admitted_ns": 39_000_000}, "before stage 0 had ended"),
        (6, {"admitted_ns": 9_000_000}, "before its stage was submitted"),
        (7, {"queued_ns": 19_000_000}, "before its multitask was admitted"),
        (8, {"service_ns": 11_000_000}, "ended after its stage"),
        (8, {"decode_ns": 12_000_000}, "decode, operators and encode"),
        (8, {"not_split_ns": 12_000_000}, "not_split_ns"),
        (8, {"phase": "read"}, "ran on a resource of kind cpu"),
        (7, {"bytes": None}, "how many bytes"),
    ],
)
def test_violation_is_named(tmp_path, record, change, expected):
    records = valid_trace()
    records[record] |= change
    records[record] = {key: value for key, value in records[record].items() if value is not None}
    found = traces.violations(traces.read(write(tmp_path / "t", records)))
    assert any(expected in message for message in found), found


def test_stack_of_another_operator_is_named(tmp_path):
    records = valid_trace()
    operator = {"t": "operator", "stage": 0, "operator": 4, "name": "Scan", "part": "decode", "cpu_ns": 1, "max_cpu_ns": 1}
    stacks = [{"t": "stack", "stage": 0, "operator": number, "count": count, "frames": "f"} for number, count in ((4, 1), (5, 1), (4, 0))]
    records[9:9] = [operator, *stacks]
    records[-1]["records"] = len(records) - 1
    found = traces.violations(traces.read(write(tmp_path / "t", records)))
    assert found == ["a stack of stage 0 is of operator 5", "a stack of stage 0 has no count or no functions"]


def test_excess_concurrency_is_counted(tmp_path):
    records = valid_trace()
    records[9:9] = [records[8], records[8]]
    records[-1]["records"] = len(records) - 1
    found = traces.violations(traces.read(write(tmp_path / "t", records)))
    assert found == ["3 monotasks ran at once on cores, which takes 2"]


def test_unfinished_stage_is_named(tmp_path):
    records = [record for record in valid_trace() if record["t"] != "stage_end"]
    records[-1]["records"] = len(records) - 1
    assert any("2 stages, 0 ended" in m for m in traces.violations(traces.read(write(tmp_path / "t", records))))


def test_truncated_trace_reads_to_its_last_complete_block(tmp_path):
    path = write(tmp_path / "t", valid_trace(), blocks=2)
    path.write_bytes(path.read_bytes()[:-5])
    assert traces.read(path).records >= 7
    assert traces.violations(traces.read(path)) != []


def test_work_after_a_failure_is_exempt(tmp_path):
    records = valid_trace()
    records[9] |= {"outcome": "failed"}
    records[8] |= {"service_ns": 11_000_000}
    assert traces.violations(traces.read(write(tmp_path / "t", records))) == []
