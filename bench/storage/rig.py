"""The compositions that this machine hosts, all at once, and what their layers do meanwhile.

    with rig.rig() as hardware:
        for place in hardware.places: …

One throttled disk holds every store's data, and one shaped link lies between compute and all stores but
the local disk (`lab/README.md`). All services run all the time, so that runs on different compositions can
take turns; one that is not asked does nothing. Core time of a service is taken on the same two cores as the
engine's: what a result says is about these compositions on this machine, not about the systems at large.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab import cache, disks, guard, links
from lab.rates import parse_rate
from tests import services

DISK, LINK = "100MB/s", "1000Mbit/s"
DISK_SIZE = "10GiB"
COMPOSITIONS = Path(__file__).with_name("compositions")
SAMPLE_S = 0.1
# Files smaller than this may stay in the page cache: databases that a service has mapped.
LARGE_BYTES = 256 << 10


@dataclass
class Place:
    """A composition that runs: where Pellucid and Spark find it."""

    name: str
    file: Path
    url: str
    spark_url: str
    environment: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    # Processes of the data layer; none where it is the file system.
    pids: list[int] = field(default_factory=list)
    # What was put there to be read, below the URL.
    files: list[str] = field(default_factory=list)


def percentiles(values: list[float]) -> list[float]:
    """5, 25, 50, 75 and 95 of a hundred."""
    ordered = sorted(values) or [0.0]
    return [round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3) for share in (0.05, 0.25, 0.5, 0.75, 0.95)]


class Rig:
    """See the module's head. Made by `rig`."""

    def __init__(self, stack: contextlib.ExitStack, only: set[str]):
        self.stack, self.only = stack, only
        name = f"storage-{os.getpid()}"
        options = {"size": DISK_SIZE, "write_rate": DISK, "calibrated": False, "mode": "kernel"}
        self.disk = stack.enter_context(disks.throttled(DISK, name=name, **options))
        self.link = stack.enter_context(links.link())
        self.folder = Path(self.disk.path)
        # What `slow` said; each result carries it.
        self.said = ""
        self.places: list[Place] = []
        self.missing: dict[str, str] = {}
        self._start()

    def _start(self) -> None:
        """Starts what is wanted and can be; what cannot says why. The disk is fast until `slow`."""
        self.fast()
        if self._wanted("GC"):
            local = self.folder / "local"
            local.mkdir()
            self.places.append(Place("GC", COMPOSITIONS / "gc.toml", str(local), f"file://{local}"))
        for name, service in (("NC", "hdfs"), ("SWI", "swift"), ("S3", "s3s-fs"), ("MINIO", "minio")):
            if not self._wanted(name):
                continue
            try:
                folder = self.folder / service
                folder.mkdir()
                before = self._inside()
                # A bucket of its own, by which Spark's settings tell the stores apart; "minio" MinIO keeps to itself.
                at = services.Place(self.link.server, self.link.inside, f"on-{service}")
                running = self.stack.enter_context(services.ALL[service](folder, at))
                self.places.append(place(name, running, sorted(self._inside() - before)))
            except services.Missing as why:
                self.missing[name] = str(why)

    def _wanted(self, name: str) -> bool:
        return not self.only or name in self.only

    def _inside(self) -> set[int]:
        """Processes in the namespace."""
        listed = subprocess.run(["ip", "netns", "pids", self.link.namespace], capture_output=True, text=True)
        return {int(pid) for pid in listed.stdout.split()}

    def fast(self) -> None:
        """Lifts the limits, for what is not measured."""
        self.disk.write_rate = None
        self.disk.set_rate(None)
        self.link.set(None)

    def slow(self) -> str:
        """Sets the limits and calibrates them; says what they are. `LabError`: what runs then is void."""
        self.disk.write_rate = parse_rate(DISK)
        self.disk.set_rate(DISK)
        self.link.set(LINK)
        return f"disk {self.disk.calibrate() / 1e6:.0f} MB/s, link {self.link.calibrate() * 8e-6:.0f} Mbit/s"

    def forget(self) -> None:
        """Writes all that is to be written, and takes it out of the page cache."""
        self.flush()
        for file in self.folder.rglob("*"):
            # One that is gone by now, or that a service has mapped, needs no more.
            with contextlib.suppress(OSError, RuntimeError):
                if file.is_file() and file.stat().st_size >= LARGE_BYTES:
                    cache.evict([file])

    def flush(self) -> None:
        """Waits until all that was written is on the disk."""
        subprocess.run(["sync", "-f", str(self.folder)], check=True)

    @contextlib.contextmanager
    def watched(self, place: Place, compute: list[int]) -> Iterator[dict]:
        """Samples the layers' use meanwhile; `compute`: processes of the engine, more may be added."""
        samples: list[tuple[float, float, float, float, float]] = []
        done = threading.Event()

        def sample() -> None:
            while True:
                samples.append((time.monotonic(), core_s(compute), core_s(place.pids), sum(self.disk.moved_bytes()), self._crossed()))
                if done.wait(SAMPLE_S):
                    return

        thread = threading.Thread(target=sample)
        thread.start()
        found: dict = {}
        try:
            yield found
        finally:
            done.set()
            thread.join()
            steps = [(b[0] - a[0], *(b[i] - a[i] for i in range(1, 5))) for a, b in zip(samples, samples[1:], strict=False)]
            per_s = lambda i, scale: percentiles([max(0.0, s[i]) / s[0] / scale for s in steps if s[0] > 0])  # noqa: E731
            found |= {"compute_cores": per_s(1, 1.0), "data_cores": per_s(2, 1.0), "disk_mb_s": per_s(3, 1e6), "link_mb_s": per_s(4, 1e6)}

    def _crossed(self) -> float:
        """Bytes over the link, both ways."""
        here = Path("/sys/class/net") / self.link.ends[0] / "statistics"
        return float(sum(int((here / f"{way}_bytes").read_text()) for way in ("rx", "tx")))


def core_s(pids: list[int]) -> float:
    """Core time of processes that are still there."""
    total = 0.0
    for pid in list(pids):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def place(name: str, running: services.Service, pids: list[int]) -> Place:
    """A service as Pellucid's and Spark's settings."""
    file = COMPOSITIONS / f"{name.lower()}.toml"
    if running.name == "hdfs":
        # One replica, whatever the client's own files say.
        return Place(name, file, running.url, running.url, running.environment, {"spark.hadoop.dfs.replication": "1"}, pids)
    bucket = running.url.removeprefix("swift://").removeprefix("s3://")
    endpoint = running.environment.get("AWS_ENDPOINT_URL") or running.environment["ST_AUTH"].removesuffix("/auth/v1.0")
    key = running.environment.get("ST_USER", services.KEY)
    of_bucket = f"spark.hadoop.fs.s3a.bucket.{bucket}"
    spark = {f"{of_bucket}.endpoint": endpoint, f"{of_bucket}.access.key": key, f"{of_bucket}.secret.key": services.SECRET}
    return Place(name, file, running.url, f"s3a://{bucket}", running.environment, spark, pids)


@contextlib.contextmanager
def rig(only: set[str] = frozenset()) -> Iterator[Rig]:
    """Everything for the length of a `with`; gone afterwards, whatever happens."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(guard.watch())
        yield Rig(stack, set(only))
