"""Ceph, really started: a monitor and two disks' daemons, and volumes on it that are file systems here.

    with ceph.cluster(folder, at) as ceph_:
        path = ceph_.volume("v", copies=2)

This Linux may have neither the rbd nor the nbd module, so a volume is a file of `rbd-fuse` (Ceph's own client library
behind FUSE) under a loop device with ext4: what a kernel's client would do takes a process and its core time here. Nothing
but the volume's own file system keeps its bytes on this side: the loop device reads and writes past the page cache, and
the client joins small writes until they are flushed but answers no read out of memory (write-around, its default). The
daemons keep metadata alone in memory, and read and write their files past the page cache.

The daemons are the system's packages; `services.Missing` says which are not there. Needs root. A volume is cut off when
its starter dies (`rbd-fuse` ends with it), so that whoever cleans up does not wait for daemons that are gone.
"""

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from lab import kernel
from tests import services
from tests.services import Missing

PROGRAMS = ("ceph-mon", "ceph-osd", "ceph", "rbd", "rbd-fuse", "monmaptool", "ceph-authtool")
PACKAGES = "ceph-mon ceph-osd ceph-common rbd-fuse"
DAEMONS = 2
# What a volume frees its daemons keep, so that in the end it takes as much as it has. A daemon that is nearly full stops
# whoever writes, without a word: there is room for seven copies of volumes.
DAEMON_BYTES, VOLUME = 12 << 30, "3G"
GROUPS = "8"
COMMAND_S, END_S = 60, 30
# A small journal and few inodes: each volume's are written when it is made, as often as it has copies.
FILE_SYSTEM = ("-J", "size=16", "-i", "262144")

CONF = """[global]
fsid = {fsid}
mon host = v1:{address}:{port}
ms bind msgr2 = false
public addr = {address}
cluster addr = {address}
auth cluster required = none
auth service required = none
auth client required = none
keyring = {folder}/keyring
mon data = {folder}/mon
osd data = {folder}/osd-$id
run dir = {folder}
crash dir = {folder}
admin socket =
log to file = false
log to stderr = true
mon cluster log to file = false
mon allow pool size one = true
mon data avail crit = 0
mon data avail warn = 0
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd objectstore = bluestore
bluestore block size = {daemon_bytes}
bluestore cache autotune = false
bluestore cache size = 67108864
bluestore default buffered read = false
bluefs buffered io = false
rbd cache = true
rbd cache policy = writearound
rbd default features = 1
"""


class Cluster:
    """A running cluster. Made by `cluster`."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, conf: Path, daemons: list[subprocess.Popen]):
        self.stack, self.folder, self.conf = stack, folder, conf
        # The daemons, and the processes that the volumes are reached by.
        self.pids = [process.pid for process in daemons]
        self._pools: dict[int, tuple[Path, subprocess.Popen]] = {}

    def ceph(self, *command: str) -> str:
        """What the monitor answers."""
        return run("ceph", "-c", self.conf, "--connect-timeout", "20", *command)

    def stored_bytes(self) -> int:
        """Bytes that the daemons' files take on their disk."""
        return sum((self.folder / f"osd-{number}" / "block").stat().st_blocks * 512 for number in range(DAEMONS))

    def volume(self, name: str, copies: int) -> Path:
        """A new volume whose bytes each lie with so many daemons, mounted; gone with the cluster."""
        images, client = self._pool(copies)
        run("rbd", "-c", self.conf, "create", "--size", VOLUME, f"{pool(copies)}/{name}")
        path = self.folder / name
        path.mkdir()
        try:
            device = kernel.attach(images / name)
            self.stack.callback(kernel.detach, device)
            kernel.format_and_mount(device, path, *FILE_SYSTEM)
        except OSError as error:
            raise Missing(f"a Ceph volume: {error}") from None
        self.stack.callback(_unmount, path, client)
        return path

    def _pool(self, copies: int) -> tuple[Path, subprocess.Popen]:
        """The folder in which a pool's volumes are files, and the client whose folder it is."""
        if copies not in self._pools:
            self.ceph("osd", "pool", "create", pool(copies), GROUPS, GROUPS)
            sure = ["--yes-i-really-mean-it"] if copies == 1 else []
            self.ceph("osd", "pool", "set", pool(copies), "size", str(copies), *sure)
            self.ceph("osd", "pool", "application", "enable", pool(copies), "rbd")
            self._pools[copies] = self._reached(copies)
        return self._pools[copies]

    def _reached(self, copies: int) -> tuple[Path, subprocess.Popen]:
        """Starts the client of a pool."""
        images, log = self.folder / f"images-{copies}", self.folder / "log"
        images.mkdir()
        command = ["rbd-fuse", "-f", "-c", str(self.conf), "-p", pool(copies), str(images)]
        with log.open("ab") as out:
            pipes = {"stdout": out, "stderr": out, "stdin": subprocess.DEVNULL}
            client = subprocess.Popen(command, preexec_fn=services.ends_with_its_starter, **pipes)
        self.pids.append(client.pid)
        self.stack.callback(_ended, client)
        self.stack.callback(kernel.unmount, images)
        services._until("rbd-fuse", lambda: os.path.ismount(images), log, client)
        return images, client


