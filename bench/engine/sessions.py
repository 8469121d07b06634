"""Engines as processes that answer one query per line.

Protocol: a process is started on a folder of `TABLE.parquet` files. Each line of its standard input
is the path of a file with one query. The process runs it, holds the whole answer in memory, and
writes one JSON line: `{"ms": float, "rows": int}` or `{"error": text}`. `ms` runs from the query's
text to its last row. The peak memory is that of the whole process, from the kernel when it ends.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.binary import ROOT, example


def command(engine: str, data: Path) -> list[str]:
    """Returns the command that starts an engine's process."""
    return {
        "pellucid": [str(example()), "--monotasks", str(data)],
        "datafusion": [str(example()), str(data)],
        "duckdb": [sys.executable, "-B", "-m", "bench.engine.duckdb_session", str(data)],
        "polars": [sys.executable, "-B", "-m", "bench.engine.polars_session", str(data)],
    }[engine]


ENGINES = ("pellucid", "datafusion", "duckdb", "polars")


class EngineError(Exception):
    """A query that an engine refused, or the end of its process."""


@dataclass
class Answer:
    """The answer of a session to one query."""

    ms: float
    rows: int


class Session:
    """An engine's process. Use it in a `with`, so that it ends with its caller."""

    def __init__(self, engine: str, data: Path, *options: str):
        self.engine = engine
        self.peak_bytes: int | None = None
        self.core_s: float | None = None
        self.process = subprocess.Popen([*command(engine, data), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def ask(self, query: Path) -> Answer:
        """Runs one query; raises `EngineError` with the engine's message."""
        self.process.stdin.write(f"{query}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EngineError(f"{self.engine} ended on {query.name} (exit {self.process.wait()})")
        said = json.loads(line)
        if "error" in said:
            raise EngineError(f"{self.engine} on {query.name}: {said['error']}")
        return Answer(said["ms"], said["rows"])

    def close(self) -> None:
        """Waits for the process to end, and takes its peak memory and core time from the kernel.

        The peak includes the few MB of this process that the other was forked from, so this one must stay small.
        """
        if self.core_s is not None:
            return
        self.process.stdin.close()
        self.process.stdout.close()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.peak_bytes, self.core_s = usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime
