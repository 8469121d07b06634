"""Programs of datasets and stages, and running them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pellucid import _native
from pellucid.errors import ProgramError
from pellucid.kernels import Kernel, signature


class Dataset:
    """An array for each partition, of a program that made it."""

    def __init__(self, program: Program, number: int, name: str, arrays: list[np.ndarray]) -> None:
        self.program = program
        self.number = number
        self.name = name
        # What the partitions begin with.
        self.arrays = arrays
        self.written = False

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self.arrays)

    def __repr__(self) -> str:
        return f"<dataset {self.name!r}, {self.partitions} partitions of {self.arrays[0].dtype}>"


class Loop:
    """A loop while its body is recorded."""

    def __init__(self, program: Program, name: str) -> None:
        self._program = program
        self._name = name
        self._flag: Dataset | None = None

    def until(self, dataset: Dataset, condition: Callable[[np.ndarray], Any] | None = None) -> None:
        """Ends the loop after an iteration in which `condition` is true of the dataset's one partition.

        Without a condition: in which the array has anything that is not zero, which a kernel may have written.
        """
        if self._flag is not None:
            raise ProgramError(f"loop {self._name!r} has two ends; combine their conditions in one")
        flag = self._program._only(dataset, "until")
        if condition is not None:
            flag = self._program.zeros(f"{self._name}: end", 1, dtype=np.bool_)

            def evaluate(array: np.ndarray, end: np.ndarray) -> None:
                end[0] = bool(condition(array))

            name = f"{self._name}: until"
            self._program.transform(evaluate, reads=[dataset], writes=[flag], name=name)
        self._flag = flag


class Branch:
    """A branch while its bodies are recorded."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @contextlib.contextmanager
    def otherwise(self) -> Iterator[None]:
        """What runs where the branch's dataset is all zeros. Comes once, inside the branch, after all else."""
        try:
            self._program._native.otherwise()
        except ValueError as error:
            raise ProgramError(str(error)) from error
        yield


class Result:
    """What a run gave: `result[dataset]` is the array of a dataset, partitions one after the other."""

    def __init__(self, outcome: _native.Outcome, datasets: Sequence[Dataset]) -> None:
        self._outcome = outcome
        self._datasets = {dataset.number: (dataset, dataset.written) for dataset in datasets}

    def partitions(self, dataset: Dataset) -> list[np.ndarray]:
        """The dataset's partitions, without a copy."""
        # What later stages write is not of this run.
        known, written = self._datasets.get(dataset.number, (None, False))
        if known is not dataset:
            raise ProgramError(f"{dataset!r} is of another program, or came after this run")
        return self._outcome.partitions(dataset.number) if written else dataset.arrays

    def __getitem__(self, dataset: Dataset) -> np.ndarray:
        arrays = self.partitions(dataset)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    @property
    def iterations(self) -> int:
        """Iterations of outermost loops."""
        return self._outcome.iterations

    @property
    def resumed_at(self) -> int | None:
        """The iteration of an earlier run's snapshot that it went on from; none: it began at its start."""
        return self._outcome.resumed_at

    @property
    def tasks(self) -> int:
        """Tasks that ran."""
        return self._outcome.tasks

    @property
    def elapsed_s(self) -> float | None:
        """Seconds from start to end, loading included."""
        return self._outcome.elapsed_s

    @property
    def iteration_s(self) -> list[float]:
        """Seconds of each iteration, the first left out."""
        return self._outcome.iteration_s

    @property
    def busy_s(self) -> float | None:
        """Core time in tasks, in seconds."""
        return self._outcome.busy_s

    @property
    def observed(self) -> dict[str, float]:
        """The last numbers of what the program observes, by name."""
        return self._outcome.observed


