"""Strangers beside an iterative job: connections to its ports from a process that does not know its secret.

`flood` keeps 300 connections open, spread over the ports, and opens each again when it is refused. A third sends
nothing, a third sends random bytes, and a third sends the start of a handshake slowly. `beside` runs it in a
process of the lowest priority. Even so it needs part of a core, so `decoy` gives it ports of another process instead:
a job that the strangers do not reach is the baseline of one that they reach.
"""

import collections
import contextlib
import heapq
import multiprocessing
import os
import random
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONNECTIONS = 300
# Time before a refused stranger connects again (so at most 300 connections a second), and between the bytes of a slow handshake.
AGAIN_S, SLOW_S = 1.0, 0.1
# Connections that the decoy keeps, and its pause after each that it closes, as a job does.
KEPT, REFUSAL_S = 64, 0.005
# Starts of handshakes, without and with encryption, and the first bytes of a TLS handshake.
SLOW = b"PLCDITR6\x00", b"PLCDITR6\x01\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
LISTENING = "0A"


def family(pid: int) -> list[int]:
    """Returns a process and all of its descendants."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def ports(pid: int) -> list[int]:
    """Returns the TCP ports on which a process and its descendants listen."""
    sockets = set()
    for member in family(pid):
        for file in Path(f"/proc/{member}/fd").glob("*"):
            try:
                sockets.add(os.readlink(file))
            except OSError:
                continue  # It was closed meanwhile.
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            return []  # The process ended.
        for line in lines:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENING and f"socket:[{inode}]" in sockets:
                found.add(int(local.rsplit(":", 1)[1], 16))
    return sorted(found)


class Stranger:
    """One connection that is opened again and again."""

    def __init__(self, number: int, port: int):
        self.number, self.port = number, port
        self.socket, self.rest = None, b""

    def open(self) -> None:
        """Starts to connect."""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        kind = self.number % 3
        self.rest = b"" if kind == 0 else random.randbytes(64) if kind == 1 else SLOW[self.number % 2]
        self.socket.connect_ex(("127.0.0.1", self.port))

    def send(self) -> None:
        """Sends all of the random bytes, or the next byte of a slow handshake."""
        count = 1 if self.number % 3 == 2 else len(self.rest)
        with contextlib.suppress(BlockingIOError):
            self.rest = self.rest[self.socket.send(self.rest[:count]) :]

    def is_refused(self) -> bool:
        """Reads everything. Returns whether the other end closed the connection."""
        try:
            while self.socket.recv(4096):
                pass
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True


def flood(ports: list[int], stop, opened=None) -> None:
    """Keeps `CONNECTIONS` connections to the ports open until the event `stop` is set. Counts in `opened`, a
    shared integer, how often one was opened.
    """
    selector = selectors.DefaultSelector()
    # When to open (no socket) or to send: time, tie-breaker, stranger.
    due = [(0.0, number, Stranger(number, ports[number // 3 % len(ports)])) for number in range(CONNECTIONS)]
    while not stop.is_set():
        now = time.monotonic()
        while due and due[0][0] <= now:
            _, number, stranger = heapq.heappop(due)
            try:
                if stranger.socket is None:
                    stranger.open()
                    selector.register(stranger.socket, selectors.EVENT_READ, stranger)
                    if opened is not None:
                        opened.value += 1
                else:
                    stranger.send()
            except OSError:
                pass  # Not connected yet, or refused; the selector reports that.
            if stranger.rest:
                heapq.heappush(due, (now + (0.001 if number % 3 == 1 else SLOW_S), number, stranger))
        for key, _ in selector.select(min(0.05, max(due[0][0] - now, 0)) if due else 0.05):
            stranger = key.data
            if stranger.is_refused():
                selector.unregister(stranger.socket)
                stranger.socket.close()
                stranger.socket, stranger.rest = None, b""
                due = [entry for entry in due if entry[2] is not stranger]
                heapq.heapify(due)
                heapq.heappush(due, (now + AGAIN_S, stranger.number, stranger))


def _process(ports: list[int], stop, opened) -> None:
    os.nice(19)
    flood(ports, stop, opened)


@contextmanager
def beside(ports: list[int]) -> Iterator:
    """Floods the ports meanwhile. Yields the shared number of connections opened."""
    context = multiprocessing.get_context("spawn")
    stop, opened = context.Event(), context.Value("q", 0, lock=False)
    process = context.Process(target=_process, args=(ports, stop, opened), daemon=True)
    process.start()
    try:
        yield opened
    finally:
        stop.set()
        process.join()


def _accept(stop, connection) -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    connection.send([listener.getsockname()[1] for listener in listeners])
    selector = selectors.DefaultSelector()
    for listener in listeners:
        selector.register(listener, selectors.EVENT_READ, collections.deque())
    while not stop.is_set():
        for key, _ in selector.select(0.05):
            key.data.append(key.fileobj.accept()[0])
            if len(key.data) > KEPT:
                key.data.popleft().close()
                time.sleep(REFUSAL_S)


@contextmanager
def decoy() -> Iterator[list[int]]:
    """Yields three ports of a process that accepts connections, keeps some, and closes the oldest of the others."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    stop = context.Event()
    process = context.Process(target=_accept, args=(stop, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        stop.set()
        process.join()
