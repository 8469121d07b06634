"""The compositions that this machine hosts at once, and the use of their layers.

    with rig.rig() as hardware:
        for place in hardware.places: …

One throttled disk has every store's data, and one shaped link is between compute and all stores but the local disk
(`lab/README.md`). All services run all the time, so that runs on different compositions can take turns; idle services
use nothing. Services share the engine's two cores, so the results hold for these compositions on this machine, not for
the systems in general.

A Ceph volume is a file system on this side of the link, and its daemons are on the other (`harness/stores/ceph.py`).
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.stores import ceph, services
from lab import cache, disks, guard, links
from lab.rates import parse_rate

DISK, LINK = "100MB/s", "1000Mbit/s"
DISK_SIZE = "36GiB"
# Compositions and their services behind the link.
SERVICES = {"NC": "hdfs", "SWI": "swift", "S3": "s3s-fs", "MINIO": "minio"}
# Compositions on volumes, with the copies of each volume; with several volumes, HDFS has a replica on each.
VOLUMES = {"GC-V": (1,), "GC-VS": (2,), "GC-VB": (2, 2)}
ALL = ("GC", *VOLUMES, *SERVICES)
SAMPLE_S = 0.1
# Files smaller than this may stay in the page cache: databases that a service has mapped.
LARGE_BYTES = 256 << 10


@dataclass
class Place:
    """A running composition, with the URLs and settings for Pellucid and Spark."""

    name: str
    url: str
    spark_url: str
    environment: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    # Processes of the data and storage layers; none if the kernel does their work.
    pids: list[int] = field(default_factory=list)
    # File systems on this side to which it writes.
    volumes: list[Path] = field(default_factory=list)
    # Copies that Spark's client requests, if not the store's default.
    replication: int | None = None
    # Paths of the input, below the URL.
    files: list[str] = field(default_factory=list)

    def as_s3(self) -> "Place":
        """Returns the same store over the S3 interface that Spark uses."""
        endpoint, key = (next(value for name, value in self.spark.items() if name.endswith(of)) for of in (".endpoint", ".access.key"))
        return replace(self, url=self.spark_url.replace("s3a://", "s3://"), environment=services.s3_environment(endpoint, key))


def percentiles(values: list[float]) -> list[float]:
    """Returns the percentiles 5, 25, 50, 75 and 95."""
    ordered = sorted(values) or [0.0]
    return [round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 6) for share in (0.05, 0.25, 0.5, 0.75, 0.95)]


class Rig:
    """The running compositions; see the module's documentation. Created by `rig`."""

    def __init__(self, stack: contextlib.ExitStack, only: set[str]):
        self.stack, self.only = stack, only
        name = f"storage-{os.getpid()}"
        options = {"size": DISK_SIZE, "write_rate": DISK, "calibrated": False, "mode": "kernel"}
        self.disk = stack.enter_context(disks.throttled(DISK, name=name, **options))
        self.link = stack.enter_context(links.link())
        self.folder = Path(self.disk.path)
        # The calibration by `slow`, which each result includes.
        self.said = ""
        self.places: list[Place] = []
        self.missing: dict[str, str] = {}
        self._start()

    def _start(self) -> None:
        """Starts the wanted compositions, and records why others cannot run. The disk is fast until `slow`."""
        self.fast()
        if self._wanted("GC"):
            local = self.folder / "local"
            local.mkdir()
            self.places.append(files_in("GC", local))
        if wanted := [name for name in VOLUMES if self._wanted(name)]:
            try:
                at = services.Place(self.link.server, self.link.inside)
                cluster = self.stack.enter_context(ceph.cluster(self.folder, at))
                self.places += [self._on_volumes(name, cluster) for name in wanted]
            except services.Missing as why:
                self.missing |= dict.fromkeys(wanted, str(why))
        for name, service in SERVICES.items():
            if not self._wanted(name):
                continue
            try:
                folder = self.folder / service
                folder.mkdir()
                # Each store has its own bucket, by which Spark's settings differ; MinIO reserves the name "minio".
                at = services.Place(self.link.server, self.link.inside, f"on-{service}")
                self.places.append(place(name, self.stack.enter_context(services.ALL[service](folder, at))))
            except services.Missing as why:
                self.missing[name] = str(why)

    def _on_volumes(self, name: str, cluster: ceph.Cluster) -> Place:
        """Starts a composition on volumes: files on one, or HDFS on this side with a data node on each."""
        volumes = [cluster.volume(f"{name.lower()}-{number}", copies) for number, copies in enumerate(VOLUMES[name])]
        if len(volumes) == 1:
            return replace(files_in(name, volumes[0]), pids=cluster.pids, volumes=volumes)
        folder = self.folder / name.lower()
        folder.mkdir()
        running = self.stack.enter_context(services.hdfs(folder, services.HERE, volumes))
        found = place(name, running)
        return replace(found, pids=found.pids + cluster.pids, volumes=volumes, replication=len(volumes))

    def _wanted(self, name: str) -> bool:
        return not self.only or name in self.only

    def fast(self) -> None:
        """Lifts the limits, for unmeasured work."""
        self.disk.write_rate = None
        self.disk.set_rate(None)
        self.link.set(None)

    def slow(self) -> str:
        """Sets, calibrates and describes the limits. Runs after a `LabError` are void."""
        self.disk.write_rate = parse_rate(DISK)
        self.disk.set_rate(DISK)
        self.link.set(LINK)
        return f"disk {self.disk.calibrate() / 1e6:.0f} MB/s, link {self.link.calibrate() * 8e-6:.0f} Mbit/s"

    def forget(self) -> None:
        """Writes back all files, and evicts them from the page cache."""
        volumes = [volume for place in self.places for volume in place.volumes]
        for top in (*volumes, self.folder):
            subprocess.run(["sync", "-f", str(top)], check=True)
            for at, folders, files in os.walk(top):
                # Mounted volumes are walked separately, if their pages are on this side.
                folders[:] = [name for name in folders if not os.path.ismount(os.path.join(at, name))]
                for name in files:
                    self._evict(Path(at, name))

    def _evict(self, file: Path) -> None:
        # The file may be gone, or mapped by a service.
        with contextlib.suppress(OSError, RuntimeError):
            if file.is_file() and file.stat().st_size >= LARGE_BYTES:
                cache.evict([file])

    def flush(self, place: Place) -> None:
        """Waits until a composition's output is on the disk."""
        for top in (*place.volumes, self.folder):
            subprocess.run(["sync", "-f", str(top)], check=True)

    @contextlib.contextmanager
    def watched(self, place: Place, compute: list[int]) -> Iterator[dict]:
        """Samples the use of the layers during the `with`. `compute` are the engine's processes; more may be added."""
        samples: list[tuple[float, float, float, float, float]] = []
        done = threading.Event()

        def look() -> None:
            samples.append((time.monotonic(), core_s(compute), core_s(place.pids), sum(self.disk.moved_bytes()), self._crossed()))

        def sample() -> None:
            look()
            while not done.wait(SAMPLE_S):
                look()

        thread = threading.Thread(target=sample)
        thread.start()
        found: dict = {}
        try:
            yield found
        finally:
            done.set()
            thread.join()
            look()
            steps = [(b[0] - a[0], *(b[i] - a[i] for i in range(1, 5))) for a, b in zip(samples, samples[1:], strict=False)]
            per_s = lambda i, scale: percentiles([max(0.0, s[i]) / s[0] / scale for s in steps if s[0] > SAMPLE_S / 2])
            found |= {"compute_cores": per_s(1, 1.0), "data_cores": per_s(2, 1.0), "disk_mb_s": per_s(3, 1e6), "link_mb_s": per_s(4, 1e6)}
            in_all = [last - first for first, last in zip(samples[0], samples[-1], strict=True)]
            found |= {"data_core_s": round(in_all[2], 2), "disk_mb": round(in_all[3] / 1e6, 1), "link_mb": round(in_all[4] / 1e6, 1)}

    def _crossed(self) -> float:
        """Returns the bytes over the link, both ways."""
        here = Path("/sys/class/net") / self.link.ends[0] / "statistics"
        return float(sum(int((here / f"{way}_bytes").read_text()) for way in ("rx", "tx")))