class Program:
    """Datasets, and stages over them in the order in which they are to appear to run.

    Nothing runs before `run`, which may be called any number of times.
    """

    def __init__(self, name: str = "program") -> None:
        self._native = _native.Program(name)
        self._datasets: list[Dataset] = []

    def array(self, name: str, data: Any, partitions: int = 1) -> Dataset:
        """A dataset of an array's rows, divided into equal runs of them.

        `data` is an array of numpy's or Arrow's, or anything that numpy makes an array of. It is not copied if
        it is contiguous and no stage writes the dataset; do not change it while the program runs.
        """
        array = np.require(np.asarray(data), requirements=["C", "A"])
        if array.ndim == 0:
            array = array.reshape(1)
        if partitions < 1 or partitions > max(len(array), 1):
            raise ProgramError(f"dataset {name!r}: {len(array)} rows cannot be divided into {partitions} partitions")
        bounds = [len(array) * at // partitions for at in range(partitions + 1)]
        return self.arrays(name, [array[low:high] for low, high in zip(bounds, bounds[1:])])

    def arrays(self, name: str, arrays: Sequence[Any]) -> Dataset:
        """A dataset by the array of each partition."""
        given = [np.require(np.asarray(array), requirements=["C", "A"]) for array in arrays]
        if not given:
            raise ProgramError(f"dataset {name!r} has no partition; give it one or more")
        if len({(array.dtype, array.ndim) for array in given}) > 1:
            raise ProgramError(f"dataset {name!r} has partitions of several types or dimensions")
        try:
            number = self._native.dataset(name, given)
        except (TypeError, ValueError) as error:
            raise ProgramError(f"dataset {name!r}: {error}") from error
        dataset = Dataset(self, number, name, given)
        self._datasets.append(dataset)
        return dataset

    def zeros(
        self, name: str, shape: int | tuple[int, ...], partitions: int = 1, dtype: Any = np.float64
    ) -> Dataset:
        """A dataset whose every partition is an array of zeros of this shape."""
        return self.arrays(name, [np.zeros(shape, dtype)] * partitions)

    def transform(
        self,
        kernel: Callable[..., Any],
        *,
        reads: Sequence[Dataset] = (),
        writes: Sequence[Dataset],
        name: str | None = None,
    ) -> None:
        """A stage of one task a partition: `kernel` gets the arrays of one index, those that it reads first.

        It changes those that it writes in place, and may read them; a dataset is named once.
        """
        name = name or getattr(kernel, "__name__", "kernel")
        datasets = [*reads, *writes]
        self._together(datasets, name)
        address = None
        if isinstance(kernel, Kernel):
            address = kernel.address(signature([dataset.arrays[0] for dataset in datasets]))
        for dataset in writes:
            dataset.written = True
        numbers = [[dataset.number for dataset in side] for side in (reads, writes)]
        try:
            self._native.transform(name, kernel, address, *numbers)
        except ValueError as error:
            raise ProgramError(f"stage {name!r}: {error}") from error

    def broadcast(self, source: Dataset, to: Dataset, name: str | None = None) -> None:
        """Copies the one partition of `source` to every partition of `to`."""
        name = name or f"{source.name} to {to.name}"
        self._same(self._only(source, name), to, name)
        to.written = True
        self._native.broadcast(name, source.number, to.number)

    def reduce(
        self,
        source: Dataset,
        into: Dataset,
        operation: Literal["sum", "min", "max"] = "sum",
        name: str | None = None,
    ) -> None:
        """Combines the partitions of `source`, number by number, into the one of `into`.

        The order is fixed by the partitions: the result does not depend on how many workers there are.
        """
        name = name or f"{operation} of {source.name}"
        self._same(self._only(into, name), source, name)
        into.written = True
        try:
            self._native.reduce(name, source.number, into.number, operation)
        except ValueError as error:
            raise ProgramError(str(error)) from error

    def exchange(
        self,
        scatter: Callable[..., Any],
        gather: Callable[..., Any],
        *,
        sources: Sequence[Dataset],
        writes: Sequence[Dataset],
        reads: Sequence[Dataset] = (),
        routes: Sequence[Sequence[int]] | None = None,
        name: str | None = None,
    ) -> None:
        """Sends arrays from each partition of `sources` to partitions of `writes`, however many either has.

        `scatter` gets the arrays of `sources` of one index, and an `Outgoing`: `send(to, array)` sends a copy to one
        partition, `send_all(array)` to all that get nothing else. `gather` gets the arrays of `reads` and `writes` of one
        index, as a stage does, and a list of `(source, array)` in the order of the sources. It runs when all of them
        have been heard of, those too that sent it nothing. `routes` says to which partitions each source may send
        (default: to all), so that nobody waits for others. Both halves are called under Python's lock; what takes
        long in them can be compiled with `numba.njit(nogil=True)`.
        """
        name = name or getattr(scatter, "__name__", "exchange")
        for half in (scatter, gather):
            if isinstance(half, Kernel):
                raise ProgramError(
                    f"exchange {name!r}: {half.__name__!r} is a compiled kernel, which cannot send; "
                    "give a function that calls one"
                )
        self._together(sources, name)
        self._together([*reads, *writes], name)
        if not writes:
            raise ProgramError(f"exchange {name!r} writes no dataset; name where it arrives")
        for dataset in writes:
            dataset.written = True
        given = None if routes is None else [[int(to) for to in route] for route in routes]
        numbers = [[dataset.number for dataset in side] for side in (sources, reads, writes)]
        try:
            self._native.exchange(name, (scatter, gather), numbers[0], given, *numbers[1:])
        except (OverflowError, ValueError) as error:
            raise ProgramError(f"exchange {name!r}: {error}") from error

    def observe(self, dataset: Dataset, name: str | None = None) -> None:
        """Shows the first number of the dataset's one partition, as it is here, as progress."""
        name = name or dataset.name
        self._native.observe(name, self._only(dataset, name).number)

    @contextlib.contextmanager
    def loop(self, iterations: int, name: str = "loop") -> Iterator[Loop]:
        """`with program.loop(100) as it:` repeats what its body records, at most so many times."""
        if not 1 <= iterations < 2**63:
            raise ProgramError(f"loop {name!r}: {iterations} iterations; it runs once or more, and not for ever")
        self._native.begin_loop(name, iterations)
        loop = Loop(self, name)
        yield loop
        self._native.end_loop(None if loop._flag is None else loop._flag.number)

    @contextlib.contextmanager
    def when(self, dataset: Dataset, name: str = "branch") -> Iterator[Branch]:
        """`with program.when(flag) as branch:` runs what its body records where the array is not all zeros.

        Inside, `with branch.otherwise():` after all else begins what runs where it is.
        """
        self._native.begin_branch(name, self._only(dataset, name).number)
        yield Branch(self)
        self._native.end_branch()

    def run(
        self,
        *,
        workers: int | None = None,
        trace: str | os.PathLike[str] | None = None,
        snapshot: str | os.PathLike[str] | None = None,
        snapshot_every: int = 10,
        progress: Callable[[dict[str, Any]], Any] | None = None,
        wait_limit_s: float = 60.0,
    ) -> Result:
        """Runs the program to its end on `workers` threads (default: one a core).

        `trace` keeps a trace for `pellucid analyze`. `snapshot` is a folder or URL: every `snapshot_every`
        iterations the job is saved there, and a program of the same stages, loops and data begins from the newest
        there is; what kernels compute is not compared: take another place after a change of theirs. `progress` is
        called some times a second with iteration, tasks and what is observed. Ctrl-C ends the job.
        """
        for name, number in (("workers", 1 if workers is None else workers), ("snapshot_every", snapshot_every)):
            if not 1 <= number < 2**31:
                raise ProgramError(f"{name}={number}: it is 1 or more")
        if not wait_limit_s > 0:
            raise ProgramError(f"wait_limit_s={wait_limit_s}: it is more than 0 seconds; float('inf') waits for ever")
        place = None if snapshot is None else os.fspath(snapshot)
        if place is not None and "://" not in place:
            place = Path(place).absolute().as_uri()
        outcome = self._native.run(
            {
                "threads": workers,
                "trace": None if trace is None else os.fspath(trace),
                "snapshot": place,
                "snapshot_every": snapshot_every,
                "progress": progress,
                "wait_limit_s": wait_limit_s,
            }
        )
        return Result(outcome, self._datasets)

    def _together(self, datasets: Sequence[Dataset], name: str) -> None:
        if not datasets:
            raise ProgramError(f"stage {name!r} names no dataset; name what it reads or writes")
        for dataset in datasets:
            self._own(dataset, name)
            if dataset.partitions != datasets[0].partitions:
                raise ProgramError(
                    f"stage {name!r} uses {datasets[0].name!r} of {datasets[0].partitions} partitions with "
                    f"{dataset.name!r} of {dataset.partitions}"
                )

    def _own(self, dataset: Dataset, name: str) -> Dataset:
        if dataset.program is not self:
            raise ProgramError(f"{name!r} names dataset {dataset.name!r} of another program; use this program's own")
        return dataset

    def _only(self, dataset: Dataset, name: str) -> Dataset:
        if self._own(dataset, name).partitions != 1:
            raise ProgramError(
                f"{name!r} needs a dataset of one partition, and {dataset.name!r} has {dataset.partitions}; "
                "reduce it into one first"
            )
        return dataset

    def _same(self, single: Dataset, many: Dataset, name: str) -> None:
        expected = single.arrays[0]
        for array in self._own(many, name).arrays:
            if (array.dtype, array.shape) != (expected.dtype, expected.shape):
                raise ProgramError(
                    f"{name!r}: {many.name!r} has arrays of {array.dtype} {array.shape}, and {single.name!r} of "
                    f"{expected.dtype} {expected.shape}; they have to be alike"
                )
