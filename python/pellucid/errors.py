"""Exceptions of the package; all derive from `Error`."""


class Error(Exception):
    """The base class of Pellucid's exceptions."""


class ProgramError(Error):
    """An invalid program or option, found before anything runs."""


class JobError(Error):
    """A failed job."""


class KernelError(JobError):
    """An exception raised by a kernel, with the kernel's name and partition."""

    def __init__(self, kernel: str, partition: int, cause: str) -> None:
        super().__init__(f"kernel {kernel!r}, partition {partition}: {cause}")
        self.kernel = kernel
        self.partition = partition
        self.cause = cause

    def __reduce__(self) -> tuple[type["KernelError"], tuple[str, int, str]]:
        return KernelError, (self.kernel, self.partition, self.cause)
