"""After a power failure, every output is the complete old or the complete new one, and iterative jobs resume.

Commands write to an ext4 file system on a loop device. At random moments, the device's image is copied without a sync: it
holds what the device has seen until then, and nothing of the page cache. The copy is mounted, which replays its journal.
Beside the commands, an iterative job saves snapshots all the time, so that the journal is committed at any moment.

A failure prints its seed; `PELLUCID_SEED=SEED` repeats the commands and delays.
"""

import contextlib
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from harness import binary, traces
from harness.iterate import write
from lab import disks, kernel

SEED = os.environ.get("PELLUCID_SEED", "1")
IMAGES = 50
# One image of so many is copied at the moment at which a command reports success.
EACH_SUCCESS = 3
ROWS = 40_000
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.partial")
SNAPSHOT_EVERY = 100


@dataclass
class Target:
    """An output, the command that writes version N of it, and the check of a complete version."""

    # Each version has a name of its own if this has a `{}`.
    name: str
    command: Callable[[Path, int], list]
    check: Callable[[Path, int], None]
    version: int = 0
    took_s: float = 0.0
    # The content of its files after the last success, and before it.
    content: dict[str, bytes] = field(default_factory=dict)
    before: dict[str, bytes] = field(default_factory=dict)

    def path(self, disk: Path) -> Path:
        return disk / self.name.format(self.version)

    def start(self, disk: Path) -> subprocess.Popen:
        """Starts to write the next version."""
        self.version += 1
        self.before = {} if "{}" in self.name else self.content
        return binary.start(*self.command(self.path(disk), self.version), stdout=subprocess.DEVNULL)

    def finish(self, process: subprocess.Popen, disk: Path) -> None:
        """Waits for the command's success, and checks the version that it wrote."""
        _, err = process.communicate()
        assert process.returncode == 0, f"{self.name}: {err}"
        self.check(self.path(disk), self.version)
        self.content = contents(self.path(disk))

    def state(self, disk: Path, while_running: bool) -> str:
        """Compares a copy of the disk. Fails unless it holds a complete version: the new one, or while the command
        was running the old one."""
        found = contents(self.path(disk))
        if found == self.content:
            return "new"
        assert while_running, f"{self.name}, version {self.version}: lost after its success: {sizes(found)}"
        if found == self.before:
            return "old"
        whole = all(found.get(name) in (self.before.get(name), new) for name, new in self.content.items())
        # Tables of one folder are replaced one by one, and a new trace is readable while it grows.
        if self.name == "tpch" and whole:
            return "some new"
        if self.name == "new-{}.trace" and all(grows(read, self.content[name]) for name, read in found.items()):
            check_readable(self.path(disk))
            return "growing"
        raise AssertionError(f"{self.name}, version {self.version}: {sizes(found)} instead of {sizes(self.before)} or {sizes(self.content)}")


def contents(path: Path) -> dict[str, bytes]:
    """Returns the contents of a file, or of the files of a folder. An absent path has none."""
    files = [path] if path.is_file() else path.glob("[!.]*")
    return {file.name: file.read_bytes() for file in files}


def grows(found: bytes, content: bytes) -> bool:
    """Returns whether a file had a part of its content, and zeros where its last block was not on the device: ext4 may
    commit the size of a file before what was appended to a block that the file had already."""
    return len(found) <= len(content) and content.startswith(found.rstrip(b"\0"))


def check_readable(trace: Path) -> None:
    """Expects that the whole blocks of a trace are read, or that not even its header is one."""
    read = binary.run("analyze", trace)
    headless = read.code == 1 and ("it is empty" in read.err or "is not a Pellucid trace" in read.err)
    assert headless or (read.code == 0 and "the trace is truncated" in read.out + read.err), read


def sizes(content: dict[str, bytes]) -> dict[str, int]:
    return {name: len(read) for name, read in content.items()}


def query(version: int) -> str:
    return f"SELECT value AS x, value * {version} AS y FROM range({ROWS + version})"


def ask(question: str) -> tuple:
    """Returns DuckDB's first row, and closes the file that it read."""
    with duckdb.connect() as connection:
        return connection.execute(question).fetchone()


