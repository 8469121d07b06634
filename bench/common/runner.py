"""Runs the missing cases of a suite: options, progress, the time limit, and how a run ends."""

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.common import results
from harness.stores.services import Missing
from lab.disks import LabError

# Reasons outside of the benchmark's code that end a run.
FAILURES = (LabError, Missing, OSError, RuntimeError, subprocess.SubprocessError)


def say(text: str) -> None:
    """Reports progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def options(name: str, doc: str) -> argparse.ArgumentParser:
    """Returns the options of every suite; `name` is its module below `bench`, `doc` that module's docstring."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=doc.split("\n")[0])
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS", help="start no case that may end later")
    return parser


class TimeLimit:
    """The time limit of a run."""

    def __init__(self, limit_s: float):
        self.until = time.monotonic() + limit_s
        self.longest_s = 0.0
        self.reported = False

    def admits(self, expected_s: float | None = None) -> bool:
        """Returns whether a case may start, and reports the first that may not. By default, it takes as long as the longest one."""
        if time.monotonic() + (self.longest_s if expected_s is None else expected_s) <= self.until:
            return True
        if not self.reported:
            say("time limit reached; run the same command to continue")
        self.reported = True
        return False

    @contextlib.contextmanager
    def case(self) -> Iterator[Callable[[], float]]:
        """Times a case; the yielded function returns its seconds so far."""
        begun = time.monotonic()
        yield lambda: time.monotonic() - begun
        self.longest_s = max(self.longest_s, time.monotonic() - begun)


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Makes a folder beside the results for the duration of a `with`."""
    folder = results.FOLDER / f".{name}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def carry_out(name: str, run: Callable[[], object], page: Callable[[], int]) -> int:
    """Runs a suite, then makes its page. Returns the exit code."""
    try:
        run()
    except FAILURES as error:
        say(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped; run the same command to continue")
        return 130
    return page()
