"""Loop devices, mounts and the block throttle, which need root and Linux.

Each part of the setup is there for a reason. The loop device uses direct I/O, since otherwise the
backing file's cache serves reads. ext4 has no lazy initialisation, since otherwise mkfs keeps writing
during the run. The limit is in the ROOT group of cgroup v1's blkio: a child group misses
write-back, and cgroup v2's io.max needs a controller that v1 hosts do not have. Read and write
budgets are separate, and unlike on a hard disk a seek costs nothing.
"""

import mmap
import os
import shutil
import subprocess
import time
from pathlib import Path

from lab.rates import parse_block_stat, throttle_line

BLKIO = Path("/sys/fs/cgroup/blkio")


def missing() -> str | None:
    """Returns why this machine cannot throttle a disk in the kernel; None if it can."""
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices (not Linux, or a container without /dev/loop-control)"
    if os.geteuid() != 0:
        return "not root"
    if not (BLKIO / "blkio.throttle.read_bps_device").exists():
        return f"no cgroup v1 blkio controller at {BLKIO}"
    absent = [tool for tool in ("losetup", "mkfs.ext4", "mount", "umount") if not shutil.which(tool)]
    return f"not installed: {', '.join(absent)}" if absent else None


def run(*command: str) -> str:
    """Runs a system tool and returns its output; raises `OSError` with the tool's message."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def attach(image: Path) -> str:
    """Attaches a loop device (`/dev/loop0`) with direct I/O to the image."""
    return run("losetup", "--find", "--show", "--direct-io=on", str(image))


def loops_of(image: Path) -> list[str]:
    """Returns all loop devices on this image."""
    lines = run("losetup", "--associated", str(image)).splitlines()
    return [line.split(":", 1)[0] for line in lines]


def detach(device: str) -> None:
    """Releases a loop device. Clears its limits first, so that its next user does not inherit them."""
    limit(device, None, None)
    run("losetup", "--detach", device)


def device_number(device: str) -> str:
    """Returns `MAJOR:MINOR` of a block device."""
    number = os.stat(device).st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def limit(device: str, read_bytes_per_s: int | None, write_bytes_per_s: int | None) -> None:
    """Sets the device's limits in the root group; None clears a limit."""
    for direction, rate in (("read", read_bytes_per_s), ("write", write_bytes_per_s)):
        line = throttle_line(device_number(device), rate)
        (BLKIO / f"blkio.throttle.{direction}_bps_device").write_text(line)


def set_read_ahead_kb(device: str, kb: int) -> None:
    """Sets the device's default read-ahead."""
    Path(f"/sys/block/{Path(device).name}/queue/read_ahead_kb").write_text(str(kb))


def format_and_mount(device: str, where: Path, *options: str) -> None:
    """Makes a fully initialised ext4 and mounts it without access times; `options` are those of `mkfs.ext4`."""
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", *options, device)
    run("mount", "-o", "noatime", device, str(where))


def mounts() -> list[tuple[str, Path]]:
    """Returns devices and mount points in order of mounting. Queries no file system, since one may hang."""
    return [(line.split()[0], Path(line.split()[1])) for line in Path("/proc/self/mounts").read_text().splitlines()]


def release_below(where: Path) -> None:
    """Unmounts everything below a folder in reverse order, and releases the loop devices of those mounts."""
    where = where.resolve()
    for device, at in reversed(mounts()):
        if at != where and at.is_relative_to(where):
            unmount(at)
            if device.startswith("/dev/loop"):
                detach(device)


def unmount(where: Path) -> None:
    """Unmounts, and waits up to two seconds for open files. Does not query the file system itself, since it may hang."""
    where = where.parent.resolve() / where.name
    for attempt in range(20):
        if where not in (at for _, at in mounts()):
            return
        try:
            run("umount", str(where))
        except OSError:
            if attempt == 19:
                raise
            time.sleep(0.1)


def moved_bytes(device: str) -> tuple[int, int]:
    """Returns the bytes that the device has read and written, by the kernel's count."""
    return parse_block_stat(Path(f"/sys/block/{Path(device).name}/stat").read_text())


def measure_read(path: Path, seconds: float) -> float:
    """Returns bytes per second of repeated O_DIRECT reads of the file, over this many seconds.

    The first half second does not count, since the throttle starts with a burst.
    """
    buffer = mmap.mmap(-1, 1 << 20)  # page-aligned, as O_DIRECT requires
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        start, counted_from, moved, at = time.monotonic(), None, 0, 0
        size = os.fstat(fd).st_size
        while True:
            now = time.monotonic()
            if counted_from is None and now - start >= 0.5:
                counted_from, moved = now, 0
            if counted_from is not None and now - counted_from >= seconds:
                return moved / (now - counted_from)
            moved += os.preadv(fd, [buffer], at)
            at = (at + len(buffer)) % size
    finally:
        os.close(fd)
        buffer.close()
