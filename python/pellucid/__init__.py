"""Iterative jobs on partitioned arrays: a program of stages, kernels in Python, tasks of nanoseconds.

    program = pellucid.Program()
    rows = program.array("rows", x, partitions=8)
    ...
    result = program.run()

`Program` says how one is built, `kernel` what a stage may call.
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
