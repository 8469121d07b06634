"""Takes the lab down when the process that set it up is gone, even by kill -9.

`watch()` starts a process of its own that waits for the end of its standard input, which
only the death of the starter can bring, and then removes whatever has lost its owner: disks,
groups of cores, links. A terminal's Ctrl-C does not reach it. It is the last resort: a `with`
removes what it made on any other way out.

As a command, `python3 -m lab.guard` removes what earlier processes have left.
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
    """Removes whatever in the lab has lost its owner; says what."""
    # Groups first: processes in them may hold disks.
    return [*cores.clean(), *links.clean(), *hdd.clean(), *disks.clean(stale_only=True)]


@contextlib.contextmanager
def watch() -> Iterator[None]:
    """While this lasts, the death of this process takes the lab down.

    Also makes SIGTERM leave by way of `finally`, as Ctrl-C does.
    """
    clean()
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-B", "-m", "lab.guard", "--wait", str(os.getpid())]
    guard = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        guard.kill()
        guard.stdin.close()
        guard.wait()


def main() -> int:
    """`--wait`: not before the owner is gone."""
    if sys.argv[1:2] == ["--wait"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdin.buffer.read()
        # Its pipe is closed a moment before it is gone.
        for _ in range(100):
            if not disks.alive(int(sys.argv[2])):
                break
            time.sleep(0.05)
    for name in clean():
        print(f"removed {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