def pool(copies: int) -> str:
    """The pool of volumes with so many copies."""
    return f"copies-{copies}"


def _unmount(path: Path, client: subprocess.Popen) -> None:
    """Unmounts a volume. Where its daemons answer no more it is cut off first: else this would wait for them for ever."""
    unmounting = subprocess.Popen(["umount", path])
    try:
        unmounting.wait(END_S)
    except subprocess.TimeoutExpired:
        client.kill()
        unmounting.wait()
    # Where a file was still open.
    kernel.unmount(path)


def _ended(process: subprocess.Popen) -> None:
    """Waits for a process that has nothing left to do."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(*command: str | Path) -> str:
    """What a command prints; `Missing` where it fails or hangs."""
    try:
        ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    if ran.returncode:
        raise Missing(f"{' '.join(str(c) for c in command)}: {ran.stderr.strip()[-300:]}")
    return ran.stdout


def missing() -> str | None:
    """Why there can be no Ceph here; None if there can."""
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    if lacking:
        return f"Ceph needs {', '.join(lacking)} (apt-get install {PACKAGES})"
    if not os.path.exists("/dev/fuse"):
        return "a Ceph volume needs FUSE (no /dev/fuse)"
    return kernel.missing()


@contextlib.contextmanager
def cluster(folder: Path, at: services.Place = services.HERE) -> Iterator[Cluster]:
    """A cluster whose data lies in a folder, for the length of a `with`."""
    if why := missing():
        raise Missing(why)
    folder = folder / "ceph"
    folder.mkdir()
    conf, keyring, monitors, log = (folder / name for name in ("ceph.conf", "keyring", "monmap", "log"))
    log.touch()
    address, port, fsid = at.address, services.free_port(), str(uuid.uuid4())
    conf.write_text(CONF.format(fsid=fsid, address=address, port=port, folder=folder, daemon_bytes=DAEMON_BYTES))
    run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:{address}:{port}]", monitors)
    run("ceph-mon", "-c", conf, "--mkfs", "-i", "a", "--monmap", monitors, "--keyring", keyring)
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(services._process(log, at, "ceph-mon", "-c", conf, "-f", "-i", "a"))]
        started = Cluster(stack, folder, conf, daemons)
        for number in range(DAEMONS):
            disk = str(uuid.uuid4())
            (folder / f"osd-{number}").mkdir()
            started.ceph("osd", "new", disk, str(number))
            # A daemon that does so itself may ask before it knows the cluster's name, and ends when it is refused.
            started.ceph("osd", "crush", "add", f"osd.{number}", "1", "root=default", "host=here")
            run(*at.inside("ceph-osd", "-c", str(conf), "--mkfs", "-i", str(number), "--osd-uuid", disk))
            daemons.append(stack.enter_context(services._process(log, at, "ceph-osd", "-c", conf, "-f", "-i", str(number))))
        services._until("Ceph", lambda: f"{DAEMONS} up" in started.ceph("osd", "stat"), log, *daemons)
        started.pids = [process.pid for process in daemons]
        yield started
