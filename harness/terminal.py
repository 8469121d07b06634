"""Runs the command on a pseudo-terminal."""

import fcntl
import os
import pty
import struct
import termios
import threading
from pathlib import Path

from harness import binary

SCREEN_LINES, SCREEN_COLUMNS = 24, 80


def on_terminal(columns: int, *args: str | Path) -> str:
    """Returns the command's output on a terminal of this width."""
    master_fd, slave_fd = pty.openpty()
    fcntl.ioctl(slave_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    process = binary.start(*args, stdout=slave_fd, stderr=slave_fd, env=environment)
    os.close(slave_fd)
    shown = b""
    try:
        while piece := os.read(master_fd, 1 << 16):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(master_fd)
    process.wait()
    return shown.decode().replace("\r\n", "\n")


def on_screen(*args: str | Path) -> str:
    """Returns the command's output on a terminal of 80 by 24."""
    master_fd, slave_fd = pty.openpty()
    fcntl.ioctl(slave_fd, termios.TIOCSWINSZ, struct.pack("HHHH", SCREEN_LINES, SCREEN_COLUMNS, 0, 0))
    process = binary.start(*args, "--color", "never", stdout=slave_fd)
    os.close(slave_fd)
    printed: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(master_fd, 65536):
                printed.append(part)
        except OSError:  # Linux reports that the other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    _, err = process.communicate(timeout=binary.TIMEOUT_S)
    reader.join()
    os.close(master_fd)
    assert process.returncode == 0, err
    return b"".join(printed).decode().replace("\r\n", "\n")