def check_rows(path: Path, version: int) -> None:
    if path.suffix == ".arrow":
        table = pa.ipc.open_file(path.read_bytes()).read_all()
        found = (table.num_rows, sum(table["y"].to_pylist()))
    else:
        reader = {".parquet": "read_parquet", ".csv": "read_csv", ".json": "read_json"}[path.suffix]
        found = ask(f"SELECT count(*), sum(y) FROM {reader}('{path}')")
    count = ROWS + version
    assert found == (count, version * count * (count - 1) // 2), path


def check_trace(path: Path, version: int) -> None:
    trace = traces.read(path)
    assert trace.of["end"] and trace.of["job"][0]["name"] == query(version), path


def check_tables(path: Path, version: int) -> None:
    """Reads all tables of a folder, and expects rows in one of them."""
    assert sum(ask(f"SELECT count(*) FROM '{table}'")[0] for table in path.glob("*.parquet")) > 1, path


def check_centers(path: Path, version: int) -> None:
    assert ask(f"SELECT count(DISTINCT center) FROM '{path}'") == (2 + version % 5,), path


def check_page(path: Path, version: int) -> None:
    assert path.read_text().rstrip().endswith("</html>"), path


def check_spans(path: Path, version: int) -> None:
    assert json.loads(path.read_text())["resourceSpans"], path


def check_perfetto(path: Path, version: int) -> None:
    assert path.stat().st_size > 500, path


def targets(inputs: Path) -> list[Target]:
    """Returns the outputs of all commands. The traces and points that they read are in `inputs`."""

    def select(path: Path, version: int) -> list:
        return ["sql", query(version), "-o", path]

    def copy(path: Path, version: int) -> list:
        return ["sql", f"COPY ({query(version)}) TO '{path}'"]

    def trace(path: Path, version: int) -> list:
        return ["sql", query(version), "--format", "csv", "--trace", path]

    def report(path: Path, version: int) -> list:
        return ["report", inputs / f"{version % 2}.trace", "-o", path]

    def export(to: str) -> Callable[[Path, int], list]:
        return lambda path, version: ["export", inputs / f"{version % 2}.trace", "--to", to, "-o", path]

    def generate(path: Path, version: int) -> list:
        scale = f"0.00{1 + version % 2}"
        return ["generate", "tpch", "--scale", scale, "--tables", "supplier,customer", "--force", path]

    def kmeans(path: Path, version: int) -> list:
        return ["iterate", "kmeans", inputs / "points.parquet", "--k", 2 + version % 5, "-o", path]

    return [
        Target("old.parquet", select, check_rows),
        Target("old.csv", select, check_rows),
        Target("old.json", select, check_rows),
        Target("old.arrow", copy, check_rows),
        Target("new-{}.parquet", select, check_rows),
        Target("new-{}.csv", copy, check_rows),
        Target("old.trace", trace, check_trace),
        Target("new-{}.trace", trace, check_trace),
        Target("old.html", report, check_page),
        Target("old.perfetto", export("perfetto"), check_perfetto),
        Target("old.otlp", export("otlp"), check_spans),
        Target("tables-{}", export("parquet"), check_tables),
        Target("tpch", generate, check_tables),
        Target("kmeans.parquet", kmeans, check_centers),
    ]


class Job:
    """An iterative job that saves snapshots; it starts again in another folder when it has ended."""

    def __init__(self, disk: Path, data: Path):
        slowly = ("--solver", "gd", "--step", 1e-4, "--tolerance", 0, "--iterations", 60_000, "--workers", 1)
        self.command = ("iterate", "logistic-regression", data, "--label", "y", *slowly, "--partitions", 4, "--json")
        self.expected = json.loads(binary.run(*self.command).check().out)["result"]
        self.disk, self.number, self.process = disk, 0, None

    def at(self, disk: Path) -> tuple:
        return ("--snapshot", disk / f"kept-{self.number}", "--snapshot-every", SNAPSHOT_EVERY)

    def manifest(self) -> list[dict]:
        """Returns the snapshots of the manifest, the newest first; at most the newest may not be durable yet."""
        lines = [line for path in self.disk.glob(f"kept-{self.number}/*/manifest.json") for line in path.open()]
        return [json.loads(line)["snapshot"] for line in lines]

    def keep_running(self) -> None:
        if self.process and self.process.poll() is None:
            return
        self.stop()
        self.number += 1
        self.process = binary.start(*self.command, *self.at(self.disk))
        binary.wait_until(lambda: len(self.manifest()) >= 2, self.process)

    def stop(self) -> None:
        """Kills the process if it is running; otherwise checks its result."""
        if self.process and self.process.poll() is None:
            binary.kill(self.process)
        elif self.process:
            out, err = self.process.communicate()
            assert self.process.returncode == 0 and json.loads(out)["result"] == self.expected, err
        self.process = None

    def resumes(self, disk: Path, iteration: int) -> None:
        """Checks that the job resumes on a copy of its disk from an iteration or a later one."""
        ran = binary.run(*self.command, *self.at(disk)).check()
        assert json.loads(ran.out)["result"] == self.expected
        resumed = re.search(r"resumed from the snapshot of iteration ([\d,]+)", ran.err)
        assert resumed and int(resumed[1].replace(",", "")) >= iteration, f"wanted {iteration}: {ran.err}"
        assert "damaged" not in ran.err and not binary.PANIC.search(ran.err), ran.err


@contextlib.contextmanager
def copied(disk: disks.Disk):
    """Copies the image as it is at this moment; removes the copy at the end. Writes to the device wait until it is made."""
    image = Path(f"{disk.image}.copy")
    written = lambda: kernel.moved_bytes(disk.device)[1]
    kernel.limit(disk.device, None, 1)
    try:
        # Writes that were on their way to the device may tear a copy.
        before = None
        while before != written():
            before = written()
            kernel.run("cp", "--sparse=always", disk.image, str(image))
        kernel.limit(disk.device, None, None)
        yield image
    finally:
        kernel.limit(disk.device, None, None)
        image.unlink(missing_ok=True)


@contextlib.contextmanager
def mounted(image: Path, where: Path):
    where.mkdir(exist_ok=True)
    kernel.run("mount", "-o", "loop,noatime", str(image), str(where))
    try:
        yield where
    finally:
        kernel.run("umount", str(where))


def check_names(disk: Path, running: Target | None) -> None:
    """Expects no temporary files but those of the job and of the running command."""
    for path in disk.rglob(".*"):
        named = TEMPORARY.fullmatch(path.name)
        assert named, path
        if not path.relative_to(disk).parts[0].startswith("kept-"):
            assert running and named[1] in {running.path(disk).name, *running.content}, path


@pytest.mark.parametrize(
    ("images", "options"),
    [
        pytest.param(IMAGES, None, id="defaults"),
        # Without what ext4 does on its own for a file that replaces another.
        pytest.param(3 * IMAGES, "noauto_da_alloc,commit=1", id="strict", marks=pytest.mark.full),
    ],
)
def test_outputs_are_old_or_new_and_jobs_resume_when_the_power_fails(tmp_path, images, options):
    if kernel.missing():
        pytest.skip(f"no small file system can be made: {kernel.missing()}")
    random, numbers = Random(SEED), np.random.default_rng(1)
    data = write(tmp_path / "rows.parquet", numbers.normal(size=(3000, 5)), numbers.integers(0, 2, 3000))
    points = write(tmp_path / "points.parquet", numbers.normal(size=(5000, 3)))
    for number in range(2):
        read = f"SELECT f{number}, count(*) FROM '{points}' GROUP BY ALL"
        binary.run("sql", read, "--format", "csv", "--trace", tmp_path / f"{number}.trace").check()
    seen = Counter()
    with disks.throttled("1GB/s", name=f"power-{os.getpid()}", size="96MiB", mode="kernel", calibrated=False) as disk:
        if options:
            kernel.run("mount", "-o", f"remount,{options}", str(disk.path))
        every, job = targets(tmp_path), Job(disk.path, data)
        try:
            for target in every:
                started = time.monotonic()
                target.finish(target.start(disk.path), disk.path)
                target.took_s = time.monotonic() - started
            for number in range(images):
                if number % len(every) == 0:
                    order = random.sample(every, len(every))
                target = order[number % len(every)]
                job.keep_running()
                process = target.start(disk.path)
                if number % EACH_SUCCESS == 0:
                    process.wait()
                else:
                    time.sleep(random.uniform(0, target.took_s))
                running = process.poll() is None
                resumable = job.manifest()[1]["iteration"]
                with copied(disk) as image:
                    target.finish(process, disk.path)
                    with mounted(image, tmp_path / "copy") as copy:
                        states = {other.name: other.state(copy, running and other is target) for other in every}
                        check_names(copy, target if running else None)
                        job.resumes(copy, resumable)
                seen[states[target.name]] += 1
        except BaseException:
            print(f"PELLUCID_SEED={SEED}, image {number}, {target.name}")
            process.kill()
            raise
        finally:
            job.stop()
    print(f"PELLUCID_SEED={SEED}: {images} images: {dict(seen)}")
    assert seen["old"] and seen["new"], seen
