"""Reads traces by `docs/trace-format.md` alone and checks their invariants.

A second, independent reader, which shows faults that the product's writer and reader share. It reads complete traces of the
engine only. Numbers in brackets are those of the invariants in that page.
"""

import io
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import zstandard


@dataclass
class Trace:
    """The header, the registered entities by index, and the events of a trace."""

    header: dict = field(default_factory=dict)
    records: int = 0
    of: dict[str, list[dict]] = field(default_factory=lambda: defaultdict(list))

    def kind(self, monotask: dict) -> str:
        """Returns the kind of resource that a monotask used."""
        return self.of["resource"][monotask["resource"]]["kind"]

    def monotasks(self, *kinds: str) -> list[dict]:
        """Returns the monotasks on resources of these kinds."""
        return [m for m in self.of["monotask"] if self.kind(m) in kinds]

    def total(self, name: str, *kinds: str) -> int:
        """Sums a field over the monotasks that have it."""
        return sum(m.get(name, 0) for m in self.monotasks(*kinds))

    def core_ns(self) -> int:
        """Returns the job's core time: the service time of its compute monotasks."""
        return self.total("service_ns", "cpu")


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the trace's records in order. Ends silently at a truncated last block."""
    with open(path, "rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        try:
            for line in io.TextIOWrapper(stream, encoding="utf-8"):
                yield json.loads(line)
        except (zstandard.ZstdError, json.JSONDecodeError):
            return


def read(path: Path) -> Trace:
    """Reads a trace into memory."""
    trace = Trace()
    for record in lines(path):
        trace.records += 1
        kind = record.pop("t")
        if kind == "header":
            trace.header = record
        else:
            trace.of[kind].append(record)
    return trace


def violations(trace: Trace) -> list[str]:
    """Describes every violated invariant of a complete trace."""
    found = []
    if not trace.header.get("format", "").startswith("pellucid.trace/1."):
        found.append(f"the header's format is {trace.header.get('format')!r}")
    ends = trace.of["end"]
    if len(ends) != 1 or ends[0]["records"] != trace.records - 1:
        found.append(f"{trace.records} records, but the end says {ends}")
    if len(trace.of["job_end"]) != len(trace.of["job"]):
        found.append(f"{len(trace.of['job'])} jobs, {len(trace.of['job_end'])} ended")
    if len(trace.of["stage_end"]) != len(trace.of["stage"]):
        found.append(f"{len(trace.of['stage'])} stages, {len(trace.of['stage_end'])} ended")
    found += _times(trace) + _parts(trace) + _operators(trace) + _stacks(trace) + _concurrency(trace)
    return found


def _times(trace: Trace) -> list[str]:
    """Checks the order of times: submitted, admitted, queued, run, ended (invariants 5 and 6)."""
    found = []
    stage_end = {end["stage"]: end for end in trace.of["stage_end"]}
    job_end = {end["job"]: end for end in trace.of["job_end"]}
    jobs, stages, multitasks = trace.of["job"], trace.of["stage"], trace.of["multitask"]
    for index, stage in enumerate(stages):
        if stage["submitted_ns"] < jobs[stage["job"]]["submitted_ns"]:
            found.append(f"stage {index} was submitted before its job")
        ended, end = stage_end.get(index), job_end.get(stage["job"])
        if _succeeded(ended) and _succeeded(end) and ended["ended_ns"] > end["ended_ns"]:
            found.append(f"stage {index} ended after its job")
    for index, multitask in enumerate(multitasks):
        stage = stages[multitask["stage"]]
        if multitask["admitted_ns"] < stage["submitted_ns"]:
            found.append(f"multitask {index} was admitted before its stage was submitted")
        unfinished = [b for b in stage.get("after", []) if b not in stage_end or stage_end[b]["ended_ns"] > multitask["admitted_ns"]]
        found += [f"multitask {index} was admitted before stage {before} had ended" for before in unfinished]
    for index, monotask in enumerate(trace.of["monotask"]):
        multitask = multitasks[monotask["multitask"]]
        if monotask["queued_ns"] < multitask["admitted_ns"]:
            found.append(f"monotask {index} was queued before its multitask was admitted")
        end = stage_end.get(multitask["stage"])
        if _succeeded(end) and sum(monotask[part] for part in ("queued_ns", "queue_ns", "service_ns")) > end["ended_ns"]:
            found.append(f"monotask {index} ended after its stage")
    return found


def _succeeded(end: dict | None) -> TypeGuard[dict]:
    """Returns whether something ended successfully: work that continues after a failure is exempt."""
    return end is not None and end.get("outcome", "ok") == "ok"


def _operators(trace: Trace) -> list[str]:
    """Checks operators against each other and against the core time of their stage (invariant 13)."""
    found: list[str] = []
    stages: dict[tuple[int, int], int] = {}
    used: dict[int, int] = defaultdict(int)
    for operator in trace.of["operator"]:
        stage, number = operator["stage"], operator["operator"]
        job = trace.of["stage"][stage]["job"]
        found += [f"operator {number}: its input {i} is not before it" for i in operator.get("inputs", []) if stages.get((job, i)) != stage]
        if (job, number) in stages:
            found.append(f"operator {number} is in job {job} twice")
        if operator["max_cpu_ns"] > operator["cpu_ns"]:
            found.append(f"operator {number}: max_cpu_ns is more than cpu_ns")
        if sum(part["cpu_ns"] for key in ("columns", "expressions") for part in operator.get(key, [])) > operator["cpu_ns"]:
            found.append(f"operator {number}: its columns and expressions took more than cpu_ns")
        stages[job, number] = stage
        used[stage] += operator["cpu_ns"]
    # The clock of operators and that of the kernel may differ in each monotask.
    computed: dict[int, int] = defaultdict(int)
    differ: dict[int, int] = defaultdict(lambda: 1_000_000)
    for monotask in trace.monotasks("cpu"):
        stage = trace.of["multitask"][monotask["multitask"]]["stage"]
        computed[stage] += monotask.get("cpu_ns", 0)
        differ[stage] += 50_000
    return found + [
        f"the operators of stage {stage} used {used_ns} ns of {computed[stage]} ns"
        for stage, used_ns in used.items()
        if used_ns > computed[stage] * 1.01 + differ[stage]
    ]


def _stacks(trace: Trace) -> list[str]:
    """Checks that sampled stacks have functions, and operators of their stage (invariant 14)."""
    operators = {(o["stage"], o["operator"]) for o in trace.of["operator"]}
    recorded = {stage for stage, _ in operators}
    found = []
    for stack in trace.of["stack"]:
        stage, number = stack["stage"], stack.get("operator")
        if stack["count"] < 1 or not stack["frames"]:
            found.append(f"a stack of stage {stage} has no count or no functions")
        if number is not None and stage in recorded and (stage, number) not in operators:
            found.append(f"a stack of stage {stage} is of operator {number}")
    return found


def _parts(trace: Trace) -> list[str]:
    """Checks that a monotask's phase fits its resource, and that its parts do not exceed the whole (7 and 8)."""
    found = []
    for index, monotask in enumerate(trace.of["monotask"]):
        kind, phase, service_ns = trace.kind(monotask), monotask["phase"], monotask["service_ns"]
        if (kind == "cpu") != (phase == "compute"):
            found.append(f"monotask {index} of phase {phase} ran on a resource of kind {kind}")
        if kind == "cpu" and monotask.get("device_bytes"):
            found.append(f"monotask {index} on a core moved {monotask['device_bytes']} bytes of a device")
        # Core time is of a different clock, hence the tolerance of 1 % and 1 ms.
        within_ns = service_ns * 1.01 + 1_000_000
        if sum(monotask.get(part, 0) for part in ("decode_ns", "operator_ns", "encode_ns")) > within_ns:
            found.append(f"monotask {index}: decode, operators and encode took longer than its {service_ns} ns")
        if monotask.get("not_split_ns", 0) > within_ns:
            found.append(f"monotask {index}: not_split_ns is more than its {service_ns} ns")
        if monotask.get("cpu_ns", 0) > within_ns:
            found.append(f"monotask {index} used {monotask['cpu_ns']} ns of core in {service_ns} ns")
        if kind != "cpu" and _succeeded(monotask) and "bytes" not in monotask:
            found.append(f"monotask {index} on a {kind} does not say how many bytes")
    return found


def _concurrency(trace: Trace) -> list[str]:
    """Checks that no resource exceeds its concurrency (9), and that each core runs one monotask."""
    found = []
    events: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for monotask in trace.of["monotask"]:
        started = monotask["queued_ns"] + monotask["queue_ns"]
        events[monotask["resource"]] += [(started, 1), (started + monotask["service_ns"], -1)]
    for index, of_resource in events.items():
        resource = trace.of["resource"][index]
        running = peak = 0
        for _, change in sorted(of_resource):  # at the same instant, an end sorts before a start
            running += change
            peak = max(peak, running)
        if peak > resource["concurrency"]:
            found.append(f"{peak} monotasks ran at once on {resource['name']}, which takes {resource['concurrency']}")
        if resource["kind"] == "cpu" and resource["concurrency"] != resource["capacity"]:
            found.append(f"{resource['capacity']} cores take {resource['concurrency']} monotasks at once")
    return found


def write(path: Path, records: list[dict[str, Any]], blocks: int = 3) -> Path:
    """Writes a trace as the product does: blocks of whole lines, one zstd frame each."""
    step = -(-len(records) // blocks)
    with open(path, "wb") as file:
        for at in range(0, len(records), step):
            block = "".join(json.dumps(record) + "\n" for record in records[at : at + step])
            file.write(zstandard.ZstdCompressor().compress(block.encode()))
    return path
