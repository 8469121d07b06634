"""The hardware of the suite: a throttled disk with a text, a group of cores, and Spark on both."""

import base64
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from bench.common import results
from bench.spark.cases import RATES, Way
from harness import binary
from lab import cache, cores, disks, guard

LAB = Path(__file__).resolve().parents[2] / "lab" / "spark_logs.py"
TEXT_BYTES = 400 << 20
LINE_BYTES = 100
FRAME_BYTES = 1 << 16
# Covers Spark's start and the slowest job.
TIMEOUT_S = 300


@dataclass
class Rig:
    """The hardware that runs share."""

    python: Path
    disk: disks.Disk
    group: cores.Group

    @property
    def text(self) -> Path:
        """The input of `disk` and `words`."""
        return self.disk.path / "text"

    def run(self, way: Way, log: Path, size: str = "large") -> dict:
        """Runs a job, keeps its event log, and returns its measurements and noise.

        Raises `LabError` if the calibration of the disk fails.
        """
        disk = None
        if way.rate:
            self.disk.set_rate(way.rate)
            self.disk.calibrate()
            cache.evict([self.text])
            disk = self.disk.label()
        self.group.set(way.cores if way.cores < len(os.sched_getaffinity(0)) else None)
        canary = cores.canary()
        with tempfile.TemporaryDirectory() as folder, results.quiet() as others:
            command = [self.python, "-B", LAB, folder, way.job, "--raw", "--size", size, "--cores", str(way.cores)]
            command += ["--name", "pair"] + (["--input", self.text] if way.rate else [])
            ran = subprocess.run([*self.group.prefix(), *map(str, command)], capture_output=True, text=True, timeout=TIMEOUT_S)
            if ran.returncode != 0:
                raise RuntimeError(f"{way.name}: {ran.stderr[-2000:]}")
            (raw,) = [path for path in Path(folder).iterdir() if not path.name.startswith(".")]
            keep(raw, log)
        canary = min(canary, cores.canary())
        document = json.loads(binary.run("analyze", "--json", log).check().out)
        measured = {"ms": document["replay"]["measured_ms"], "tasks": document["source"]["tasks"]}
        spark = document["source"]["engine_version"]
        return measured | {"canary": round(canary, 3), "others_cores": others(), "disk": disk, "spark": spark}


def keep(raw: Path, log: Path) -> None:
    """Compresses a log in many frames, as Spark does, under a temporary name until it is complete."""
    log.parent.mkdir(parents=True, exist_ok=True)
    part = log.with_name(log.name + ".part")
    compressor = zstandard.ZstdCompressor(level=10)
    with open(raw, "rb") as lines, open(part, "wb") as file:
        while block := b"".join(lines.readlines(FRAME_BYTES)):
            file.write(compressor.compress(block))
    part.replace(log)


def write_text(path: Path, size: int) -> None:
    """Writes a text from a repeated random block of some MB, so large that compression hardly shortens it."""
    block = b"".join(base64.b64encode(os.urandom(LINE_BYTES * 3 // 4)) + b"\n" for _ in range(20_000))
    with open(path, "wb") as file:
        written = 0
        while written < size:
            written += file.write(block[: size - written])
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def rig(python: Path) -> Iterator[Rig]:
    """Sets up the hardware, and always removes it afterwards. Needs root."""
    with (
        guard.watch(),
        cores.group() as group,
        disks.throttled(RATES[0], size="1GiB", mode="kernel", calibrated=False) as disk,
    ):
        made = Rig(python, disk, group)
        write_text(made.text, TEXT_BYTES)
        yield made
