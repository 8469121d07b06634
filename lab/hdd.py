"""Emulated spinning disks, on which running more at once costs: for any program, not only ours.

    with hdd.spinning("H150R", size="4GiB") as disk:
        fill(disk.path)                       # at memory's speed until `set_kind`
        disk.set_kind("H150R")
        disk.calibrate()
        before = disk.stats()
        run(["spark-submit", ...])
        print(disk.label(), disk.stats().since(before))

A small server (`lab/hdd`, Rust) exports one image that lies in memory, and answers each request
as late as a drive would; a loop device with direct I/O makes it a disk, ext4 lies on it. So page
cache, read-ahead, write-back and block I/O delays are the kernel's own, and the model sees real
addresses. The server counts for itself what was in flight and how long it was busy, which is the
check from outside on whatever a program says of its own I/O.

| kind | what it is |
|---|---|
| `H150R` | 150 MB/s, seeks of 1 to 16 ms, 7,200 turns a minute by the platter's angle: the main model |
| `H150` | the same, but each seek pays half a turn: the pessimistic one |
| `SSD50` | 50 MB/s, no seeks: the control |
| `memory` | no model, for filling |

The parameters are what data sheets say of such drives and are fitted to no result (`lab/hdd/src/drive.rs`).
Root, FUSE, loop devices and cargo are needed. It is no model of a drive's write cache, nor of two disks behind
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

from lab import cache, kernel
from lab.disks import LabError, alive, home, leave_on_sigterm, write_zeros
from lab.rates import TOLERANCE, off_by, parse_bytes, show_rate

RATES = {"H150R": 150e6, "H150": 150e6, "SSD50": 50e6, "memory": None}
SOURCE = Path(__file__).resolve().parent / "hdd"
# Past the size of an ordinary disk's cache, so that a pass over the file is mostly transfer.
CALIBRATION_BYTES = 256 << 20
RANDOM_READS = 100
# A twentieth of what getting there takes a spinning drive. The way through FUSE takes half of it, on a drive without seeks too.
MAX_LATE_NS = 400_000


def missing() -> str | None:
    """Why this machine cannot emulate a spinning disk; None if it can."""
    if os.geteuid() != 0:
        return "not root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return f"no {device}"
    absent = [tool for tool in ("cargo", "losetup", "mkfs.ext4", "mount", "umount") if not shutil.which(tool)]
    return f"not installed: {', '.join(absent)}" if absent else None


def server() -> Path:
    """The server's program; compiled if it is not there or older than its source."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid" / "lab-hdd"
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", str(SOURCE / "Cargo.toml")],
        check=True,
        env={**os.environ, "CARGO_TARGET_DIR": str(folder)},
    )
    return folder / "release" / "pellucid-lab-hdd"


