"""What can go wrong. All of it is an `Error`."""


class Error(Exception):
    """Anything that Pellucid raises by itself."""


class ProgramError(Error):
    """A program that cannot be run: found while it is built, before anything runs."""


class JobError(Error):
    """A job that did not end well."""


class KernelError(JobError):
    """A kernel that raised, on the partition that it raised on."""

    def __init__(self, kernel: str, partition: int, cause: str) -> None:
        super().__init__(f"kernel {kernel!r}, partition {partition}: {cause}")
        self.kernel = kernel
        self.partition = partition
        self.cause = cause

    def __reduce__(self) -> tuple:
        return KernelError, (self.kernel, self.partition, self.cause)
