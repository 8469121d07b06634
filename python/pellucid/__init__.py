"""Iterative jobs on partitioned arrays: programs of stages with Python kernels and a task overhead of nanoseconds.

    program = pellucid.Program()
    rows = program.array("rows", x, partitions=8)
    ...
    result = program.run()

See `Program` for building programs, and `kernel` for the functions that stages call. Names are imported when they are
first used, so that the command (`pellucid.__main__`) starts without numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid._native import Outgoing
    from pellucid.errors import Error, JobError, KernelError, ProgramError
    from pellucid.kernels import Kernel, kernel
    from pellucid.program import Branch, Dataset, Loop, Program, Result

__all__ = [
    "Branch",
    "Dataset",
    "Error",
    "JobError",
    "Kernel",
    "KernelError",
    "Loop",
    "Outgoing",
    "Program",
    "ProgramError",
    "Result",
    "kernel",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = (import_module(f"pellucid.{module}") for module in ("errors", "kernels", "program", "_native"))
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    return __all__