def core_s(pids: list[int]) -> float:
    """Returns the core time of the processes that still run."""
    total = 0.0
    for pid in list(pids):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def files_in(name: str, folder: Path) -> Place:
    """Returns the place of a folder."""
    return Place(name, str(folder), f"file://{folder}")


def place(name: str, running: services.Service) -> Place:
    """Returns the place of a service."""
    pids = running.pids
    if running.name == "hdfs":
        # One replica, regardless of the client's configuration files.
        return Place(name, running.url, running.url, running.environment, {"spark.hadoop.dfs.replication": "1"}, pids)
    bucket = running.url.removeprefix("swift://").removeprefix("s3://")
    endpoint = running.environment.get("AWS_ENDPOINT_URL") or running.environment["ST_AUTH"].removesuffix("/auth/v1.0")
    key = running.environment.get("ST_USER", services.KEY)
    of_bucket = f"spark.hadoop.fs.s3a.bucket.{bucket}"
    spark = {f"{of_bucket}.endpoint": endpoint, f"{of_bucket}.access.key": key, f"{of_bucket}.secret.key": services.SECRET}
    return Place(name, running.url, f"s3a://{bucket}", running.environment, spark, pids)


@contextlib.contextmanager
def rig(only: set[str] = frozenset()) -> Iterator[Rig]:
    """Sets up the compositions for a `with`, and always removes them afterwards."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(guard.watch())
        yield Rig(stack, set(only))