@dataclass(frozen=True)
class Stats:
    """What a drive counted since it was started, or between two looks. Times in nanoseconds."""

    at_ns: int
    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    positioned: int  # requests for which the head had to move or wait
    positioning_ns: int
    busy_ns: int
    in_flight_ns: int  # requests in flight, summed over time
    in_flight_most: int  # since it was started, not only between the looks

    def since(self, before: "Stats") -> "Stats":
        """What was counted after an earlier look."""
        differences = {name: value - getattr(before, name) for name, value in asdict(self).items()}
        return Stats(**{**differences, "in_flight_most": self.in_flight_most})

    @property
    def queue_depth(self) -> float | None:
        """Requests in flight while there were any work, on average; None if there was none."""
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
    # Dirty pages that the kernel keeps for this disk, if it can be told to: else its cache hides the disk.
    dirty_bytes: int | None = None
    measured: float | None = field(default=None)

    @property
    def folder(self) -> Path:
        """The disk's folder in the lab."""
        return home() / self.name

    @property
    def path(self) -> Path:
        """Where files go."""
        return self.folder / "mount"

    @property
    def image(self) -> Path:
        """The file behind the loop device; beside it `stats` and `kind`."""
        return self.folder / "fuse" / "image"

    def stats(self) -> Stats:
        """What the drive counted so far."""
        counted = json.loads((self.folder / "fuse" / "stats").read_bytes())
        return Stats(**{name: counted[name] for name in Stats.__dataclass_fields__})

    def set_kind(self, kind: str) -> None:
        """Another drive from now on, with the same contents; not calibrated."""
        if kind not in RATES:
            raise LabError(f"no kind {kind}: one of {', '.join(RATES)}")
        (self.folder / "fuse" / "kind").write_text(kind)
        self.kind, self.measured = kind, None
        self._save()

    def evict(self, paths: Iterable[Path]) -> None:
        """Writes out everything of this disk, and drops these files from the page cache."""
        subprocess.run(["sync", "--file-system", str(self.path)], check=True)
        cache.evict(paths)

    def calibrate(self, seconds: float = 2.0) -> float | None:
        """Measures what a reader gets, one stream and one random read at a time, against the model.

        Raises `LabError` where the stream is more than 5 % off, or a random read 0.4 ms later than the drive: whatever
        ran on such a disk is void.
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
            rates = f"gives {show_rate(rate)}, measured {show_rate(measured)}"
            raise LabError(f"disk {self.name}: {kind} {rates}; the run is void (is the machine busy?)")
        if late_ns > MAX_LATE_NS:
            late = f"random reads come {late_ns / 1e6:.2f} ms later than the model says (at most {MAX_LATE_NS / 1e6:g})"
            raise LabError(f"disk {self.name}: {late}; the run is void (is the machine busy?)")
        self.measured = measured
        self._save()
        return measured

    def _late_ns(self, probe: Path) -> float:
        """How much longer than the drive was busy a random read takes, one at a time."""
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
        """What a result on this disk must say of it."""
        measured = f"measured {show_rate(self.measured)}" if self.measured else "not calibrated"
        dirty = f"{self.dirty_bytes >> 20} MiB dirty at most" if self.dirty_bytes else "dirty pages as the kernel likes"
        return f"emulated {self.kind} ({measured}), FUSE image in memory, loop, ext4, read_ahead_kb {self.read_ahead_kb}, {dirty}"

    def remove(self) -> None:
        """Unmounts, detaches, ends the server; what is already gone is passed over."""
        kernel.unmount(self.path)
        for device in loops_on(self.image):
            kernel.run("losetup", "--detach", device)
        fuse = self.folder / "fuse"
        for attempt in range(50):
            # The loop device lets go of the image a moment after it is detached.
            if not is_mounted(fuse) or not subprocess.run(["umount", str(fuse)], capture_output=True).returncode:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "--lazy", str(fuse)], check=True, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            home().rmdir()  # only when this was the last

    def _save(self) -> None:
        """Rewrites `hdd.json` whole, so that a kill leaves the old or the new one."""
        partial = self.folder / "hdd.json.partial"
        partial.write_text(json.dumps(asdict(self), indent=1))
        partial.replace(self.folder / "hdd.json")


def loops_on(image: Path) -> list[str]:
    """Loop devices that lie on this image, also where its server is dead and the file answers nothing."""
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    return [f"/dev/{file.parent.parent.name}" for file in backing if file.read_text().strip() == str(image)]


def is_mounted(where: Path) -> bool:
    """Whether something is mounted there; a dead server's mount answers no other question."""
    with open("/proc/mounts") as lines:
        return any(line.split()[1] == str(where) for line in lines)


def make(kind: str, *, name: str, size: str = "2GiB", read_ahead_kb: int = 128, dirty: str = "64MiB") -> Disk:
    """Makes a disk, of kind `memory` until `set_kind`, and takes back whatever it had made if that fails."""
    if kind not in RATES:
        raise LabError(f"no kind {kind}: one of {', '.join(RATES)}")
    if why_not := missing():
        raise LabError(f"no emulated spinning disk here: {why_not}")
    program = server()
    disk = Disk(name=name, kind=kind, size=parse_bytes(size), owner=os.getpid(), read_ahead_kb=read_ahead_kb)
    try:
        disk.folder.mkdir(parents=True)
    except FileExistsError:
        raise LabError(f"disk {name} exists at {disk.folder}: `python3 -m lab.hdd clean`") from None
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
    """Server, loop device, file system, each noted before the next."""
    fuse = disk.folder / "fuse"
    fuse.mkdir()
    process = subprocess.Popen(
        [str(program), str(fuse), str(disk.size), "memory"], stdin=subprocess.DEVNULL, start_new_session=True
    )
    disk.server = process.pid
    disk._save()
    while not is_mounted(fuse):
        if process.poll() is not None:
            raise LabError(f"the server of disk {disk.name} ended with {process.returncode}")
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
def spinning(kind: str, *, name: str | None = None, calibrated: bool = True, **options) -> Iterator[Disk]:
    """A disk for the length of a `with`, removed on any way out but kill -9 (then by `lab.guard`)."""
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
    """All disks of this lab, also those that were only half made."""
    return [Disk(**json.loads(path.read_text())) for path in sorted(home().glob("*/hdd.json"))]


def clean() -> list[str]:
    """Removes the disks whose owning process is gone; says which."""
    removed = []
    for disk in every():
        if not alive(disk.owner):
            disk.remove()
            removed.append(disk.name)
    return removed


def main() -> int:
    """`python3 -m lab.hdd clean`, or `… KIND -- COMMAND`, in which {} is the disk's folder."""
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
