"""Damage to files and file systems."""

import contextlib
import os
from pathlib import Path


def fill(path: Path) -> None:
    """Fills the file system to its last block; O_SYNC writes each block before the next is allocated."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_SYNC)
    try:
        for size in (1 << 20, 4096, 512):
            with contextlib.suppress(OSError):
                while os.write(fd, bytes(size)):
                    pass
    finally:
        os.close(fd)


def flip(path: Path, byte: int) -> None:
    """Flips a bit of a byte of a file."""
    content = bytearray(path.read_bytes())
    content[byte] ^= 4
    path.write_bytes(content)
