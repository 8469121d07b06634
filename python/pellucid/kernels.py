"""Kernels: what a stage calls on each partition.

Any callable that takes arrays is one; it holds Python's lock unless it gives it up itself, as functions do
that numba compiled with `nogil=True`. A function marked with `kernel` is compiled by numba for the very types
of the arrays, and is called by the engine without Python: for a task, that is nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pellucid.errors import ProgramError

# Types and numbers of dimensions of the arrays that a kernel takes.
Signature = tuple[tuple[np.dtype, int], ...]


class Kernel:
    """A function that numba compiles when a program uses it. Made by `kernel`."""

    def __init__(self, function: Callable[..., None], options: dict[str, Any]) -> None:
        try:
            import numba
        except ImportError as error:
            raise ProgramError(
                f"kernel {function.__name__!r} needs numba, which is not installed (pip install numba); "
                "a function that is not marked as a kernel runs without it, under Python's lock"
            ) from error
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.function = function
        self.compiled = numba.njit(nogil=True, **options)(function)
        self.entries: dict[Signature, Any] = {}

    def __call__(self, *arrays: np.ndarray) -> None:
        """Runs it here and now."""
        self.compiled(*arrays)

    def address(self, signature: Signature) -> int:
        """Where the machine code for arrays of these types begins."""
        if signature not in self.entries:
            self.entries[signature] = self._compile(signature)
        return self.entries[signature].address

    def _compile(self, signature: Signature) -> Any:
        import numba
        from numba import types

        # The engine hands over pointers and lengths (see src/kernel.rs); what makes arrays of them has to have
        # as many arguments as the function, so that it is written out.
        lines, at = ["def entry(pointers, lengths):", "    try:", "        function("], 0
        names: dict[str, Any] = {"carray": numba.carray, "function": self.compiled}
        for number, (dtype, dimensions) in enumerate(signature):
            names[f"dtype{number}"] = dtype.type
            lengths = "".join(f"lengths[{at + d}], " for d in range(dimensions))
            lines.append(f"            carray(pointers[{number}], ({lengths}), dtype{number}),")
            at += dimensions
        lines += ["        )", "        return 0", "    except Exception:", "        return 1"]
        exec("\n".join(lines), names)
        entry = types.int32(types.CPointer(types.voidptr), types.CPointer(types.intp))
        try:
            return numba.cfunc(entry)(names["entry"])
        except numba.core.errors.NumbaError as error:
            arrays = ", ".join(f"{dtype} of {dimensions} dimensions" for dtype, dimensions in signature)
            raise ProgramError(f"kernel {self.__name__!r} does not compile for ({arrays}): {error}") from error


def kernel(function: Callable[..., None] | None = None, **options: Any) -> Any:
    """Marks a function over arrays as a kernel: first those that it reads, then those that it writes.

    It has to be one that numba compiles without Python's objects; `options` are numba's (`fastmath=True`).
    """
    if function is None:
        return lambda function: Kernel(function, options)
    return Kernel(function, options)


def signature(arrays: Sequence[np.ndarray]) -> Signature:
    """What a kernel is compiled for."""
    return tuple((array.dtype, array.ndim) for array in arrays)
