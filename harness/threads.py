"""Counters of each thread of a running process, from /proc, by the thread's name.

`core-N` are the cores' worker threads and `disk-NAME-N` those that do a disk's I/O. The counters are the kernel's:
`read_bytes` of `io` (bytes fetched from a device for the thread), delayacct_blkio_ticks of `stat` (field 42; only with
`kernel.task_delayacct`), and run time of `schedstat`.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DELAYACCT = Path("/proc/sys/kernel/task_delayacct")


@dataclass
class Thread:
    """The last sample of a thread."""

    name: str
    read_bytes: int
    blocked_ticks: int
    cpu_ns: int


def parse_stat(text: str) -> tuple[str, int]:
    """Parses name and delayacct_blkio_ticks of a `stat` line; a name may contain blanks and brackets."""
    before, _, after = text.rpartition(")")
    return before.split("(", 1)[1], int(after.split()[39])


def parse_io(text: str) -> int:
    """Parses `read_bytes` of an `io` file."""
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("read_bytes:"))


def below(pid: int) -> set[int]:
    """Returns the descendants of a process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found - {pid}


def sample(pid: int, seen: dict[int, Thread]) -> None:
    """Updates `seen` with all current threads; keeps those that ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            folder = Path(f"/proc/{pid}/task/{tid}")
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name, blocked = parse_stat((folder / "stat").read_text())
                read = parse_io((folder / "io").read_text())
                cpu_ns = int((folder / "schedstat").read_text().split()[0])
                seen[int(tid)] = Thread(name, read, blocked, cpu_ns)


def watch(process: subprocess.Popen, every_s: float = 0.01) -> dict[int, Thread]:
    """Samples threads until the process has ended. Misses what a thread does after the last sample."""
    seen: dict[int, Thread] = {}
    while process.poll() is None:
        sample(process.pid, seen)
        time.sleep(every_s)
    return seen


@contextlib.contextmanager
def delay_accounting() -> Iterator[None]:
    """Switches the kernel's delay accounting on; restores it afterwards."""
    before = DELAYACCT.read_text()
    DELAYACCT.write_text("1")
    try:
        yield
    finally:
        DELAYACCT.write_text(before)


@contextlib.contextmanager
def real_time(name: str) -> Iterator[None]:
    """Makes threads of descendants whose names start with `name` real-time, within a twentieth of a second.

    When cores are contended, Linux (6.18 here) overstates the block I/O delays of fair-scheduled threads, by up to the time
    since boot: a thread that blocks may be taken off the run queue later, by another one, and the next delay then counts from
    an earlier start. Real-time threads are taken off at once. They do not wait for a core either, so their waits are the
    same on a busy machine.
    """
    ended = threading.Event()
    done: set[int] = set()

    def watch() -> None:
        while not ended.wait(0.05):
            for pid in below(os.getpid()):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    for tid in set(map(int, os.listdir(f"/proc/{pid}/task"))) - done:
                        if Path(f"/proc/{pid}/task/{tid}/comm").read_text().startswith(name):
                            os.sched_setscheduler(tid, os.SCHED_RR, os.sched_param(1))
                            done.add(tid)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def core_seconds(pid: int) -> float:
    """Returns the core time that a running process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
