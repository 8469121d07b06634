"""Makes throttled disks, calibrates them before each use, labels them, and removes them on any exit.

As a library:

    with disks.throttled("50MB/s", size="2GiB") as disk:
        copy(data, disk.path)
        run(["pellucid", "sql", *disk.sql_options(), ...])
        print(disk.label())

As a command: `python3 -m lab.disks make|list|calibrate|remove|clean|run`.

As root on a machine with cgroup v1 the kernel throttles (`lab/kernel.py`), and all readers
are slowed alike. Otherwise a disk is a plain folder, and `sql_options` tells the engine to
pace itself. That is finer than the kernel's throttle, but only Pellucid obeys it, so no
other program may be compared on it. `mode` and `label` always say which one it is.

Each disk keeps `disk.json` beside its image and rewrites it before each step, so that `clean`
finds everything that a killed process left behind.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import kernel
from lab.rates import TOLERANCE, off_by, parse_bytes, parse_rate, show_rate

MODES = ("kernel", "engine")


class LabError(Exception):
    """The lab cannot provide what was requested, or a calibration voids the run."""


def home() -> Path:
    """Returns the folder of the lab's disks: `PELLUCID_LAB`, or one for the user in the temporary folder."""
    return Path(os.environ.get("PELLUCID_LAB") or Path(tempfile.gettempdir()) / f"pellucid-lab-{os.getuid()}")


