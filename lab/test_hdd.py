"""Tests the emulated spinning disk: its model anywhere with cargo, the disk itself as root."""

import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab import disks, guard, hdd

ROOT = Path(__file__).resolve().parent.parent
needs_disk = pytest.mark.skipif(hdd.missing() is not None, reason=f"no emulated disk: {hdd.missing()}")
MIB = 1 << 20

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def own_lab(tmp_path, monkeypatch):
    """Gives each test its own lab."""
    monkeypatch.setenv("PELLUCID_LAB", str(tmp_path / "lab"))


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_model_passes_its_own_tests():
    folder = hdd.server().parent.parent
    done = subprocess.run(
        ["cargo", "test", "--quiet", "--release", "--locked", "--manifest-path", str(hdd.SOURCE / "Cargo.toml")],
        env={**os.environ, "CARGO_TARGET_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_stats_since_subtracts_earlier_reading():
    before = hdd.Stats(100, 1, 10, 2, 20, 1, 5, 50, 60, 3)
    after = hdd.Stats(1100, 5, 70, 2, 20, 4, 25, 450, 1260, 8)
    between = after.since(before)
    assert (between.reads, between.read_bytes, between.busy_ns) == (4, 60, 400)
    assert between.queue_depth == 3.0 and between.in_flight_most == 8
    assert before.since(before).queue_depth is None


def read_all(path: Path) -> None:
    """Reads a file in pieces of 128 KiB, one at a time, with O_DIRECT."""
    buffer = mmap.mmap(-1, 128 << 10)  # page-aligned, as O_DIRECT requires
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        at = 0
        while moved := os.preadv(fd, [buffer], at):
            at += moved
    finally:
        os.close(fd)
        buffer.close()


def busy_reading(disk: hdd.Disk, files: list[Path], threads: int) -> hdd.Stats:
    """Returns the drive's counters while `threads` threads read all files, each file by one thread."""
    before = disk.stats()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read_all, files))
    return disk.stats().since(before)


@needs_disk
def test_concurrency_slows_only_spinning_disks():
    """Uses the drive's own clock, which a busy machine does not slow."""
    with hdd.spinning("memory", size="512MiB") as disk:
        files = [disk.path / f"part-{n}" for n in range(8)]
        for file in files:
            file.write_bytes(os.urandom(4 * MIB))
        wrote = files[3].read_bytes()
        disk.evict(files)
        assert files[3].read_bytes() == wrote
        counted = {}
        for kind in ("H150R", "H150", "SSD50"):
            disk.set_kind(kind)
            for threads in (1, 8):
                counted[kind, threads] = busy_reading(disk, files, threads)
        for stats in counted.values():
            assert stats.read_bytes == pytest.approx(32 * MIB, rel=0.02)
        rate = {case: stats.read_bytes / stats.busy_ns * 1000 for case, stats in counted.items()}
        for kind in ("H150R", "H150"):
            assert rate[kind, 8] < 0.75 * rate[kind, 1], rate
        assert rate["SSD50", 8] == pytest.approx(50, rel=0.02) and rate["SSD50", 1] == pytest.approx(50, rel=0.02), rate
        assert counted["H150", 8].queue_depth > 2 * counted["H150", 1].queue_depth
        assert "emulated SSD50" in disk.label()


@needs_disk
@pytest.mark.parametrize(("kind", "rate"), [("H150R", 150e6), ("SSD50", 50e6)])
def test_calibrated_disk_reaches_rate_of_its_kind(kind, rate):
    try:
        with hdd.spinning(kind, size="1GiB") as disk:
            assert disk.measured == pytest.approx(rate, rel=0.05)
            assert "measured" in disk.label()
    except disks.LabError as error:
        pytest.skip(f"the machine is too busy for a disk of {rate / 1e6:.0f} MB/s: {error}")
    assert hdd.every() == []


def test_unknown_kind_lists_valid_ones():
    with pytest.raises(disks.LabError, match="H150R"):
        hdd.make("floppy", name="x")


HOLDS = """
import time
from lab import guard, hdd
with guard.watch(), hdd.spinning("memory", size="64MiB", name="held") as disk:
    print(disk.device, disk.server, flush=True)
    time.sleep(600)
"""


@needs_disk
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_disk_is_removed_however_owner_ends(how):
    owner = subprocess.Popen([sys.executable, "-c", HOLDS], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    device, server = owner.stdout.readline().split()
    assert hdd.is_mounted(hdd.every()[0].path)
    owner.send_signal(how)
    owner.wait()
    owner.stdout.close()
    until = time.monotonic() + 30
    while (hdd.every() or disks.alive(int(server))) and time.monotonic() < until:
        time.sleep(0.05)
    assert hdd.every() == [] and not disks.alive(int(server))
    assert not Path(f"/sys/block/{Path(device).name}/loop/backing_file").exists()
    assert guard.clean() == []
