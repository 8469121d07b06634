"""Random faults over all commands that write: an error or the right answer, nothing half-written, no other file touched.

A fault is a kill, a full disk, a disk that turns read-only, a folder that vanishes, or a flipped bit of an input or a
snapshot, at a random moment. All commands write to a small ext4 file system of their own.

A failure prints the seed and the fault; `PELLUCID_SEED=SEED` repeats the draws, but not the exact moments.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import binary
from harness.binary import FAILED
from harness.damage import flip
from harness.iterate import write
from lab import disks, kernel

SEED = os.environ.get("PELLUCID_SEED", "1")
COMMANDS = ("sql", "generate", "report", "export", "iterate")
# Twice each pair of command and fault, in random order.
ROUNDS = 2
ROWS = 100_000
FLIPS = 1000 if os.environ.get("PELLUCID_FULL") == "1" else 80
OLDER = b"the older content\n"
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.partial")
KILLED = -9


@dataclass
class Writer:
    """A command, the files that it writes into a folder, and their complete contents."""

    arguments: list
    # File or folder.
    output: str
    source: Path | None = None
    expected: dict[str, bytes] = field(default_factory=dict)
    answer: object = None
    took_s: float = 0.0

    def command(self, folder: Path, source: Path | None = None) -> list:
        """Returns the arguments for a folder of outputs, and for a copy of the input."""
        words = {"{folder}": str(folder), "{out}": str(folder / self.output), "{source}": str(source or self.source)}
        return [re.sub(r"\{\w+\}", lambda word: words[word[0]], argument) for argument in self.arguments]

    def undisturbed(self, folder: Path) -> None:
        """Runs the command in an empty folder and keeps what it writes."""
        folder.mkdir()
        started = time.monotonic()
        ran = binary.run(*self.command(folder)).check()
        self.took_s = time.monotonic() - started
        self.expected, self.answer = written(folder / self.output), answer(ran.out)


def answer(out: str):
    """Returns the result of an iterative job, which it prints."""
    return json.loads(out)["result"] if out.startswith('{"format":"pellucid.iterate') else None


def written(path: Path) -> dict[str, bytes]:
    """Returns the contents of a file, or of the visible files of a folder. An absent path has none."""
    files = [path] if path.is_file() else path.glob("[!.]*")
    return {file.name: file.read_bytes() for file in files}


def query(source: str) -> str:
    return f"SELECT x, y, z FROM '{source}'"


def made(command: str, random: Random, inputs: Path) -> Writer:
    """Draws a writer of a kind."""
    if command == "sql":
        output = f"out.{random.choice(['parquet', 'csv', 'json'])}"
        return Writer(["sql", query("{source}"), "-o", "{out}"], output, inputs / "rows.parquet")
    if command == "generate":
        return Writer(["generate", "tpch", "--scale", "0.01", "--tables", "supplier,customer", "--force", "{out}"], "tpch")
    if command == "report":
        return Writer(["report", "{source}", "-o", "{out}"], "out.html", inputs / "q.trace")
    if command == "export":
        to = random.choice(["perfetto", "otlp", "parquet"])
        output = "tables" if to == "parquet" else "out.json"
        return Writer(["export", "{source}", "--to", to, "-o", "{out}"], output, inputs / "q.trace")
    slowly = ["--solver", "gd", "--step", "1e-4", "--tolerance", "0", "--iterations", "20000", "--workers", "1"]
    snapshots = ["--snapshot", "{folder}/kept", "--snapshot-every", "100"]
    job = ["iterate", "logistic-regression", "{source}", "--label", "y", "--json", *slowly, *snapshots]
    # The answer of the command is on its standard output, not in the snapshots.
    return Writer(job, "absent", inputs / "labelled.parquet")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A table, the trace of a query over it, and labelled rows."""
    folder, random = tmp_path_factory.mktemp("inputs"), np.random.default_rng(1)
    rows = {"x": np.arange(ROWS), "y": random.integers(0, 1 << 62, ROWS), "z": [f"row {i % 977}" for i in range(ROWS)]}
    pq.write_table(pa.table(rows), folder / "rows.parquet", compression="none", row_group_size=30_000)
    binary.run("sql", f"SELECT z, max(y) FROM '{folder}/rows.parquet' GROUP BY z", "--format", "csv", "--trace", folder / "q.trace").check()
    write(folder / "labelled.parquet", random.normal(size=(2000, 5)), random.integers(0, 2, 2000))
    return folder


