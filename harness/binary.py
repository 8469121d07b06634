"""Runs the `pellucid` binary and makes benchmark data with it."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Signs of a panic, which no message to a user may contain: its text, or a Rust type's name around an error.
PANIC = re.compile(r"panicked at|RUST_BACKTRACE|stack backtrace|called `(Option|Result)::")
# Exit codes of a command that failed, and of one that was called wrongly.
FAILED, USAGE = 1, 2
# Scale factor of the TPC-H and TPC-DS data.
SCALE = float(os.environ.get("PELLUCID_SCALE", "1"))
# Far above what any command needs on two slow cores: a command that exceeds it hangs.
TIMEOUT_S = 600


def binary() -> Path:
    """Returns the path of the binary: `PELLUCID_BIN`, or the release build."""
    if path := os.environ.get("PELLUCID_BIN"):
        return Path(path).resolve()
    return built() / "release" / "pellucid"


def example() -> Path:
    """Returns the path of the built `crates/engine/examples/plain.rs`: plain DataFusion, or Pellucid with `--monotasks`."""
    return Path(os.environ.get("PELLUCID_PLAIN") or binary().parent / "examples" / "plain")


def built() -> Path:
    """Returns the build folder by the Makefile's rule: `CARGO_TARGET_DIR`, else the cache folder if it exists."""
    if path := os.environ.get("CARGO_TARGET_DIR"):
        return Path(path).resolve()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid" / "target"
    return cache if cache.is_dir() else ROOT / "target"


def data_home() -> Path:
    """Returns the folder of generated data and cached answers: `PELLUCID_DATA`, or `data/` (ignored by git)."""
    return Path(os.environ.get("PELLUCID_DATA") or ROOT / "data").resolve()


@dataclass
class Ran:
    """A finished process."""

    args: list[str]
    code: int
    out: str
    err: str

    def json(self) -> dict:
        """Parses standard output as one JSON document; numbers keep their digits."""
        return json.loads(self.out, parse_float=Decimal)

    def check(self) -> "Ran":
        """Returns itself if the process succeeded; raises otherwise."""
        if self.code != 0:
            raise AssertionError(f"exit {self.code}: {' '.join(self.args)}\n{self.err}")
        return self


def start(*args: str | Path, **options: Any) -> subprocess.Popen:
    """Starts `pellucid ARGS` with its output captured as text."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "stdin": subprocess.DEVNULL}
    return subprocess.Popen([str(options.pop("program", binary())), *map(str, args)], **(settings | options))


def run(*args: str | Path, timeout: float = TIMEOUT_S, **options: Any) -> Ran:
    """Runs `pellucid ARGS` to completion."""
    process = start(*args, **options)
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return Ran([str(arg) for arg in args], process.returncode, out, err)


def tables(data: Path) -> list[str]:
    """Returns a `--table` option for every `TABLE.parquet` (or folder `TABLE`) of a folder."""
    files = {path.parent if path.parent != data else path for path in data.glob("**/*.parquet")}
    named = [(path.stem, path) for path in sorted(files)]
    return [part for name, path in named for part in ("--table", f"{name}={path}")]


@dataclass
class Result:
    """The answer of `pellucid sql --json`."""

    columns: list[str]
    types: list[str]
    rows: list[list]
    job: dict
    document: dict = field(repr=False, default_factory=dict)


def result(ran: Ran) -> Result:
    """Reads and checks the document of a successful query."""
    document = ran.check().json()
    assert document["format"] == "pellucid.result/1", document["format"]
    assert document["row_count"] == len(document["rows"])
    names = [column["name"] for column in document["columns"]]
    types = [column["type"] for column in document["columns"]]
    return Result(names, types, document["rows"], document["job"], document)


def sql(query: str, data: Path | None = None, *options: str | Path, **settings: Any) -> Ran:
    """Runs `pellucid sql --json` on a query; `data` is a folder of tables."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(query)
        file.flush()
        return run("sql", "--json", "-f", file.name, *(tables(data) if data else []), *options, **settings)


def ensure_data(benchmark: str, scale: float) -> Path:
    """Returns the benchmark's tables at a scale, generated once. A partial folder is never used."""
    folder = data_home() / f"{benchmark}-sf{scale:g}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.partial")
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another process may have made it in the meantime.
        if not folder.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            run("generate", benchmark, "--scale", f"{scale:g}", partial, "--quiet", timeout=3600).check()
            partial.rename(folder)
    return folder


def wait_until(condition: Callable[[], object], process: subprocess.Popen, timeout: float = 60.0) -> None:
    """Waits for a condition while the process runs; fails if the process exits first or on timeout."""

    def ended() -> bool:
        if process.poll() is None:
            return False
        out, err = process.communicate()
        raise AssertionError(f"ended early with {process.returncode}: {out}{err}")

    wait_for(lambda: condition() or ended(), timeout)


def wait_for(condition: Callable[[], object], timeout: float = 60.0) -> None:
    """Waits for a condition; fails on timeout."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {timeout:g} s"
        time.sleep(0.01)


def kill(process: subprocess.Popen, with_signal: int = signal.SIGKILL) -> tuple[int, str, str]:
    """Sends a signal and returns exit code and output."""
    process.send_signal(with_signal)
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running 60 s after signal {with_signal}: {err}") from None
    return process.returncode, out, err
