"""Results as lines: each finished case is appended, so that a run that stops goes on where it was.

A line is `{"suite", "case", "build", "at", "machine", "memory", "others_cores", …}`; `case` says what
was asked and `build` of which binary, so that both together are its identity. `runs` says how
many times it was measured, where that can be chosen; `memory` whether freed memory stayed with the
machine (`lab/memory.py`). The newest line of a case counts; older
builds stay as history.
"""

import contextlib
import datetime
import hashlib
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from bench.sessions import core_seconds, example
from tests.binary import ROOT, binary

FOLDER = ROOT / "bench" / "results"
# Core time of processes that are not the run's own, as cores; above it a line is marked as noisy.
NOISE_CORES = 0.1
# Lines from before this time do not count as done: set to measure again what this build has.
since = ""
# What `lab.memory.kept` said of the memory that this run's processes get.
memory: str | None = None


def now() -> str:
    """A line's time."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@cache
def build() -> str:
    """Of the binaries that the suites beside peers measure."""
    return fingerprint([binary(), example()])


def fingerprint(programs: Iterable[Path]) -> str:
    """Names programs by what they are, not by when they were made."""
    digest = hashlib.sha256()
    for path in programs:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


@cache
def machine() -> str:
    """The machine in one line."""
    model = "unknown processor"
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def load(suite: str) -> list[dict]:
    """All lines of a suite, oldest first."""
    path = FOLDER / f"{suite}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def made(suite: str, by: str) -> list[dict]:
    """The lines of a build, from `since` on."""
    return [line for line in load(suite) if line["build"] == by and line["at"] >= since]


def done(suite: str, case: dict, runs: int = 1) -> bool:
    """Whether this build has a line for the case, of at least so many runs."""
    return any(line["case"] == case and line.get("runs", 1) >= runs for line in made(suite, build()))


def append(suite: str, case: dict, found: dict, by: str | None = None) -> None:
    """Adds a finished case; `by` is the fingerprint of what was measured, if not of the usual binaries."""
    line = {
        "suite": suite,
        "case": case,
        "build": by or build(),
        "machine": machine(),
        "memory": memory,
        "at": now(),
        **found,
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{suite}.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")


def _busy_s() -> float:
    """Core time of the whole machine, stolen time included: that is noise as well."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own_s(pids: list[int]) -> float:
    """Core time of this process, of those that it has waited for, and of these."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + sum(core_seconds(pid) for pid in pids)


@contextlib.contextmanager
def quiet(pids: list[int] = ()) -> Iterator[Callable[[], float]]:
    """Measures how many cores others used meanwhile; ask after the `with` has ended."""
    before = time.monotonic(), _busy_s(), _own_s(pids)
    found: list[float] = []
    yield lambda: found[0]
    elapsed = time.monotonic() - before[0]
    found.append(max(0.0, round((_busy_s() - before[1] - (_own_s(pids) - before[2])) / elapsed, 3)))
