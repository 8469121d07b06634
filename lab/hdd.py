"""Emulates spinning disks, on which concurrency costs time, for any program.

    with hdd.spinning("memory", size="4GiB") as disk:
        fill(disk.path)                       # at memory speed until `set_kind`
        disk.set_kind("H150R")
        disk.calibrate()
        before = disk.stats()
        run(["spark-submit", ...])
        print(disk.label(), disk.stats().since(before))

A small server (`lab/hdd`, Rust) exports one image that is held in memory, and answers each request
as late as a drive would. A loop device with direct I/O makes it a disk, with ext4 on it. So page
cache, read-ahead, write-back and block I/O delays are the kernel's own, and the model sees real
addresses. The server counts requests in flight and busy time itself. These counters check what a
program reports about its own I/O from outside.

| kind | what it is |
|---|---|
| `H150R` | 150 MB/s, seeks of 1 to 16 ms, 7,200 turns a minute by the platter's angle: the main model |
| `H150` | the same, but each seek pays half a turn: the pessimistic one |
| `SSD50`, `SSD100`, `SSD200` | 50, 100 or 200 MB/s, no seeks; reads and writes share the rate |
| `memory` | no model, for filling |

The parameters are data sheet figures of such drives; none is fitted to a result (`lab/hdd/src/drive.rs`).
Needs root, FUSE, loop devices and cargo. It models neither a drive's write cache nor two disks behind
one controller.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import cache, kernel
from lab.disks import LabError, alive, home, leave_on_sigterm, write_zeros
from lab.rates import TOLERANCE, off_by, parse_bytes, show_rate

RATES = {"H150R": 150e6, "H150": 150e6, "SSD50": 50e6, "SSD100": 100e6, "SSD200": 200e6, "memory": None}
SOURCE = Path(__file__).resolve().parent / "hdd"
# Larger than the cache of an ordinary disk, so that a pass over the file is mostly transfer.
CALIBRATION_BYTES = 256 << 20
RANDOM_READS = 100
# A twentieth of a spinning drive's positioning time. FUSE takes half of it, also on a drive without seeks.
MAX_LATE_NS = 400_000


def missing() -> str | None:
    """Returns why this machine cannot emulate a spinning disk; None if it can."""
    if os.geteuid() != 0:
        return "not root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return f"no {device}"
    absent = [tool for tool in ("cargo", "losetup", "mkfs.ext4", "mount", "umount") if not shutil.which(tool)]
    return f"not installed: {', '.join(absent)}" if absent else None


def server() -> Path:
    """Returns the server's program, compiled if it is missing or older than its source."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid" / "lab-hdd"
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", str(SOURCE / "Cargo.toml")],
        check=True,
        env={**os.environ, "CARGO_TARGET_DIR": str(folder)},
    )
    return folder / "release" / "pellucid-lab-hdd"


@dataclass(frozen=True)
class Stats:
    """A drive's counters since it was started, or between two readings. Times are in nanoseconds."""

    at_ns: int
    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    positioned: int  # requests for which the head had to move or wait
    positioning_ns: int
    busy_ns: int
    in_flight_ns: int  # requests in flight, summed over time
    in_flight_most: int  # since the drive was started, also in a difference

    def since(self, before: "Stats") -> "Stats":
        """Returns the difference to an earlier reading."""
        differences = {name: value - getattr(before, name) for name, value in asdict(self).items()}
        return Stats(**{**differences, "in_flight_most": self.in_flight_most})

    @property
    def queue_depth(self) -> float | None:
        """Returns the mean number of requests in flight while the drive was busy; None if it never was."""
        return self.in_flight_ns / self.busy_ns if self.busy_ns else None


