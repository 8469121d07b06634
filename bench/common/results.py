"""Results as lines: each finished case is appended, so that a stopped run resumes.

A line is `{"suite", "case", "build", "at", "machine", "memory", "others_cores", …}`. `case` and `build`, the
fingerprint of the measured binaries, identify it. `runs` is the number of measurements, where that can be
chosen, and `memory` says whether freed memory stayed with the machine (`lab/memory.py`). The newest line of
a case counts; lines of older builds stay as history.
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

from harness.binary import ROOT, binary, example
from harness.threads import core_seconds

FOLDER = ROOT / "bench" / "results"
# A line is noisy if processes other than the run's own used more cores than this.
NOISE_CORES = 0.1
# Lines before this time do not count as done; `--again` sets it.
since = ""
# The state of this run's memory, from `lab.memory.kept`.
memory: str | None = None


def now() -> str:
    """Returns the time for a line."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@cache
def build() -> str:
    """Returns the fingerprint of the binaries that most suites measure."""
    return fingerprint([binary(), example()])


def fingerprint(programs: Iterable[Path]) -> str:
    """Returns a fingerprint of the content of programs."""
    digest = hashlib.sha256()
    for path in programs:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


@cache
def machine() -> str:
    """Describes the machine in one line."""
    model = "unknown processor"
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def load(suite: str) -> list[dict]:
    """Returns all lines of a suite, oldest first."""
    path = FOLDER / f"{suite}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def made(suite: str, by: str) -> list[dict]:
    """Returns the lines of a build, from `since` on."""
    return [line for line in load(suite) if line["build"] == by and line["at"] >= since]


def done(suite: str, case: dict, runs: int = 1, by: str | None = None) -> bool:
    """Returns whether a build, by default this one, has a line for the case with at least `runs` runs."""
    return any(line["case"] == case and line.get("runs", 1) >= runs for line in made(suite, by or build()))


def append(suite: str, case: dict, found: dict, by: str | None = None) -> None:
    """Appends a finished case. `by` is the fingerprint of the measured program, by default of the usual binaries."""
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
    """Returns the core time of the whole machine, including stolen time, which is noise as well."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own_s(pids: list[int]) -> float:
    """Returns the core time of this process, its finished children, and the processes `pids`."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + sum(core_seconds(pid) for pid in pids)


@contextlib.contextmanager
def quiet(pids: list[int] = ()) -> Iterator[Callable[[], float]]:
    """Measures the cores that other processes use during the `with`; call the yielded function after it."""
    before = time.monotonic(), _busy_s(), _own_s(pids)
    found: list[float] = []
    yield lambda: found[0]
    elapsed = time.monotonic() - before[0]
    found.append(max(0.0, round((_busy_s() - before[1] - (_own_s(pids) - before[2])) / elapsed, 3)))
