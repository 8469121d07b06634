"""Memory that is there: on a virtual machine, free memory may have gone back to the host.

A guest kernel with free page reporting tells the host which pages are free, and the host
takes them away. The next process that touches them pays for their return: 4 to 9 ms for each
MB where it was tried, thirty times what a page fault costs otherwise, and more than most
queries do with the bytes. Which process pays depends on how long its pages lay
free, not on what it does. So for a benchmark that starts processes, `kept` switches the
reporting off, fetches what is free back once, and switches it on again at the end.

Some such machines also write memory that nobody touched for a while out to a swap that is the
host's (DAMON with the action `pageout`); that is switched off meanwhile, too.

On a machine that does neither this changes nothing. Needs root where it does; `kept`
says how things stand, for the results: `kept`, `not reported`, or why neither.
"""

import contextlib
import mmap
import os
import signal
from collections.abc import Iterator
from pathlib import Path

ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")
MEMINFO = Path("/proc/meminfo")
# Left alone when free memory is touched, for everyone else.
LEFT_BYTES = 1 << 30


def free_bytes() -> int:
    """Memory that nothing uses, not even as page cache."""
    for line in MEMINFO.read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    return 0


def touch(size: int) -> None:
    """Writes a byte to each page of so many fresh bytes, in a process of its own that then ends."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(Exception):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            at_once = 64 << 20
            held = []
            while size > 0:
                piece = mmap.mmap(-1, min(size, at_once), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                for page in range(0, len(piece), mmap.PAGESIZE):
                    piece[page] = 1
                held.append(piece)
                size -= at_once
        os._exit(0)
    os.waitpid(child, 0)


def switch_off(parameter: Path) -> str | None:
    """Sets the least order of pages that is reported to the highest that the kernel takes.

    Gives back what was set before, or None where it may not be changed. The highest is one more
    than any block of free pages has, so that none is reported.
    """
    before = parameter.read_text().strip()
    for order in range(20, 9, -1):
        try:
            parameter.write_text(str(order))
            return before
        except PermissionError:
            return None
        except OSError:  # more than there are
            continue
    return None


@contextlib.contextmanager
def not_paged_out(monitors: Path = DAMON) -> Iterator[None]:
    """While this lasts, no monitor of the kernel's writes out memory for being cold."""
    stopped = []
    with contextlib.suppress(PermissionError):
        for state in sorted(monitors.glob("*/state")):
            if state.read_text().strip() == "on":
                state.write_text("off")
                stopped.append(state)
    try:
        yield
    finally:
        for state in stopped:
            state.write_text("on")


@contextlib.contextmanager
def kept(most_bytes: int = 16 << 30, parameter: Path = ORDER, monitors: Path = DAMON) -> Iterator[str]:
    """While this lasts, memory that a process frees is there for the next one."""
    with not_paged_out(monitors):
        if not parameter.exists():
            yield "not reported"
            return
        before = switch_off(parameter)
        if before is None:
            yield f"reported as free to the host: {parameter} may not be changed"
            return
        try:
            touch(min(most_bytes, max(0, free_bytes() - LEFT_BYTES)))
            yield "kept"
        finally:
            parameter.write_text(before)
