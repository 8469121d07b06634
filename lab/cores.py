"""Limits cores to any number, pinned or by quota, and calibrates them. The limit ends on any exit but kill -9 (then by `lab.guard`).

    with cores.group() as group:
        group.set(1.5)
        group.calibrate()
        subprocess.run([*group.prefix(), "pellucid", "sql", "--cores", str(group.threads), …])

Whole numbers below the machine's are pinned (`taskset`). Fractions are a quota of the kernel's
scheduler (cgroup v1 `cpu.cfs_quota_us`) in periods of 10 ms, so that a thread is never
stopped for longer than about a monotask takes. Every command runs in the group, limited or not, so
that leftover processes can be found and ended. The group is named after its owner's process;
`clean` removes groups whose owner is gone. The group needs root and cgroup v1's cpu controller;
`canary` needs neither.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.disks import LabError, alive
from lab.rates import TOLERANCE, off_by

CPU = Path("/sys/fs/cgroup/cpu")
NAME = "pellucid-lab-"
PERIOD_US = 10_000
# The share of a core that a computing thread gets on an idle machine; below it, the machine is busy.
CANARY = 0.9
CANARY_LOOKS = 3


def missing() -> str | None:
    """Returns why this machine cannot limit cores; None if it can."""
    if os.geteuid() != 0:
        return "not root"
    if not (CPU / "cpu.cfs_quota_us").exists() and not (CPU / "cpu.shares").exists():
        return f"no cgroup v1 cpu controller at {CPU}"
    return None


def spin(seconds: float, allowed: set[int] | None = None, procs: Path | None = None) -> tuple[int, int]:
    """Starts a process that computes for this long and reports its share of a core.

    Returns its pid and a pipe, for `shares`. `procs` is the `cgroup.procs` of the group to run in.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if procs:
            procs.write_text(str(os.getpid()))
        if allowed:
            os.sched_setaffinity(0, allowed)
        start, used = time.monotonic(), time.process_time()
        while time.monotonic() - start < seconds:
            pass
        got = (time.process_time() - used) / (time.monotonic() - start)
        os.write(writer, f"{got:.6f}".encode())
    finally:
        os._exit(0)


def shares(spinning: list[tuple[int, int]]) -> list[float]:
    """Returns the shares of the spinning processes, after they have ended."""
    found = []
    for child, reader in spinning:
        with os.fdopen(reader, "rb") as pipe:
            found.append(float(pipe.read() or 0))
        os.waitpid(child, 0)
    return found


def canary(seconds: float = 0.1) -> float:
    """Returns the smallest share of a core that a computing thread gets, with one thread on each core.

    Below `CANARY` another process computes (or the machine's host does), and current runs are void.
    A low share is measured again: the kernel's own work after a run (freeing pages, writing
    back) is over by then, and another process's is not.
    """
    for _ in range(CANARY_LOOKS):
        share = min(shares([spin(seconds, {core}) for core in os.sched_getaffinity(0)]))
        if share >= CANARY:
            break
    return share


@dataclass
class Group:
    """A group of processes with a number of cores; None for all of the machine's."""

    path: Path
    cores: float | None = None
    measured: float | None = None

    @property
    def threads(self) -> int:
        """Returns how many threads can use these cores."""
        return math.ceil(self.cores or len(os.sched_getaffinity(0)))

    @property
    def how(self) -> str:
        """Returns how the cores are limited, for results."""
        if self.cores is None or self.cores == len(os.sched_getaffinity(0)):
            return "the machine's"
        return "pinned" if self.cores == int(self.cores) else f"quota in {PERIOD_US // 1000} ms"

    def _allowed(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))[: self.threads]

    def set(self, cores: float | None) -> None:
        """Sets the number of cores; raises `LabError` if the machine has fewer."""
        available = len(os.sched_getaffinity(0))
        if cores is not None and not 0 < cores <= available:
            raise LabError(f"cannot use {cores:g} cores: this machine has {available}")
        self.cores, self.measured = cores, None
        quota = -1 if cores is None or cores == int(cores) else int(cores * PERIOD_US)
        (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self.path / "cpu.cfs_quota_us").write_text(str(quota))

    def prefix(self) -> list[str]:
        """Returns the arguments to put before a command that is to run on these cores."""
        enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs")]
        return [*enter, "taskset", "-c", ",".join(map(str, self._allowed()))]

    def calibrate(self, seconds: float = 0.5) -> float:
        """Measures the cores; raises `LabError` if they are more than 5 % off."""
        procs = self.path / "cgroup.procs"
        self.measured = sum(shares([spin(seconds, {core}, procs) for core in self._allowed()]))
        if off_by(requested := self.cores or self.threads, self.measured) > TOLERANCE:
            raise LabError(f"requested {requested:g} cores, measured {self.measured:.2f}: the machine is busy")
        return self.measured

    def remove(self) -> None:
        """Kills the group's processes by pid and removes the group."""
        for _ in range(100):
            with contextlib.suppress(FileNotFoundError):
                for pid in (self.path / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                self.path.rmdir()
            if not self.path.exists():
                return
            time.sleep(0.02)
        raise LabError(f"cannot remove {self.path}: its processes do not exit")


def make() -> Group:
    """Makes a group owned by this process; raises `LabError` if the machine cannot."""
    if why_not := missing():
        raise LabError(f"cannot limit cores: {why_not}")
    path = CPU / f"{NAME}{os.getpid()}"
    path.mkdir(exist_ok=True)
    return Group(path)


@contextlib.contextmanager
def group() -> Iterator[Group]:
    """Makes a group for the duration of a `with`."""
    made = make()
    try:
        yield made
    finally:
        made.remove()


def clean() -> list[str]:
    """Removes groups whose owner is gone, and returns their names."""
    removed = []
    for path in sorted(CPU.glob(f"{NAME}*")):
        owner = path.name.removeprefix(NAME)
        if owner.isdigit() and not alive(int(owner)):
            Group(path).remove()
            removed.append(path.name)
    return removed
