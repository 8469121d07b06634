"""Makes a link of a known rate to another network namespace, in which a server runs.

    with links.link() as link:
        link.set("500Mbit/s")
        link.calibrate()
        server = link.start(["s3s-fs", "--host", link.server, …])

Consists of a veth pair with one end here and one in its own namespace. A token bucket (`tc … tbf`)
shapes both ends, since a bucket limits outgoing traffic only. A rate is goodput, as a client sees
it: the bucket gets more, by the share of TCP's and IP's headers. The link has neither latency nor
loss (the kernel has no netem here). Names contain the owner's process; `clean` removes links
whose owner is gone, with the processes in them. Needs root, `ip` and `tc`.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.disks import LabError, alive
from lab.kernel import run
from lab.rates import TOLERANCE, off_by

NAME = "pellucid-lab-"
# TCP with timestamps over IPv4 carries 1448 bytes in an Ethernet frame of 1514 bytes.
PAYLOAD = 1448 / 1514
BURST_BYTES = 256 << 10
PORT = 8014


def missing() -> str | None:
    """Returns why this machine cannot make links; None if it can."""
    if os.geteuid() != 0:
        return "not root"
    absent = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    if absent:
        return f"not installed: {', '.join(absent)} (apt-get install iproute2)"
    tried = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    return f"no network namespaces: {tried.stderr.strip()}" if tried.returncode else None


def parse_bits(text: str) -> int:
    """Parses `100Mbit/s` to bytes per second."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG])bit/s\s*", text, re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise ValueError(f"invalid link rate {text!r}: expected for example 100Mbit/s")
    return int(float(match[1]) * {"K": 1e3, "M": 1e6, "G": 1e9}[match[2].upper()] / 8)


@dataclass
class Link:
    """One link. Rates are goodput in bytes per second; None means not shaped, or not measured."""

    owner: int
    rate: int | None = None
    measured: float | None = None
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """The namespace of the server."""
        return f"{NAME}{self.owner}"

    @property
    def ends(self) -> tuple[str, str]:
        """Names of the devices, here and in the namespace. A name has at most 15 characters."""
        return f"pl{self.owner}a", f"pl{self.owner}b"

    def _address(self, last: int) -> str:
        # 198.18.0.0/15 is reserved for benchmarks (RFC 2544); each owner gets four addresses.
        number = (self.owner % (1 << 15)) * 4 + last
        return f"198.{18 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"

    @property
    def client(self) -> str:
        """The address of this end."""
        return self._address(1)

    @property
    def server(self) -> str:
        """The address of the other end."""
        return self._address(2)

    def inside(self, *command: str) -> list[str]:
        """Returns the command with a prefix that runs it in the namespace."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a server in the namespace; it is killed with the link."""
        self.processes.append(subprocess.Popen(self.inside(*command), **options))
        return self.processes[-1]

    def set(self, rate: str | None) -> None:
        """Shapes both directions; None removes the limit."""
        self.rate, self.measured = (parse_bits(rate) if rate else None), None
        here, there = self.ends
        for device, prefix in ((here, []), (there, self.inside())):
            subprocess.run([*prefix, "tc", "qdisc", "del", "dev", device, "root"], capture_output=True)
            if self.rate:
                bits = f"{int(self.rate * 8 / PAYLOAD)}bit"
                bucket = ["tbf", "rate", bits, "burst", str(BURST_BYTES), "latency", "50ms"]
                run(*prefix, "tc", "qdisc", "add", "dev", device, "root", *bucket)

    def calibrate(self, seconds: float = 2.0) -> float:
        """Measures goodput from the server; raises `LabError` if it is more than 5 % off."""
        sender = subprocess.Popen(self.inside(sys.executable, "-B", "-c", SENDER, self.server, str(PORT - 1)), stdout=subprocess.PIPE)
        assert sender.stdout
        try:
            sender.stdout.readline()
            self.measured = _received(self.server, PORT - 1, seconds)
        finally:
            sender.kill()
            sender.wait()
            sender.stdout.close()
        if self.rate and off_by(self.rate, self.measured) > TOLERANCE:
            raise LabError(f"requested {self.rate * 8e-6:.0f} Mbit/s, measured {self.measured * 8e-6:.0f}: the run is void")
        return self.measured

    def remove(self) -> None:
        """Kills the namespace's processes by pid, and removes link and namespace."""
        # Processes started a moment ago may not be in the namespace yet.
        for process in self.processes:
            process.kill()
        pids = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True).stdout.split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.wait()
        # Deleting this end also deletes the other.
        for command in (["ip", "link", "del", self.ends[0]], ["ip", "netns", "del", self.namespace]):
            subprocess.run(command, capture_output=True)


# Sends zeros to the first client; a separate program, so that it can run in the namespace.
SENDER = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
connection, _ = listener.accept()
zeros = bytes(1 << 18)
try:
    while True:
        connection.sendall(zeros)
except OSError:
    pass
"""


def _received(server: str, port: int, seconds: float) -> float:
    """Returns bytes per second from a sender, after half a second for the connection to speed up."""
    with socket.create_connection((server, port), timeout=10) as connection:
        start, counted_from, moved = time.monotonic(), None, 0
        while True:
            got = len(connection.recv(1 << 18))
            if not got:
                raise LabError("cannot calibrate the link: the sender exited early")
            now = time.monotonic()
            moved += got
            if counted_from is None and now - start >= 0.5:
                counted_from, moved = now, 0
            if counted_from is not None and now - counted_from >= seconds:
                return moved / (now - counted_from)


def make() -> Link:
    """Makes an unshaped link owned by this process, and undoes all steps if one fails."""
    if why_not := missing():
        raise LabError(f"cannot make a link: {why_not}")
    link = Link(os.getpid())
    here, there = link.ends
    try:
        run("ip", "netns", "add", link.namespace)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", link.namespace)
        run("ip", "addr", "add", f"{link.client}/30", "dev", here)
        run("ip", "link", "set", here, "up")
        run(*link.inside("ip", "addr", "add", f"{link.server}/30", "dev", there))
        for device in ("lo", there):
            run(*link.inside("ip", "link", "set", device, "up"))
    except BaseException:
        link.remove()
        raise
    return link


@contextlib.contextmanager
def link() -> Iterator[Link]:
    """Makes a link for the duration of a `with`."""
    made = make()
    try:
        yield made
    finally:
        made.remove()


def clean() -> list[str]:
    """Removes links whose owner is gone, and returns their names."""
    if missing():
        return []
    removed = []
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        owner = name.removeprefix(NAME)
        if name.startswith(NAME) and owner.isdigit() and not alive(int(owner)):
            Link(int(owner)).remove()
            removed.append(name)
    return removed