@pytest.fixture
def disk():
    """A small disk, mounted."""
    if kernel.missing():
        pytest.skip(f"no small file system can be made: {kernel.missing()}")
    with disks.throttled("1GB/s", name=f"faults-{os.getpid()}", size="48MiB", mode="kernel", calibrated=False) as disk:
        yield disk


class Place:
    """A folder of outputs on the disk, with files of others beside them."""

    def __init__(self, disk: disks.Disk, writer: Writer, older: bool):
        self.disk, self.writer, self.folder = disk, writer, disk.path / "work"
        self.gone = disk.path / "gone"
        for left in (self.folder, self.gone):
            shutil.rmtree(left, ignore_errors=True)
        self.folder.mkdir()
        self.others = {}
        for name, mode in (("bystander.csv", 0o600), (".hidden", 0o644), (".out.csv.partial", 0o640), ("kept.txt", 0o444)):
            path = self.folder / name
            path.write_text(name * 100)
            path.chmod(mode)
            self.others[name] = self.look(path)
        self.before = {}
        if older and writer.expected and writer.output != "tables":
            targets = writer.expected if writer.output == "tpch" else [writer.output]
            for name in targets:
                path = self.folder / (f"tpch/{name}" if writer.output == "tpch" else name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(OLDER)
                path.chmod(0o600)
                self.before[path.name] = OLDER

    @staticmethod
    def look(path: Path) -> tuple:
        found = path.stat()
        return path.read_bytes(), found.st_mode, found.st_mtime_ns, found.st_uid, found.st_ino

    def check(self, code: int, temporaries: bool) -> str:
        """Checks the files after a command has ended, and returns the state of the output."""
        folder = self.gone if self.gone.exists() else self.folder
        for name, before in self.others.items():
            assert self.look(folder / name) == before, f"{name} was touched"
        allowed = {*self.others, self.writer.output, "tpch", "kept"}
        for path in [*folder.iterdir(), *folder.glob("tpch/.*"), *folder.glob("kept/**/.*")]:
            if path.parent == folder and path.name in allowed:
                continue
            named = TEMPORARY.fullmatch(path.name)
            assert named and temporaries, f"{path} was left"
            # It is readable to no more users than the file that it would replace.
            assert not self.before or not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        found = written(folder / self.writer.output)
        if self.gone.exists() and self.folder.exists():
            found |= written(self.folder / self.writer.output)
        if found == self.writer.expected:
            return "new"
        assert code != 0, f"success without the output: {sorted(found)}"
        if found == self.before:
            return "old"
        each = all(found.get(name) in (self.before.get(name), new) for name, new in self.writer.expected.items())
        assert self.writer.output == "tpch" and each, f"neither old nor new: { ({name: len(read) for name, read in found.items()}) }"
        return "some new"

    def again(self) -> None:
        """Runs the command after the fault, and expects its success."""
        if self.gone.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.gone.rename(self.folder)
        # Tables of an export go into a folder that does not exist.
        shutil.rmtree(self.folder / "tables", ignore_errors=True)
        ran = binary.run(*self.writer.command(self.folder)).check()
        assert answer(ran.out) == self.writer.answer, ran.out
        self.check(ran.code, temporaries=True)


def failed(ran: binary.Ran, place: Path, cause: str = "") -> None:
    """Checks an error, which names a path and its cause."""
    assert ran.code == FAILED and ran.out == "" and not binary.PANIC.search(ran.err), f"exit {ran.code}: {ran.err}"
    assert re.search("cannot |while decoding ", ran.err) and str(place) in ran.err and re.search(cause, ran.err), ran.err


def disturbed(place: Place, random: Random, disturb) -> binary.Ran:
    """Runs the command, and calls `disturb` with its process at a random moment."""
    command = place.writer.command(place.folder)
    process = binary.start(*command)
    time.sleep(random.uniform(0, place.writer.took_s))
    disturb(process)
    out, err = process.communicate(timeout=60)
    return binary.Ran(command, process.returncode, out, err)


def ended(place: Place, ran: binary.Ran, cause: str, temporaries: bool = False) -> str:
    """Checks a command that a fault may have reached, and returns the state of its output."""
    if ran.code == 0:
        assert answer(ran.out) == place.writer.answer, ran.out
    elif ran.code != KILLED:
        failed(ran, place.disk.path, cause)
    return place.check(ran.code, temporaries)


def kill(place: Place, random: Random) -> str:
    ran = disturbed(place, random, lambda process: process.kill())
    return ended(place, ran, "", temporaries=ran.code == KILLED)


def full(place: Place, random: Random) -> str:
    """Leaves less space than the outputs need, or a little more."""
    ballast = place.disk.path / "ballast"
    needed = sum(map(len, place.writer.expected.values())) or 100_000
    free = os.statvfs(place.disk.path)
    left = random.randrange(needed + needed // 4)
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left)
    try:
        return ended(place, binary.run(*place.writer.command(place.folder)), "No space left on device")
    finally:
        ballast.unlink()


def read_only(place: Place, random: Random) -> str:
    """Makes the file system read-only before the command, or stops it as ext4 does after an error."""
    where, device = str(place.disk.path), place.disk.device
    kernel.run("sync", "--file-system", where)
    if random.random() < 0.3:
        kernel.run("mount", "-o", "remount,ro", where)
        ran = binary.run(*place.writer.command(place.folder))
    else:
        ran = disturbed(place, random, lambda process: kernel.run("mount", "-o", "remount,abort", where))
    # Nothing can be removed from such a file system.
    ended(place, ran, "Read-only file system|Input/output error", temporaries=True)
    kernel.unmount(place.disk.path)
    # Returns 1 if it mended something: the error that the kernel had noted.
    subprocess.run(["e2fsck", "-fy", device], capture_output=True, check=False)
    kernel.run("mount", "-o", "noatime", device, where)
    return place.check(ran.code, temporaries=True)


def vanished(place: Place, random: Random) -> str:
    ran = disturbed(place, random, lambda process: place.folder.rename(place.gone))
    # A temporary file is out of reach where the folder is now.
    return ended(place, ran, "No such file or directory", temporaries=True)


def flipped(place: Place, random: Random) -> str:
    """Flips a bit of the input, or of a snapshot to resume from."""
    writer, folder = place.writer, place.folder
    if "iterate" in writer.arguments:
        process = binary.start(*writer.command(folder))
        lines = lambda: sum(len(manifest.read_text().splitlines()) for manifest in folder.glob("kept/*/manifest.json"))
        with contextlib.suppress(AssertionError):
            binary.wait_until(lambda: lines() >= 2, process)
        process.kill()
        process.communicate()
        files = [path for path in folder.glob("kept/**/*") if path.is_file() and path.stat().st_size]
        chosen = random.choice(sorted(files))
        flip(chosen, random.randrange(chosen.stat().st_size))
        ran = binary.run(*writer.command(folder))
        return ended(place, ran, "", temporaries=True)
    right = writer.source.read_bytes()
    try:
        flip(writer.source, random.randrange(len(right)))
        ran = binary.run(*writer.command(folder))
        found = folder / writer.output
        if ran.code != 0:
            failed(ran, writer.source)
        elif written(found) != writer.expected:
            if "sql" in writer.arguments:
                # Data without checksums: the answer is that for the data as it is.
                assert rows(query(found)) == rows(query(writer.source)), f"a wrong answer: {ran.err}"
            else:
                assert re.search("is truncated", ran.err), f"a part of the trace without a warning: {ran.err}"
            shutil.rmtree(found) if found.is_dir() else found.unlink()
            return "of the flipped input"
        return place.check(ran.code, temporaries=False)
    finally:
        writer.source.write_bytes(right)


def rows(of: str) -> list[tuple]:
    with duckdb.connect() as connection:
        return connection.execute(of).fetchall()


FAULTS = {"kill": kill, "full": full, "read-only": read_only, "vanished": vanished, "flipped": flipped}


def drawn(random: Random) -> list[tuple[str, str]]:
    """Returns pairs of command and fault in random order. `generate` has no input, so `sql` takes its turn."""
    pairs = ROUNDS * list(itertools.product(COMMANDS, FAULTS))
    pairs = [("sql" if pair == ("generate", "flipped") else pair[0], pair[1]) for pair in pairs]
    return random.sample(pairs, len(pairs))


def test_commands_fail_whole_or_answer_right_when_a_fault_strikes(tmp_path, inputs, disk):
    random, seen, undisturbed = Random(SEED), Counter(), {}
    for number, (command, fault) in enumerate(drawn(random)):
        writer = made(command, random, inputs)
        key = tuple(writer.arguments) + (writer.output,)
        if key not in undisturbed:
            writer.undisturbed(tmp_path / f"undisturbed-{number}")
            undisturbed[key] = writer
        place = Place(disk, undisturbed[key], older=random.random() < 0.5)
        try:
            state = FAULTS[fault](place, random)
            seen[fault, state] += 1
            place.again()
        except BaseException:
            print(f"PELLUCID_SEED={SEED}, fault {number}: {fault} of {command} -> {writer.output}, before: {place.before}")
            raise
    print(f"PELLUCID_SEED={SEED}: {number + 1} faults: {dict(seen)}")


def test_flipped_bit_is_refused_when_its_page_has_a_checksum(tmp_path):
    """Flips bits of the data, and expects the checksum of a page, a header or a text to show each of them."""
    path, random = tmp_path / "checked.parquet", Random(SEED)
    table = pa.table({"x": np.random.default_rng(1).normal(size=20_000)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    right = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    # Behind the header of the first page.
    begin, end = column.data_page_offset + 200, column.data_page_offset + column.total_compressed_size
    for command in (["sql", f"SELECT sum(x) FROM '{path}'"], ["iterate", "kmeans", path, "--k", 2]):
        binary.run(*command).check()
        flip(path, random.randrange(begin, end))
        failed(binary.run(*command), path)
        path.write_bytes(right)


def test_flipped_bit_of_a_parquet_file_is_an_error_or_the_answer_of_duckdb(tmp_path):
    """Flips bits of pages, their headers, the footer and the schema of Arrow in it, all without checksums."""
    path, out, random, seen = tmp_path / "small.parquet", tmp_path / "out.parquet", Random(SEED), Counter()
    columns = {"x": range(200), "y": [i * 7 % 13 * 1.5 for i in range(200)], "z": [f"r{i % 5}" if i % 9 else None for i in range(200)]}
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path, row_group_size=100)
    right, undisturbed = path.read_bytes(), rows(query(path))
    for _ in range(FLIPS):
        path.write_bytes(right)
        at = random.randrange(len(right))
        flip(path, at)
        ran = binary.run("sql", query(path), "-o", out)
        if ran.code != 0:
            failed(ran, path)
            seen["error"] += 1
            continue
        found = rows(query(out))
        seen["undisturbed" if found == undisturbed else "as DuckDB"] += 1
        # A NaN is not equal to itself.
        assert found == undisturbed or repr(found) == repr(rows(query(path))), f"PELLUCID_SEED={SEED}, byte {at}"
    print(f"PELLUCID_SEED={SEED}: {dict(seen)}")
