"""Makes a large event log from a real one by copying its jobs, stages and tasks with new ids and later times.

`python -m bench.engine.event_logs SOURCE COPIES TARGET [--zstd]`. Events that occur once (the application's
start and end, its settings and executors) still occur once; SQL executions are not changed. zstd is
written as Spark does: a frame ends at every flush.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import zstandard

from harness.event_logs import lines_of

REPEATED = ("JobStart", "JobEnd", "StageSubmitted", "StageCompleted", "TaskStart", "TaskEnd")
IDS = ("Job ID", "Stage ID", "Task ID", "Parent IDs", "Stage IDs")
TIMES = ("Submission Time", "Completion Time", "Launch Time", "Finish Time", "Getting Result Time")
EVENT = re.compile(rb'^\{"Event":"SparkListener(\w+)"')
NUMBER = re.compile(rb'"(Job ID|Stage ID|Task ID|Submission Time|Completion Time|Launch Time|Finish Time)":(\d+)')
LISTS = re.compile(rb'"(Parent IDs|Stage IDs)":\[([\d,]*)\]')
# RDDs also have lists of parents, which are not changed.
RDDS = re.compile(rb'"RDD Info":\[.*?\],"Parent IDs"')
FRAME_BYTES = 8 << 20


class Template:
    """A line split at its ids and times, so that a copy is one join."""

    def __init__(self, line: bytes):
        self.parts: list[tuple[bytes, str, int]] = []
        at = 0
        found = [(m.start(2), m.end(2), m.group(1).decode(), m.group(2)) for m in NUMBER.finditer(line)]
        rdds = [m.span() for m in RDDS.finditer(line)]
        for match in LISTS.finditer(line):
            if not any(begin <= match.start() < end - 13 for begin, end in rdds):
                found += [(match.start(2) + m.start(), match.start(2) + m.end(), "Stage ID", m.group()) for m in re.finditer(rb"\d+", match.group(2))]
        for begin, end, kind, value in sorted(found):
            self.parts.append((line[at:begin], kind, int(value)))
            at = end
        self.rest = line[at:]

    def copy(self, shift: dict[str, int]) -> bytes:
        """Returns the line with its numbers shifted."""
        out = []
        for before, kind, value in self.parts:
            out += [before, str(value + shift[kind]).encode()]
        return b"".join([*out, self.rest])


def multiplied(source: Path, copies: int) -> Iterator[bytes]:
    """Yields the lines of the large log."""
    begin, repeated, end = [], [], []
    for line in lines_of(source):
        event = EVENT.match(line)
        if event and event.group(1).decode() in REPEATED:
            repeated.append(Template(line))
        elif event and event.group(1) == b"ApplicationEnd":
            end.append(line)
        else:
            begin.append(line)
    largest: dict[str, int] = {}
    earliest = None
    for template in repeated:
        for _, kind, value in template.parts:
            largest[kind] = max(largest.get(kind, 0), value)
            if kind.endswith("Time") and value:
                earliest = min(earliest or value, value)
    span = max(largest.get(kind, 0) for kind in TIMES) - (earliest or 0) + 1000
    yield from begin
    for copy in range(copies):
        ids = {kind: copy * (largest.get(kind, 0) + 1) for kind in IDS}
        shift = ids | dict.fromkeys(TIMES, copy * span)
        for template in repeated:
            yield template.copy(shift)
    move = span * (copies - 1)
    for line in end:
        yield re.sub(rb'"Timestamp":(\d+)', lambda m: b'"Timestamp":%d' % (int(m.group(1)) + move), line)


def write(source: Path, copies: int, target: Path, zstd: bool) -> None:
    """Writes the log, under a temporary name until it is complete."""
    part = target.with_name(target.name + ".part")
    compressor = zstandard.ZstdCompressor(level=1)
    with open(part, "wb") as file:
        block, size = [], 0
        for line in multiplied(source, copies):
            if not zstd:
                file.write(line)
                continue
            block.append(line)
            size += len(line)
            if size >= FRAME_BYTES:
                file.write(compressor.compress(b"".join(block)))
                block, size = [], 0
        if block:
            file.write(compressor.compress(b"".join(block)))
    part.replace(target)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine.event_logs", description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("copies", type=int)
    parser.add_argument("target", type=Path)
    parser.add_argument("--zstd", action="store_true", help="compress the log as Spark does")
    chosen = parser.parse_args()
    write(chosen.source, chosen.copies, chosen.target, chosen.zstd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