@dataclass
class Disk:
    """One emulated disk."""

    name: str
    kind: str
    size: int
    owner: int
    server: int | None = None
    device: str | None = None
    read_ahead_kb: int = 128
    # Limit on the kernel's dirty pages for this disk, if it has one: otherwise its cache hides the disk.
    dirty_bytes: int | None = None
    measured: float | None = field(default=None)

    @property
    def folder(self) -> Path:
        """The disk's folder in the lab."""
        return home() / self.name

    @property
    def path(self) -> Path:
        """The folder for files."""
        return self.folder / "mount"

    @property
    def image(self) -> Path:
        """The file behind the loop device; `stats` and `kind` are beside it."""
        return self.folder / "fuse" / "image"

    def stats(self) -> Stats:
        """Returns the drive's counters."""
        counted = json.loads((self.folder / "fuse" / "stats").read_bytes())
        return Stats(**{name: counted[name] for name in Stats.__dataclass_fields__})

    def set_kind(self, kind: str) -> None:
        """Changes the drive under the same contents; it is not calibrated then."""
        if kind not in RATES:
            raise LabError(f"unknown kind {kind}: expected one of {', '.join(RATES)}")
        (self.folder / "fuse" / "kind").write_text(kind)
        self.kind, self.measured = kind, None
        self._save()

    def set_rotational(self, rotational: bool) -> None:
        """Tells programs whether the disk spins."""
        if self.device:
            (Path("/sys/block") / Path(self.device).name / "queue" / "rotational").write_text(str(int(rotational)))

    def evict(self, paths: Iterable[Path]) -> None:
        """Writes out all dirty data of this disk, and drops these files from the page cache."""
        subprocess.run(["sync", "--file-system", str(self.path)], check=True)
        cache.evict(paths)

    def calibrate(self, seconds: float = 2.0) -> float | None:
        """Measures one stream and single random reads, and compares them with the model.

        Raises `LabError` if the stream is more than 5 % off, or a random read comes 0.4 ms later than the drive's own
        time: all runs on such a disk are void.
        """
        rate = RATES[self.kind]
        if rate is None:
            return None
        kind, probe = self.kind, self.path / ".calibration"
        self.set_kind("memory")
        write_zeros(probe, min(CALIBRATION_BYTES, self.size // 4))
        self.set_kind(kind)
        try:
            measured = kernel.measure_read(probe, seconds)
            late_ns = self._late_ns(probe)
        finally:
            probe.unlink()
        if off_by(rate, measured) > TOLERANCE:
            rates = f"should give {show_rate(rate)}, measured {show_rate(measured)}"
            raise LabError(f"disk {self.name}: {kind} {rates}; the run is void (is the machine busy?)")
        if late_ns > MAX_LATE_NS:
            late = f"random reads are {late_ns / 1e6:.2f} ms later than the model (limit {MAX_LATE_NS / 1e6:g} ms)"
            raise LabError(f"disk {self.name}: {late}; the run is void (is the machine busy?)")
        self.measured = measured
        self._save()
        return measured

    def _late_ns(self, probe: Path) -> float:
        """Returns how much longer than the drive's busy time a single random read takes, on average."""
        generator = random.Random(7200)
        pages = probe.stat().st_size // 4096
        cache.evict([probe])
        before, begun = self.stats(), time.monotonic_ns()
        fd = os.open(probe, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for _ in range(RANDOM_READS):
                os.pread(fd, 4096, generator.randrange(pages) * 4096)
        finally:
            os.close(fd)
        took = time.monotonic_ns() - begun
        busy = self.stats().since(before).busy_ns
        return (took - busy) / RANDOM_READS

    def label(self) -> str:
        """Returns the description that a result on this disk must carry."""
        measured = f"measured {show_rate(self.measured)}" if self.measured else "not calibrated"
        dirty = f"{self.dirty_bytes >> 20} MiB dirty at most" if self.dirty_bytes else "dirty pages as the kernel likes"
        return f"emulated {self.kind} ({measured}), FUSE image in memory, loop, ext4, read_ahead_kb {self.read_ahead_kb}, {dirty}"

    def remove(self) -> None:
        """Unmounts, detaches, and ends the server; skips what is already gone."""
        kernel.unmount(self.path)
        for device in loops_on(self.image):
            kernel.run("losetup", "--detach", device)
        fuse = self.folder / "fuse"
        for _ in range(50):
            # The loop device releases the image a moment after it is detached.
            if not is_mounted(fuse) or not subprocess.run(["umount", str(fuse)], capture_output=True).returncode:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "--lazy", str(fuse)], check=True, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            home().rmdir()  # only if this was the last disk

    def _save(self) -> None:
        """Replaces `hdd.json` atomically, so that a kill leaves the old or the new one."""
        partial = self.folder / "hdd.json.partial"
        partial.write_text(json.dumps(asdict(self), indent=1))
        partial.replace(self.folder / "hdd.json")


def loops_on(image: Path) -> list[str]:
    """Returns the loop devices on this image, even if its server is dead and the file does not respond."""
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    return [f"/dev/{file.parent.parent.name}" for file in backing if file.read_text().strip() == str(image)]


def is_mounted(where: Path) -> bool:
    """Returns whether something is mounted there, without touching a mount whose server may be dead."""
    with open("/proc/mounts") as lines:
        return any(line.split()[1] == str(where) for line in lines)


def make(kind: str, *, name: str, size: str = "2GiB", read_ahead_kb: int = 128, dirty: str = "64MiB") -> Disk:
    """Makes a disk of this kind, and undoes all steps if one fails."""
    if kind not in RATES:
        raise LabError(f"unknown kind {kind}: expected one of {', '.join(RATES)}")
    if why_not := missing():
        raise LabError(f"cannot emulate a spinning disk: {why_not}")
    program = server()
    disk = Disk(name=name, kind=kind, size=parse_bytes(size), owner=os.getpid(), read_ahead_kb=read_ahead_kb)
    try:
        disk.folder.mkdir(parents=True)
    except FileExistsError:
        raise LabError(f"cannot make disk {name}: {disk.folder} exists; run `python3 -m lab.hdd clean`") from None
    try:
        disk.path.mkdir()
        disk._save()
        _attach(disk, program, parse_bytes(dirty))
        disk.set_kind(kind)
    except BaseException:
        disk.remove()
        raise
    return disk


def _attach(disk: Disk, program: Path, dirty_bytes: int) -> None:
    """Makes server, loop device and file system, and records each before the next."""
    fuse = disk.folder / "fuse"
    fuse.mkdir()
    process = subprocess.Popen([str(program), str(fuse), str(disk.size), "memory"], stdin=subprocess.DEVNULL, start_new_session=True)
    disk.server = process.pid
    disk._save()
    while not is_mounted(fuse):
        if process.poll() is not None:
            raise LabError(f"cannot start disk {disk.name}: its server exited with code {process.returncode}")
        time.sleep(0.01)
    disk.device = kernel.run("losetup", "--find", "--show", "--direct-io=on", str(disk.image))
    disk._save()
    queue = Path(f"/sys/block/{Path(disk.device).name}/queue")
    for name, value in (("scheduler", "mq-deadline"), ("rotational", "1"), ("nr_requests", "64")):
        (queue / name).write_text(value)
    (queue / "read_ahead_kb").write_text(str(disk.read_ahead_kb))
    options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    kernel.run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", options, disk.device)
    kernel.run("mount", "-o", "noatime,nodiscard", disk.device, str(disk.path))
    bdi = Path("/sys/class/bdi") / kernel.device_number(disk.device)
    if (bdi / "max_bytes").exists():  # Linux 6.2 and later
        (bdi / "strict_limit").write_text("1")
        (bdi / "max_bytes").write_text(str(dirty_bytes))
        disk.dirty_bytes = dirty_bytes
    disk._save()


@contextlib.contextmanager
def spinning(kind: str, *, name: str | None = None, calibrated: bool = True, **options: Any) -> Iterator[Disk]:
    """Makes a disk for the duration of a `with`; it is removed on any exit but kill -9 (then by `lab.guard`)."""
    clean()
    leave_on_sigterm()
    disk = make(kind, name=name or f"hdd-{os.getpid()}-{kind}", **options)
    try:
        if calibrated:
            disk.calibrate()
        yield disk
    finally:
        disk.remove()


def every() -> list[Disk]:
    """Returns all disks of this lab, including half-made ones."""
    return [Disk(**json.loads(path.read_text())) for path in sorted(home().glob("*/hdd.json"))]


def clean() -> list[str]:
    """Removes disks whose owner is gone, and returns their names."""
    removed = []
    for disk in every():
        if not alive(disk.owner):
            disk.remove()
            removed.append(disk.name)
    return removed


def main() -> int:
    """Runs `python3 -m lab.hdd clean`, or `… KIND -- COMMAND`, in which {} is the disk's folder."""
    arguments = sys.argv[1:]
    if arguments == ["clean"]:
        print("\n".join(f"removed {name}" for name in clean()))
        return 0
    if len(arguments) < 3 or arguments[1] != "--":
        print("usage: python3 -m lab.hdd clean | KIND -- COMMAND…", file=sys.stderr)
        return 2
    try:
        with spinning(arguments[0]) as disk:
            print(disk.label(), file=sys.stderr)
            before = disk.stats()
            code = subprocess.run([part.replace("{}", str(disk.path)) for part in arguments[2:]]).returncode
            print(disk.stats().since(before), file=sys.stderr)
            return code
    except (LabError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
