"""Arrays of the Python package are not copied, and compiled kernels write them without the GIL."""

import ctypes
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest


def test_read_only_arrays_are_not_copied(pellucid):
    """Kernels and the caller see the same memory, for numpy's and Arrow's arrays."""
    for given in (np.arange(1000.0), pa.array(np.arange(1000.0))):
        array = np.asarray(given)
        program, seen = pellucid.Program("where"), []
        rows = program.array("rows", given, 4)
        out = program.zeros("out", 1, 4)
        program.transform(lambda rows, out: seen.append((rows.ctypes.data, rows.flags.writeable)), reads=[rows], writes=[out])
        result = program.run()
        start = array.ctypes.data
        assert sorted(seen) == [(start + 8 * 250 * part, False) for part in range(4)]
        assert (result[rows] == array).all()


def test_results_are_returned_without_a_copy(pellucid):
    program = pellucid.Program("out")
    out = program.zeros("out", 4)

    def fill(out):
        out[:] = [1, 2, 3, 4]

    program.transform(fill, writes=[out])
    result = program.run()
    first, second = result[out], result[out]
    assert first.tolist() == [1, 2, 3, 4] and np.shares_memory(first, second)
    arrow = pa.array(first)
    assert arrow.buffers()[1].address == first.ctypes.data


def test_compiled_kernel_runs_while_the_gil_is_held(pellucid):
    """A counter that the kernel writes keeps rising during a C call that holds the GIL."""
    board, enough = np.zeros(1, np.int64), threading.Event()

    @pellucid.kernel
    def count(board, out):
        board[0] += 1
        out[0] = board[0]

    program = pellucid.Program("endless")
    seen, out = program.array("board", board), program.zeros("out", 1, dtype=np.int64)
    with program.loop(1 << 60):
        program.transform(count, reads=[seen], writes=[out])

    def progress(now):
        if enough.is_set():
            raise InterruptedError

    def run():
        with pytest.raises(InterruptedError):
            program.run(progress=progress)

    thread = threading.Thread(target=run)
    thread.start()
    usual = sys.getswitchinterval()
    sleep_locked = ctypes.PyDLL(None).usleep
    try:
        while board[0] == 0:
            time.sleep(0.001)
        sys.setswitchinterval(1e3)
        advanced = False
        for _ in range(200):
            before = board[0]
            sleep_locked(10_000)
            advanced |= bool(board[0] > before)
            if advanced:
                break
    finally:
        sys.setswitchinterval(usual)
        enough.set()
        thread.join(timeout=60)
    assert advanced and not thread.is_alive()
