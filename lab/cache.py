"""What the page cache holds of a file, and getting it out of there.

A cold run is cold only if this says so: `evict` drops a file's pages and then asks
the kernel whether they are gone. It never drops the whole machine's cache, which
would disturb everything else that runs. Works on one's own clean files, without root.
"""

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


@contextlib.contextmanager
def _mapped(path: Path, size: int) -> Iterator[int]:
    """The address at which the whole file is mapped meanwhile; reads nothing."""
    fd = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap", str(path))
    try:
        yield address
    finally:
        _libc.munmap(address, size)


def resident_bytes(path: Path) -> int:
    """Bytes of the file that the page cache holds, by `mincore(2)`; reads nothing."""
    size = os.stat(path).st_size
    if size == 0:
        return 0
    with _mapped(path, size) as address:
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        held = ctypes.create_string_buffer(pages)
        if _libc.mincore(address, size, held) != 0:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        return sum(byte & 1 for byte in held.raw[:pages]) * mmap.PAGESIZE


def evict(paths: Iterable[Path]) -> None:
    """Writes the files' dirty pages out and drops them all from the page cache.

    Raises `RuntimeError` with the path if something keeps pages there (a process
    that has the file mapped, or a file system without `POSIX_FADV_DONTNEED`: tmpfs).
    """
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            for attempt in range(10):
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                if resident_bytes(path) == 0:
                    break
                time.sleep(0.02 * attempt)  # pages under writeback or in a per-core list
            else:
                raise RuntimeError(
                    f"{path}: {resident_bytes(path)} bytes stay in the page cache; "
                    "is the file on tmpfs, or mapped by a running process?"
                )
        finally:
            os.close(fd)


def warm(paths: Iterable[Path]) -> None:
    """Reads the files once, so that the page cache holds them."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Keeps all of a file in memory for the length of a `with`; says whether it could.

    Some virtual machines page out what was not used for some seconds (DAMON), a program's own
    text included, and who runs it then reads it from its device.
    """
    size = os.stat(path).st_size
    with _mapped(path, size) as address:
        yield _libc.mlock(address, size) == 0
