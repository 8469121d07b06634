"""A real Ceph cluster: a monitor, two OSDs, and volumes mounted as local file systems.

    with ceph.cluster(folder, at) as ceph_:
        path = ceph_.volume("v", copies=2)

This kernel may have neither the rbd nor the nbd module. A volume is therefore a file of `rbd-fuse` (Ceph's own client
library over FUSE) under a loop device with ext4: a process does the work of the kernel client and uses core time for it.
On the client side, only the volume's file system caches data: the loop device bypasses the page cache, and the client
joins small writes until they are flushed but serves no reads from memory (write-around, its default). The OSDs cache
only metadata, and bypass the page cache for their files.

The daemons come from the system's packages; `services.Missing` names those that are not installed. Needs root. A volume
is cut off when the process that created it dies (`rbd-fuse` ends with it), so that a cleanup never waits for OSDs that
are gone.
"""

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.stores import services
from harness.stores.services import Missing
from lab import kernel

PROGRAMS = ("ceph-mon", "ceph-osd", "ceph", "rbd", "rbd-fuse", "monmaptool", "ceph-authtool")
PACKAGES = "ceph-mon ceph-osd ceph-common rbd-fuse"
DAEMONS = 2
# OSDs keep the space that a volume frees, so a volume finally takes its full size. A nearly full OSD blocks writers
# silently: there is room for seven copies of volumes.
DAEMON_BYTES, VOLUME = 12 << 30, "3G"
GROUPS = "8"
COMMAND_S, END_S = 60, 30
# A small journal and few inodes: both are written once per copy when a volume is created.
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
    """A running cluster, created by `cluster`."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, conf: Path, daemons: list[subprocess.Popen]):
        self.stack, self.folder, self.conf = stack, folder, conf
        # The daemons, and the `rbd-fuse` clients of the volumes.
        self.pids = [process.pid for process in daemons]
        self._pools: dict[int, tuple[Path, subprocess.Popen]] = {}

    def ceph(self, *command: str) -> str:
        """Runs a `ceph` command and returns its output."""
        return run("ceph", "-c", self.conf, "--connect-timeout", "20", *command)

    def stored_bytes(self) -> int:
        """Returns the disk space that the OSDs' files take, in bytes."""
        return sum((self.folder / f"osd-{number}" / "block").stat().st_blocks * 512 for number in range(DAEMONS))

    def volume(self, name: str, copies: int) -> Path:
        """Creates and mounts a volume with this many copies of each byte; removed with the cluster."""
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
        """Returns the folder that has a pool's volumes as files, and the client that serves it."""
        if copies not in self._pools:
            self.ceph("osd", "pool", "create", pool(copies), GROUPS, GROUPS)
            sure = ["--yes-i-really-mean-it"] if copies == 1 else []
            self.ceph("osd", "pool", "set", pool(copies), "size", str(copies), *sure)
            self.ceph("osd", "pool", "application", "enable", pool(copies), "rbd")
            self._pools[copies] = self._start_client(copies)
        return self._pools[copies]

    def _start_client(self, copies: int) -> tuple[Path, subprocess.Popen]:
        """Starts the client of a pool."""
        images, log = self.folder / f"images-{copies}", self.folder / "log"
        images.mkdir()
        command = ["rbd-fuse", "-f", "-c", str(self.conf), "-p", pool(copies), str(images)]
        with log.open("ab") as out:
            pipes: dict[str, Any] = {"stdout": out, "stderr": out, "stdin": subprocess.DEVNULL}
            client = subprocess.Popen(command, preexec_fn=services.die_with_parent, **pipes)
        self.pids.append(client.pid)
        self.stack.callback(_wait_for_exit, client)
        self.stack.callback(kernel.unmount, images)
        services._wait_until_ready("rbd-fuse", lambda: os.path.ismount(images), log, client)
        return images, client


def pool(copies: int) -> str:
    """Returns the name of the pool of volumes with this many copies."""
    return f"copies-{copies}"


def _unmount(path: Path, client: subprocess.Popen) -> None:
    """Unmounts a volume. If its OSDs no longer respond, kills the client first: umount would wait forever."""
    unmounting = subprocess.Popen(["umount", path])
    try:
        unmounting.wait(END_S)
    except subprocess.TimeoutExpired:
        client.kill()
        unmounting.wait()
    # Detaches the mount if a file was still open.
    kernel.unmount(path)


def _wait_for_exit(process: subprocess.Popen) -> None:
    """Waits for a process that is about to exit; kills it on timeout."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(*command: str | Path) -> str:
    """Runs a command and returns its output; raises `Missing` if it fails or hangs."""
    try:
        ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    if ran.returncode:
        raise Missing(f"{' '.join(str(c) for c in command)}: {ran.stderr.strip()[-300:]}")
    return ran.stdout


def missing() -> str | None:
    """Returns why Ceph cannot run here; None if it can."""
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    if lacking:
        return f"Ceph needs {', '.join(lacking)} (apt-get install {PACKAGES})"
    if not os.path.exists("/dev/fuse"):
        return "a Ceph volume needs FUSE (no /dev/fuse)"
    return kernel.missing()


@contextlib.contextmanager
def cluster(folder: Path, at: services.Place = services.HERE) -> Iterator[Cluster]:
    """Runs a cluster with its data in a folder, for the length of a `with` block."""
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
            # Done here because an OSD that does it at start may ask before it knows the cluster's id, and then exits.
            started.ceph("osd", "crush", "add", f"osd.{number}", "1", "root=default", "host=here")
            run(*at.inside("ceph-osd", "-c", str(conf), "--mkfs", "-i", str(number), "--osd-uuid", disk))
            daemons.append(stack.enter_context(services._process(log, at, "ceph-osd", "-c", conf, "-f", "-i", str(number))))
        services._wait_until_ready("Ceph", lambda: f"{DAEMONS} up" in started.ceph("osd", "stat"), log, *daemons)
        started.pids = [process.pid for process in daemons]
        yield started
