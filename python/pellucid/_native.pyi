"""The native module built from src/lib.rs. Private to this package: it may change in any version."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypedDict

import numpy as np
import numpy.typing as npt

def main(arguments: list[str], interpreter: str, module: str) -> NoReturn:
    """Runs the command with these arguments in this process, and exits with its code."""

class View:
    """An array's memory, exposed to numpy."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class Outgoing:
    """The output of a scatter."""

    def send(self, to: int, array: npt.ArrayLike) -> None:
        """Sends an array to one partition. At most one array can be sent to each."""

    def send_all(self, array: npt.ArrayLike) -> None:
        """Sends an array to every partition on the route that is sent no other."""

    @property
    def source(self) -> int:
        """The partition that sends."""

    @property
    def partitions(self) -> int:
        """Number of destination partitions."""

class Outcome:
    """The outcome of a run."""

    def partitions(self, dataset: int) -> list[np.ndarray]: ...
    @property
    def iterations(self) -> int: ...
    @property
    def resumed_at(self) -> int | None: ...
    @property
    def tasks(self) -> int: ...
    @property
    def elapsed_s(self) -> float | None: ...
    @property
    def iteration_s(self) -> list[float]: ...
    @property
    def busy_s(self) -> float | None: ...
    @property
    def observed(self) -> dict[str, float]: ...

class Options(TypedDict):
    """Options for running a program."""

    threads: int | None
    trace: str | None
    snapshot: str | None
    snapshot_every: int
    progress: Callable[[dict[str, Any]], Any] | None
    wait_limit_s: float

class Program:
    """A program under construction; datasets are identified by their numbers."""

    def __init__(self, name: str) -> None: ...
    def dataset(self, name: str, partitions: Sequence[np.ndarray]) -> int: ...
    def transform(self, name: str, callable: Callable[..., Any], address: int | None, reads: list[int], writes: list[int]) -> None: ...
    def broadcast(self, name: str, source: int, to: int) -> None: ...
    def reduce(self, name: str, source: int, into: int, operation: str) -> None: ...
    def exchange(
        self,
        name: str,
        halves: tuple[Callable[..., Any], Callable[..., Any]],
        sources: list[int],
        routes: list[list[int]] | None,
        reads: list[int],
        writes: list[int],
    ) -> None: ...
    def observe(self, name: str, on: int) -> None: ...
    def begin_loop(self, name: str, max_iterations: int) -> None: ...
    def end_loop(self, until: int | None) -> None: ...
    def begin_branch(self, name: str, on: int) -> None: ...
    def otherwise(self) -> None: ...
    def end_branch(self) -> None: ...
    def run(self, options: Options) -> Outcome: ...
