"""Takes the lab down when the process that set it up is gone, even after kill -9.

`watch()` starts a guard process that waits for the end of its standard input, which only the
death of its parent can bring. It then removes everything that has lost its owner: disks, groups of
cores, links. A terminal's Ctrl-C does not reach it. It is the last resort: a `with` removes what
it made on any other exit.

As a command, `python3 -m lab.guard` removes what earlier processes left behind.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from lab import cores, disks, hdd, links


def clean() -> list[str]:
    """Removes everything in the lab that has lost its owner, and returns the names."""
    # Groups first: their processes may use the disks.
    return [*cores.clean(), *links.clean(), *hdd.clean(), *disks.clean(stale_only=True)]


@contextlib.contextmanager
def watch() -> Iterator[None]:
    """Takes the lab down if this process dies within the `with`.

    Also makes SIGTERM leave through `finally`, as Ctrl-C does.
    """
    clean()
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-B", "-m", "lab.guard", "--wait", str(os.getpid())]
    guard = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, start_new_session=True)
    assert guard.stdin
    try:
        yield
    finally:
        guard.kill()
        guard.stdin.close()
        guard.wait()


def main() -> int:
    """Cleans up; with `--wait`, only once the owner is gone."""
    if sys.argv[1:2] == ["--wait"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdin.buffer.read()
        # The pipe closes a moment before the owner is gone.
        for _ in range(100):
            if not disks.alive(int(sys.argv[2])):
                break
            time.sleep(0.05)
    for name in clean():
        print(f"removed {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
