"""The emulated hardware of the matrix: two disks, cores, a link to an S3 server, and drives for what is spilled.

    with rig.rig("kernel") as hardware:
        hardware.place(query)
        hardware.calibrate(config)      # raises LabError: void
        run = hardware.run(query, config, trace)

It is set up once. A configuration sets rates, selects links to files on one disk or two, and determines how a
command is started. Mode `engine` needs no root: disks are folders on which the engine paces itself, cores are
threads, and links are not supported.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.backtest import data
from bench.backtest.cases import PARTITIONS, Config, Query
from harness import binary
from harness.threads import core_seconds
from lab import cache, cores, disks, guard, hdd, kernel, links
from lab.disks import LabError

QUERIES = binary.ROOT / "bench" / "queries"
KEYS = {"AWS_ACCESS_KEY_ID": "backtest", "AWS_SECRET_ACCESS_KEY": "backtest"}


def missing(mode: str) -> str | None:
    """Returns why this machine cannot emulate the hardware, or None."""
    return (kernel.missing() or cores.missing()) if mode == "kernel" else None


class Rig:
    """The emulated hardware; see the module's documentation. Created by `rig`."""

    def __init__(self, mode: str, small: bool, stack: contextlib.ExitStack):
        self.mode, self.small, self.stack = mode, small, stack
        self.disks = [self._disk(letter) for letter in "ab"]
        self.group = stack.enter_context(cores.group()) if mode == "kernel" else None
        self.drives: list[hdd.Disk] = []
        self.link: links.Link | None = None
        self.server: subprocess.Popen | None = None
        self.tables: dict[str, dict[str, Path]] = {}
        self.calibrated: dict[Config, str] = {}

    def _disk(self, letter: str) -> disks.Disk:
        # A disk takes memory only for its files; the second has every other file.
        options = {"size": {"a": "4GiB", "b": "2GiB"}[letter], "mode": self.mode, "calibrated": False}
        name = f"backtest-{os.getpid()}-{letter}"
        return self.stack.enter_context(disks.throttled("100MB/s", name=name, **options))

    def place(self, query: Query) -> None:
        """Copies the query's tables to the first disk, and every second file also to the second."""
        if query.name in self.tables:
            return
        self.tables[query.name] = data.ensure(query, self.small)
        self._lift_rates()
        for table, source in self.tables[query.name].items():
            for number, disk in enumerate(self.disks):
                folder = disk.path / query.data / table
                folder.mkdir(parents=True, exist_ok=True)
                for index in range(number, data.FILES, number + 1):
                    if not (folder / f"{index}.parquet").exists():
                        shutil.copy(source / f"{index}.parquet", folder)
        self._link(query, "throttled", self.disks)
        # Pending writes would disturb the first calibration.
        os.sync()

    def _link(self, query: Query, drive: str, disks: Sequence[disks.Disk | hdd.Disk]) -> None:
        """Makes folders of links to the files of a query on one disk, on two, and so on."""
        for table in query.tables:
            for count in range(1, len(disks) + 1):
                folder = self._links(query, table, drive, count)
                folder.mkdir(parents=True, exist_ok=True)
                for index in range(data.FILES):
                    link = folder / f"{index}.parquet"
                    if not link.is_symlink():
                        link.symlink_to(disks[index % count].path / query.data / table / link.name)

    def _lift_rates(self) -> None:
        for disk in self.disks:
            disk.set_rate(None)

    def place_on_drives(self, query: Query, count: int) -> None:
        """Copies the query's tables to emulated drives."""
        for number in range(len(self.drives), count):
            made = hdd.spinning("memory", name=f"backtest-{os.getpid()}-drive-{number}", size="4GiB", calibrated=False)
            self.drives.append(self.stack.enter_context(made))
        for drive in self.drives[:count]:
            drive.set_kind("memory")
            for table, source in self.tables[query.name].items():
                folder = drive.path / query.data / table
                if not folder.exists():
                    shutil.copytree(source, folder)
        self._link(query, "drive", self.drives)
        os.sync()

    def _on(self, config: Config) -> Sequence[disks.Disk | hdd.Disk]:
        """Returns the disks of a configuration."""
        return (self.disks if config.drive == "throttled" else self.drives)[: config.disks]

    def _folder(self, query: Query, table: str, config: Config) -> Path:
        return self._links(query, table, "throttled" if config.drive == "throttled" else "drive", config.disks)

    def _links(self, query: Query, table: str, drive: str, count: int) -> Path:
        return self.disks[0].folder / f"on-{count}-{drive}" / query.data / table

    def apply(self, config: Config) -> None:
        """Applies a configuration, in no time. Raises `LabError` if it needs root."""
        if self.mode != "kernel" and (config.disks > 1 or config.link_mbit or config.cores != config.threads):
            raise LabError(f"{config.name}: an engine-paced machine has one disk, whole cores and no links")
        for disk in self.disks:
            disk.set_rate(f"{config.disk_mb}MB/s")
        if config.drive != "throttled":
            for drive in self._on(config):
                drive.set_kind("H150R" if config.drive == "spinning" else f"SSD{config.disk_mb}")
                drive.set_rotational(config.drive == "spinning")
        if self.group:
            self.group.set(config.cores)
        if config.link_mbit:
            self._serve()
            self.link.set(f"{config.link_mbit}Mbit/s")

    def calibrate(self, config: Config) -> str:
        """Measures and describes a configuration's hardware. Raises `LabError` if it differs from the configuration."""
        self.apply(config)
        if self.mode != "kernel":
            return f"engine-paced {config.disk_mb} MB/s, {config.threads} threads"
        if (free := cores.canary()) < cores.CANARY:
            raise LabError(f"the machine is busy: canary {free:.2f}")
        said = [f"{self.group.calibrate():.2f} cores ({self.group.how})"]
        if config.link_mbit:
            said.append(f"link {self.link.calibrate() * 8e-6:.0f} Mbit/s")
        elif config.input == "storage":
            name = {"ssd": "emulated SSD", "spinning": "emulated H150R"}.get(config.drive, "disk")
            said += [f"{name} {disk.calibrate() / 1e6:.1f} MB/s" for disk in self._on(config)]
        return ", ".join(said)

    def _serve(self) -> None:
        """Starts the S3 server behind the link once, on the folders of the data."""
        if self.server:
            return
        self.link = self.stack.enter_context(links.link())
        program = [sys.executable, "-m", "harness.stores.s3", "--host", self.link.server, "--port", str(links.PORT), str(data.home())]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.server = self.link.start(program, cwd=binary.ROOT, **quiet)
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection((self.link.server, links.PORT), timeout=1):
                return
            time.sleep(0.05)
        raise LabError("the S3 server does not answer")

    def _server_core_s(self) -> float | None:
        """Returns the server's core time so far."""
        if not self.server:
            return None
        return core_seconds(self.server.pid)

    def _command(self, query: Query, config: Config, trace: Path) -> list[str]:
        command = self.group.prefix() if self.group else []
        command += [str(binary.binary()), "sql", "--quiet", "-f", str(QUERIES / f"{query.path}.sql")]
        command += ["--cores", str(config.threads), "--partitions", str(PARTITIONS)]
        command += ["--format", "csv", "--trace", str(trace)]
        if config.input.startswith("memory"):
            command += ["--input", config.input]
        for table, folder in self.tables[query.name].items():
            where = f"s3://data/{folder.relative_to(data.home())}/" if config.link_mbit else self._folder(query, table, config)
            command += ["--table", f"{table}={where}"]
        if config.drive == "throttled" and not config.link_mbit:
            for disk in self._on(config):
                command += disk.sql_options()
        if config.memory:
            command += ["--memory", config.memory]
            for disk in self._on(config):
                command += ["--spill-dir", str(disk.path)]
        return command

    def _prepare(self, query: Query, config: Config) -> None:
        """Brings the input to the configuration's location."""
        tables = self.tables[query.name]
        if config.link_mbit:
            # The server's own disk must not be measured.
            return cache.warm(sorted(file for folder in tables.values() for file in folder.iterdir()))
        if config.drive != "throttled":
            for drive in self._on(config):
                drive.evict(sorted(file for table in tables for file in (drive.path / query.data / table).iterdir()))
            return None
        folders = [self._links(query, table, "throttled", count) for table in tables for count in (1, 2)]
        files = sorted({file.resolve() for folder in folders for file in folder.iterdir()})
        if config.input == "storage":
            return cache.evict(files)
        # Filling the cache or memory is not measured, so the disk need not be slow.
        self._lift_rates()
        cache.warm(files)

    def run(self, query: Query, config: Config, trace: Path) -> dict:
        """Measures a run: time, bottleneck and ideal times from its trace, canary and server load."""
        self.apply(config)
        self._prepare(query, config)
        environment = os.environ | KEYS
        if config.link_mbit:
            url = f"http://{self.link.server}:{links.PORT}"
            environment |= {"AWS_ENDPOINT": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        free, served = cores.canary(), self._server_core_s()
        done = subprocess.run(
            self._command(query, config, trace),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=binary.TIMEOUT_S,
        )
        serving = self._server_core_s()
        if done.returncode:
            raise LabError(f"{query.name} on {config.name}: exit {done.returncode}: {done.stderr.strip()}")
        found = described(trace) | {"canary": round(min(free, cores.canary()), 3), "server_cores": None}
        if config.link_mbit:
            found["server_cores"] = round((serving - served) / (found["ms"] / 1e3), 3)
        return found


def described(trace: Path) -> dict:
    """Returns a run's time, bottleneck and ideal times from `pellucid analyze`."""
    (job,) = json.loads(binary.run("analyze", "--json", trace).check().out)["jobs"]
    return {
        "ms": round(job["duration_ms"], 3),
        "bottleneck": (job["bottleneck"] or {}).get("kind"),
        "ideal_ms": {kind: ms and round(ms, 1) for kind, ms in job["ideal_ms"].items()},
    }


@contextlib.contextmanager
def rig(mode: str, small: bool = False) -> Iterator[Rig]:
    """Sets up the hardware for a `with`, and always removes it afterwards."""
    if why_not := missing(mode):
        raise LabError(f"no emulated hardware here: {why_not}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(guard.watch())
        yield Rig(mode, small, stack)
