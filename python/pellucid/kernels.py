"""Kernels: the functions that a stage calls on each partition.

Any callable that takes arrays can be a kernel. It runs under the GIL unless it releases it, as functions
compiled by numba with `nogil=True` do. numba compiles a function marked with `kernel` for the types of its
arrays, and the engine calls it without Python, which takes nanoseconds per task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pellucid.errors import ProgramError

# Types and numbers of dimensions of a kernel's arrays.
Signature = tuple[tuple[np.dtype, int], ...]


class Kernel:
    """A function that numba compiles when a program uses it. Created by `kernel`."""

    def __init__(self, function: Callable[..., None], options: dict[str, Any]) -> None:
        try:
            import numba
        except ImportError as error:
            raise ProgramError(
                f"kernel {function.__name__!r} needs numba, which is not installed; run `pip install numba`, "
                "or remove the decorator to run the function under the GIL"
            ) from error
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.function = function
        self.compiled = numba.njit(nogil=True, **options)(function)
        self.entries: dict[Signature, Any] = {}

    def __call__(self, *arrays: np.ndarray) -> None:
        """Runs the kernel on the given arrays."""
        self.compiled(*arrays)

    def address(self, signature: Signature) -> int:
        """Returns the address of the machine code for arrays of these types."""
        if signature not in self.entries:
            self.entries[signature] = self._compile(signature)
        return int(self.entries[signature].address)

    def _compile(self, signature: Signature) -> Any:
        import numba
        from numba import types

        # The engine passes pointers and lengths (see src/kernel.rs). The wrapper that turns them into arrays
        # needs as many arguments as the function has, so its source is generated.
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
    """Marks a function as a kernel. Its arguments are the arrays that it reads, then those that it writes.

    numba must be able to compile it in nopython mode. `options` are passed to numba (`fastmath=True`).
    """
    if function is None:
        return lambda function: Kernel(function, options)
    return Kernel(function, options)


def signature(arrays: Sequence[np.ndarray]) -> Signature:
    """Returns the types and dimensions of arrays, for which a kernel is compiled."""
    return tuple((array.dtype, array.ndim) for array in arrays)
