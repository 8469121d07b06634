"""Reads a trace as anyone could, from `docs/trace-format.md` alone, and checks its invariants.

This is a second reader on purpose: a fault that writer and reader of the product share
shows here. It knows whole traces of the engine only.
"""

import io
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

# The adaptive controller's ceilings (DESIGN, concurrency); a core runs one monotask.
MOST_AT_ONCE = {"disk": 8, "store": 64, "network": 64}
# Clocks are read on two threads, one after the other: an end may be noted this much late.
CLOCK_SLACK_NS = 100_000


@dataclass
class Trace:
    """Registered entities by index, and the events."""

    header: dict = field(default_factory=dict)
    records: int = 0
    of: dict[str, list[dict]] = field(default_factory=lambda: defaultdict(list))

    def kind(self, monotask: dict) -> str:
        """The kind of resource that a monotask used."""
        return self.of["resource"][monotask["r"]]["kind"]

    def monotasks(self, *kinds: str) -> list[dict]:
        """Monotasks on resources of these kinds."""
        return [m for m in self.of["monotask"] if self.kind(m) in kinds]

    def total(self, name: str, *kinds: str) -> int:
        """Sum of a field over the monotasks that have it."""
        return sum(m.get(name, 0) for m in self.monotasks(*kinds))

    def core_ns(self) -> int:
        """Core time of the job: service time of its compute monotasks."""
        return self.total("service_ns", "cpu")


def lines(path: Path):
    """The trace's records in order. A cut last block ends it without a word."""
    with open(path, "rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        try:
            for line in io.TextIOWrapper(stream, encoding="utf-8"):
                yield json.loads(line)
        except (zstandard.ZstdError, json.JSONDecodeError):
            return


def read(path: Path) -> Trace:
    """A trace in memory."""
    trace = Trace()
    for record in lines(path):
        trace.records += 1
        kind = record.pop("t")
        if kind == "header":
            trace.header = record
        else:
            trace.of[kind].append(record)
    return trace


def broken(trace: Trace) -> list[str]:
    """Every invariant of a complete trace that does not hold, in words."""
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
    found += _times(trace) + _parts(trace) + _concurrency(trace)
    return found


def _times(trace: Trace) -> list[str]:
    """Submitted, admitted, queued, run, ended: in that order."""
    found = []
    stage_ended = {end["stage"]: end["ended_ns"] for end in trace.of["stage_end"]}
    job_ended = {end["job"]: end["ended_ns"] for end in trace.of["job_end"]}
    stages, multitasks = trace.of["stage"], trace.of["multitask"]
    for index, stage in enumerate(stages):
        if stage["submitted_ns"] + CLOCK_SLACK_NS < trace.of["job"][stage["job"]]["submitted_ns"]:
            found.append(f"stage {index} was submitted before its job")
        for before in stage.get("after", []):
            if stage_ended.get(before, 0) > stage["submitted_ns"] + CLOCK_SLACK_NS:
                found.append(f"stage {index} could run before stage {before} had ended")
        if stage_ended.get(index, 0) > job_ended.get(stage["job"], 0) + CLOCK_SLACK_NS:
            found.append(f"stage {index} ended after its job")
    for index, multitask in enumerate(multitasks):
        if multitask["admitted_ns"] + CLOCK_SLACK_NS < stages[multitask["stage"]]["submitted_ns"]:
            found.append(f"multitask {index} was admitted before its stage was submitted")
    for index, monotask in enumerate(trace.of["monotask"]):
        multitask = multitasks[monotask["m"]]
        if monotask["queued_ns"] + CLOCK_SLACK_NS < multitask["admitted_ns"]:
            found.append(f"monotask {index} was queued before its multitask was admitted")
        ended = monotask["queued_ns"] + monotask["queue_ns"] + monotask["service_ns"]
        if ended > stage_ended.get(multitask["stage"], 0) + CLOCK_SLACK_NS:
            found.append(f"monotask {index} ended after its stage")
    return found


def _parts(trace: Trace) -> list[str]:
    """The parts of a monotask's time are no longer than the whole; its phase fits its resource."""
    found = []
    for index, monotask in enumerate(trace.of["monotask"]):
        kind, phase = trace.kind(monotask), monotask["p"]
        if (kind == "cpu") != (phase == "compute"):
            found.append(f"monotask {index} of phase {phase} ran on a resource of kind {kind}")
        parts = sum(monotask.get(part, 0) for part in ("decode_ns", "operator_ns", "encode_ns"))
        whole = monotask["service_ns"] + CLOCK_SLACK_NS
        for name, value in (("decode, operators and encode", parts), ("not_split_ns", monotask.get("not_split_ns", 0))):
            if value > whole:
                found.append(f"monotask {index}: {name} took {value} ns of {monotask['service_ns']}")
        if kind != "cpu" and monotask.get("outcome", "ok") == "ok" and "bytes" not in monotask:
            found.append(f"monotask {index} on a {kind} does not say how many bytes")
    return found


def _concurrency(trace: Trace) -> list[str]:
    """Nothing runs above its resource's concurrency."""
    found = []
    events = defaultdict(list)
    for monotask in trace.of["monotask"]:
        started = monotask["queued_ns"] + monotask["queue_ns"]
        events[monotask["r"]] += [(started, 1), (started + monotask["service_ns"], -1)]
    for index, of_resource in events.items():
        resource = trace.of["resource"][index]
        most = max(resource.get("concurrency") or 1, MOST_AT_ONCE.get(resource["kind"], 0))
        running = peak = 0
        for _, change in sorted(of_resource):  # an end sorts before a start of the same instant
            running += change
            peak = max(peak, running)
        if peak > most:
            found.append(f"{peak} monotasks ran at once on {resource['name']}, which takes {most}")
    return found
