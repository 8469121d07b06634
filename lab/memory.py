"""Keeps a virtual machine's free memory from going back to its host.

A guest kernel with free page reporting tells the host which pages are free, and the host
takes them away. The next process that touches them pays for their return: 4 to 9 ms per
MB where it was measured, thirty times an ordinary page fault, and more than most queries
spend on the bytes. Which process pays depends on how long its pages were free, not on its own
work. So for a benchmark that starts processes, `kept` turns reporting off, brings free memory
back once, and turns reporting on again at the end.

Some such machines also write memory that was unused for a while to a swap of the host (DAMON with
the action `pageout`); `kept` turns that off as well.

On a machine that does neither, nothing changes. Changing the settings needs root. `kept` yields the
state for the results: `kept`, `not reported`, or why neither.
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
# Memory that is not touched, for other processes.
LEFT_BYTES = 1 << 30


def free_bytes() -> int:
    """Returns memory that is not in use, not even as page cache."""
    for line in MEMINFO.read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    return 0


def touch(size: int) -> None:
    """Writes one byte to each page of `size` fresh bytes, in a child process that then exits."""
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
    """Sets the smallest order of pages that is reported to the largest that the kernel accepts.

    Returns the previous value, or None if it cannot be changed. The largest order exceeds that of any
    block of free pages, so none is reported.
    """
    before = parameter.read_text().strip()
    for order in range(20, 9, -1):
        try:
            parameter.write_text(str(order))
            return before
        except PermissionError:
            return None
        except OSError:  # larger than the kernel's maximum
            continue
    return None


@contextlib.contextmanager
def not_paged_out(monitors: Path = DAMON) -> Iterator[None]:
    """Stops the kernel's monitors that page out cold memory, for the duration of a `with`."""
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
def kept(max_bytes: int = 16 << 30, parameter: Path = ORDER, monitors: Path = DAMON) -> Iterator[str]:
    """Keeps memory that a process frees available to the next one, for the duration of a `with`."""
    with not_paged_out(monitors):
        if not parameter.exists():
            yield "not reported"
            return
        before = switch_off(parameter)
        if before is None:
            yield f"reported as free to the host: {parameter} may not be changed"
            return
        try:
            touch(min(max_bytes, max(0, free_bytes() - LEFT_BYTES)))
            yield "kept"
        finally:
            parameter.write_text(before)
