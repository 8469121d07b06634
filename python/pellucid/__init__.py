"""Iterative jobs on partitioned arrays: programs of stages with Python kernels and a task overhead of nanoseconds.

    program = pellucid.Program()
    rows = program.array("rows", x, partitions=8)
    ...
    result = program.run()

See `Program` for building programs, and `kernel` for the functions that stages call.
"""

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