@dataclass
class Disk:
    """One emulated disk. Rates are in bytes per second; None means no limit, or not measured."""

    name: str
    mode: str
    rate: int
    write_rate: int | None
    size: int
    read_ahead_kb: int | None
    owner: int | None  # process that removes it; None for `make` on the command line
    image: str | None = None
    backing: str | None = None
    device: str | None = None
    measured: float | None = field(default=None)

    @property
    def folder(self) -> Path:
        """The disk's folder in the lab."""
        return home() / self.name

    @property
    def path(self) -> Path:
        """The folder for files."""
        return self.folder / "mount"

    def sql_options(self) -> list[str]:
        """Returns the options for `pellucid sql`; none if the kernel throttles."""
        return [] if self.mode == "kernel" else ["--disk-rate", f"{self.path}={self.rate}B/s"]

    def label(self) -> str:
        """Returns the description that a result on this disk must carry."""
        if self.mode == "engine":
            return f"engine-paced {show_rate(self.rate)} (not calibrated: only the engine obeys)"
        measured = f"measured {show_rate(self.measured)}" if self.measured else "not calibrated"
        ahead = f", read_ahead_kb {self.read_ahead_kb}" if self.read_ahead_kb is not None else ""
        return f"kernel-throttled {show_rate(self.rate)} ({measured}), loop on {self.backing}, ext4{ahead}"

    def moved_bytes(self) -> tuple[int, int] | None:
        """Returns the bytes that the device read and wrote since it was made; None without a device."""
        return kernel.moved_bytes(self.device) if self.device else None

    def set_read_ahead_kb(self, kb: int) -> None:
        """Sets the device's read-ahead; engine-paced disks have no device of their own."""
        if self.device is None:
            raise LabError(f"cannot set the read-ahead of {self.name}: an engine-paced disk has no device; use mode kernel")
        kernel.set_read_ahead_kb(self.device, kb)
        self.read_ahead_kb = kb
        self._save()

    def set_rate(self, rate: str | None) -> None:
        """Sets the read rate, which is not calibrated then; None lifts the kernel's limit."""
        if rate is not None:
            self.rate, self.measured = parse_rate(rate), None
            self._save()
        if self.device:
            kernel.limit(self.device, self.rate if rate else None, self.write_rate)

    def calibrate(self, seconds: float = 2.0) -> float | None:
        """Measures the read rate and keeps it; returns None for an engine-paced disk.

        Raises `LabError` if it is more than 5 % off: all runs on such a disk are void.
        """
        if self.device is None:
            return None
        probe = self.path / ".calibration"
        try:
            write_zeros(probe, min(32 << 20, self.size // 4))
            self.measured = kernel.measure_read(probe, seconds)
        finally:
            probe.unlink(missing_ok=True)
        self._save()
        if off_by(self.rate, self.measured) > TOLERANCE:
            raise LabError(
                f"disk {self.name}: requested {show_rate(self.rate)}, measured {show_rate(self.measured)}; "
                "the run is void (is the backing storage busy, or this process in a child cgroup?)"
            )
        return self.measured

    def remove(self) -> None:
        """Unmounts, detaches, clears limits and deletes; skips what is already gone."""
        if self.image:
            kernel.release_below(self.path)
            kernel.unmount(self.path)
            for device in kernel.loops_of(Path(self.image)) if os.path.exists(self.image) else []:
                kernel.detach(device)
            Path(self.image).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            home().rmdir()  # only if this was the last disk

    def _save(self) -> None:
        """Replaces `disk.json` atomically, so that a kill leaves the old or the new one."""
        partial = self.folder / "disk.json.partial"
        partial.write_text(json.dumps(asdict(self), indent=1))
        partial.replace(self.folder / "disk.json")


def write_zeros(path: Path, size: int) -> None:
    """Writes a file of allocated blocks, in whole MiB, so that O_DIRECT can read it."""
    with open(path, "wb") as file:
        for _ in range(max(1, size >> 20)):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def choose_image(name: str, size: int) -> tuple[Path, str]:
    """Returns a place in memory if the disk takes at most half of what is free there, else a sparse file."""
    memory = Path("/dev/shm")
    available = 0
    with contextlib.suppress(OSError), open("/proc/meminfo") as lines:
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    if memory.is_dir() and size <= min(available, shutil.disk_usage(memory).free) // 2:
        return memory / f"pellucid-lab-{os.getuid()}-{name}.image", "memory"
    return home() / name / "image", "a sparse file"


def make(
    name: str,
    rate: str,
    *,
    size: str = "1GiB",
    write_rate: str | None = None,
    read_ahead_kb: int | None = 128,
    mode: str | None = None,
    owner: int | None = None,
) -> Disk:
    """Makes a disk, and undoes all steps if one fails.

    `mode` None selects the kernel's throttle if the machine has it. Raises `LabError`
    if the name is taken or the machine does not have the mode.
    """
    why_not = kernel.missing()
    mode = mode or ("engine" if why_not else "kernel")
    if mode not in MODES:
        raise LabError(f"unknown mode {mode!r}: expected one of {', '.join(MODES)}")
    if mode == "kernel" and why_not:
        raise LabError(f"cannot throttle a disk in the kernel: {why_not}; use mode engine")
    disk = Disk(
        name=name,
        mode=mode,
        rate=parse_rate(rate),
        size=parse_bytes(size),
        owner=owner,
        write_rate=parse_rate(write_rate) if write_rate else None,
        read_ahead_kb=read_ahead_kb if mode == "kernel" else None,
    )
    try:
        disk.path.mkdir(parents=True)
    except FileExistsError:
        raise LabError(f"cannot make disk {name}: {disk.folder} exists; run `python3 -m lab.disks remove {name}`") from None
    try:
        disk._save()
        if mode == "kernel":
            _attach(disk)
    except BaseException:
        disk.remove()
        raise
    return disk


def _attach(disk: Disk) -> None:
    """Makes image, loop device, file system and limits, and records each before it is made."""
    image, disk.backing = choose_image(disk.name, disk.size)
    disk.image = str(image)
    disk._save()
    with open(image, "wb") as file:
        file.truncate(disk.size)
    disk.device = kernel.attach(image)
    disk._save()
    kernel.limit(disk.device, None, None)
    kernel.format_and_mount(disk.device, disk.path)
    if disk.read_ahead_kb is not None:
        kernel.set_read_ahead_kb(disk.device, disk.read_ahead_kb)
    kernel.limit(disk.device, disk.rate, disk.write_rate)


def leave_on_sigterm() -> None:
    """Makes SIGTERM leave through `finally`, as Ctrl-C does, for the rest of the process."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextlib.contextmanager
def throttled(rate: str, *, name: str | None = None, calibrated: bool = True, **options: Any) -> Iterator[Disk]:
    """Makes a calibrated disk for the duration of a `with`; it is removed on any exit but kill -9.

    First removes disks whose owner was killed. Takes the options of `make`.
    """
    clean(stale_only=True)
    leave_on_sigterm()
    disk = make(name or f"disk-{os.getpid()}-{rate.split('/')[0]}", rate, owner=os.getpid(), **options)
    try:
        if calibrated:
            disk.calibrate()
        yield disk
    finally:
        disk.remove()


def find(name: str) -> Disk:
    """Returns a disk by name; raises `LabError` with the existing names if there is none."""
    for disk in every():
        if disk.name == name:
            return disk
    raise LabError(f"unknown disk {name}; existing disks: {', '.join(d.name for d in every()) or 'none'}")


def every() -> list[Disk]:
    """Returns all disks of this lab, including half-made ones."""
    return [Disk(**json.loads(path.read_text())) for path in sorted(home().glob("*/disk.json"))]


def alive(pid: int) -> bool:
    """Returns whether a process with this pid runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # not permitted, or no /proc: it existed a moment ago
        return True


def clean(stale_only: bool = False) -> list[str]:
    """Removes every disk, or only those whose owner is gone, and returns their names."""
    removed = []
    for disk in every():
        if not stale_only or (disk.owner is not None and not alive(disk.owner)):
            disk.remove()
            removed.append(disk.name)
    return removed


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns 1 with a message on a lab error."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.disks", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("make", "run"):
        sub = commands.add_parser(
            command,
            help={
                "make": "make and calibrate a disk",
                "run": "run a command with a disk that is removed when it ends; {} is its folder",
            }[command],
        )
        sub.add_argument("--name", default="disk0")
        sub.add_argument("--rate", default="50MB/s")
        sub.add_argument("--write-rate")
        sub.add_argument("--size", default="1GiB")
        sub.add_argument("--read-ahead-kb", type=int, default=128)
        sub.add_argument("--mode", choices=MODES)
        if command == "run":
            sub.add_argument("run", nargs="+", metavar="COMMAND")
    for command in ("calibrate", "remove"):
        commands.add_parser(command).add_argument("name")
    commands.add_parser("list")
    commands.add_parser("clean").add_argument("--stale", action="store_true", help="only disks whose owner is gone")
    chosen = parser.parse_args(arguments)
    try:
        return _do(chosen)
    except (LabError, OSError, ValueError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _do(chosen: argparse.Namespace) -> int:
    """Runs one command."""
    if chosen.command in ("make", "run"):
        options = {k: getattr(chosen, k) for k in ("name", "rate", "write_rate", "size", "read_ahead_kb", "mode")}
        if chosen.command == "run":
            with throttled(**options) as disk:
                print(disk.label(), file=sys.stderr)
                return subprocess.run([part.replace("{}", str(disk.path)) for part in chosen.run]).returncode
        disk = make(**options)
        try:
            disk.calibrate()
        except BaseException:
            disk.remove()
            raise
        print(json.dumps({"path": str(disk.path), "label": disk.label(), "sql_options": disk.sql_options()}))
    elif chosen.command == "calibrate":
        disk = find(chosen.name)
        disk.calibrate()
        print(disk.label())
    elif chosen.command == "remove":
        find(chosen.name).remove()
    elif chosen.command == "list":
        for disk in every():
            print(disk.name, disk.path, disk.label(), sep="\t")
    else:
        for name in clean(stale_only=chosen.stale):
            print(f"removed {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
