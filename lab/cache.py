"""Inspects and controls what the page cache holds of a file.

Cold runs depend on it: `evict` drops a file's pages and then asks the kernel whether they
are gone. It never drops the whole machine's cache, which would disturb everything else
that runs. It works on the caller's own clean files, without root.
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
    """Maps the whole file without reading it, and yields the address."""
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
    """Returns the bytes of the file in the page cache, by `mincore(2)`, without reading it."""
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
    """Writes the files' dirty pages to disk and drops all of their pages from the page cache.

    Raises `RuntimeError` with the path if pages stay (a process has the file mapped,
    or the file system lacks `POSIX_FADV_DONTNEED`, as tmpfs does).
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
                    f"cannot evict {path}: {resident_bytes(path)} bytes stay in the page cache; is the file on tmpfs, or mapped by a running process?"
                )
        finally:
            os.close(fd)


def warm(paths: Iterable[Path]) -> None:
    """Reads the files once, so that they are in the page cache."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Locks all of a file in memory for the duration of a `with`; yields whether that worked.

    Some virtual machines page out memory that was unused for some seconds (DAMON), including a
    program's own text. The next run then reads it from its device.
    """
    size = os.stat(path).st_size
    with _mapped(path, size) as address:
        yield _libc.mlock(address, size) == 0
