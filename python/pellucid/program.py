"""Programs of datasets and stages."""

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
    """A dataset of a program, with one array per partition."""

    def __init__(self, program: Program, number: int, name: str, arrays: list[np.ndarray]) -> None:
        self.program = program
        self.number = number
        self.name = name
        # Initial content of the partitions.
        self.arrays = arrays
        self.written = False

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.arrays)

    def __repr__(self) -> str:
        return f"<dataset {self.name!r}, {self.partitions} partitions of {self.arrays[0].dtype}>"


class Loop:
    """A loop whose body is being recorded."""

    def __init__(self, program: Program, name: str) -> None:
        self._program = program
        self._name = name
        self._flag: Dataset | None = None

    def until(self, dataset: Dataset, condition: Callable[[np.ndarray], Any] | None = None) -> None:
        """Ends the loop after an iteration if `condition` is true for the dataset's single partition.

        Without a condition, the loop ends if the array has any nonzero element, which a kernel may set.
        """
        if self._flag is not None:
            raise ProgramError(f"loop {self._name!r} already has a condition; combine both in one")
        flag = self._program._check_single(dataset, "until")
        if condition is not None:
            flag = self._program.zeros(f"{self._name}: end", 1, dtype=np.bool_)

            def evaluate(array: np.ndarray, end: np.ndarray) -> None:
                end[0] = bool(condition(array))

            name = f"{self._name}: until"
            self._program.transform(evaluate, reads=[dataset], writes=[flag], name=name)
        self._flag = flag


class Branch:
    """A branch whose bodies are being recorded."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @contextlib.contextmanager
    def otherwise(self) -> Iterator[None]:
        """Records the stages that run if the branch's dataset is all zeros. Must be the last part of the branch."""
        try:
            self._program._native.otherwise()
        except ValueError as error:
            raise ProgramError(str(error)) from error
        yield


class Result:
    """The result of a run: `result[dataset]` is a dataset's array, with its partitions concatenated."""

    def __init__(self, outcome: _native.Outcome, datasets: Sequence[Dataset]) -> None:
        self._outcome = outcome
        self._datasets = {dataset.number: (dataset, dataset.written) for dataset in datasets}

    def partitions(self, dataset: Dataset) -> list[np.ndarray]:
        """Returns the dataset's partitions without copying."""
        # Later stages may write a dataset that this run did not.
        known, written = self._datasets.get(dataset.number, (None, False))
        if known is not dataset:
            raise ProgramError(f"{dataset!r} belongs to another program or was added after this run; use a dataset of this run")
        return self._outcome.partitions(dataset.number) if written else dataset.arrays

    def __getitem__(self, dataset: Dataset) -> np.ndarray:
        arrays = self.partitions(dataset)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    @property
    def iterations(self) -> int:
        """Number of iterations of outermost loops."""
        return self._outcome.iterations

    @property
    def resumed_at(self) -> int | None:
        """Iteration of the earlier run's snapshot that it resumed from, or `None` if it started from the beginning."""
        return self._outcome.resumed_at

    @property
    def tasks(self) -> int:
        """Number of tasks run."""
        return self._outcome.tasks

    @property
    def elapsed_s(self) -> float | None:
        """Seconds from start to end, including loading."""
        return self._outcome.elapsed_s

    @property
    def iteration_s(self) -> list[float]:
        """Seconds of each iteration except the first."""
        return self._outcome.iteration_s

    @property
    def busy_s(self) -> float | None:
        """Core time spent in tasks, in seconds."""
        return self._outcome.busy_s

    @property
    def observed(self) -> dict[str, float]:
        """Latest observed values by name."""
        return self._outcome.observed


class Program:
    """Datasets, and stages over them in the order in which they appear to run.

    Nothing runs before `run`, which may be called any number of times.
    """

    def __init__(self, name: str = "program") -> None:
        self._native = _native.Program(name)
        self._datasets: list[Dataset] = []

    def array(self, name: str, data: Any, partitions: int = 1) -> Dataset:
        """Adds a dataset of an array's rows, divided into equal contiguous partitions.

        `data` is a numpy or Arrow array, or anything that numpy can convert to one. It is not copied if it is
        contiguous and no stage writes the dataset; do not change it while the program runs.
        """
        array = np.require(np.asarray(data), requirements=["C", "A"])
        if array.ndim == 0:
            array = array.reshape(1)
        if partitions < 1 or partitions > max(len(array), 1):
            raise ProgramError(f"dataset {name!r}: cannot divide {len(array)} rows into {partitions} partitions; use 1 to {max(len(array), 1)}")
        bounds = [len(array) * at // partitions for at in range(partitions + 1)]
        return self.arrays(name, [array[low:high] for low, high in zip(bounds, bounds[1:])])

    def arrays(self, name: str, arrays: Sequence[Any]) -> Dataset:
        """Adds a dataset from the arrays of its partitions."""
        given = [np.require(np.asarray(array), requirements=["C", "A"]) for array in arrays]
        if not given:
            raise ProgramError(f"dataset {name!r} has no partitions; give it at least one array")
        if len({(array.dtype, array.ndim) for array in given}) > 1:
            raise ProgramError(f"dataset {name!r} has partitions of different types or dimensions; they must match")
        try:
            number = self._native.dataset(name, given)
        except (TypeError, ValueError) as error:
            raise ProgramError(f"dataset {name!r}: {error}") from error
        dataset = Dataset(self, number, name, given)
        self._datasets.append(dataset)
        return dataset

    def zeros(self, name: str, shape: int | tuple[int, ...], partitions: int = 1, dtype: Any = np.float64) -> Dataset:
        """Adds a dataset in which every partition is an array of zeros of this shape."""
        return self.arrays(name, [np.zeros(shape, dtype)] * partitions)

    def transform(
        self,
        kernel: Callable[..., Any],
        *,
        reads: Sequence[Dataset] = (),
        writes: Sequence[Dataset],
        name: str | None = None,
    ) -> None:
        """Adds a stage with one task per partition. `kernel` receives the partition's arrays: first reads, then writes.

        It changes the arrays that it writes in place, and may read them. Name each dataset only once.
        """
        name = name or str(getattr(kernel, "__name__", "kernel"))
        datasets = [*reads, *writes]
        self._check_partitioning(datasets, name)
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
        """Copies the single partition of `source` to every partition of `to`."""
        name = name or f"{source.name} to {to.name}"
        self._check_same_type(self._check_single(source, name), to, name)
        to.written = True
        self._native.broadcast(name, source.number, to.number)

    def reduce(
        self,
        source: Dataset,
        into: Dataset,
        operation: Literal["sum", "min", "max"] = "sum",
        name: str | None = None,
    ) -> None:
        """Reduces the partitions of `source` element by element into the single partition of `into`.

        The order of combination is fixed, so the result does not depend on the number of workers.
        """
        name = name or f"{operation} of {source.name}"
        self._check_same_type(self._check_single(into, name), source, name)
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
        """Sends arrays from each partition of `sources` to partitions of `writes`; their numbers may differ.

        `scatter` receives the arrays of `sources` of one index, and an `Outgoing`. Its `send(to, array)` sends a copy
        to one partition, and `send_all(array)` to all partitions that are sent nothing else. `gather` receives the
        arrays of `reads` and `writes` of one index, as a stage does, and a list of `(source, array)` in the order of
        the sources. It runs once every source has finished, including those that sent it nothing. `routes` lists the
        partitions that each source may send to (default: all), so that a partition waits only for its sources. Both
        functions are called under the GIL; compile expensive parts of them with `numba.njit(nogil=True)`.
        """
        name = name or str(getattr(scatter, "__name__", "exchange"))
        for half in (scatter, gather):
            if isinstance(half, Kernel):
                raise ProgramError(f"exchange {name!r}: {half.__name__!r} is a compiled kernel, which cannot send; pass a function that calls it")
        self._check_partitioning(sources, name)
        self._check_partitioning([*reads, *writes], name)
        if not writes:
            raise ProgramError(f"exchange {name!r} writes no dataset; pass at least one in writes")
        for dataset in writes:
            dataset.written = True
        given = None if routes is None else [[int(to) for to in route] for route in routes]
        numbers = [[dataset.number for dataset in side] for side in (sources, reads, writes)]
        try:
            self._native.exchange(name, (scatter, gather), numbers[0], given, *numbers[1:])
        except (OverflowError, ValueError) as error:
            raise ProgramError(f"exchange {name!r}: {error}") from error

    def observe(self, dataset: Dataset, name: str | None = None) -> None:
        """Reports the first element of the dataset's single partition, at this point of the program, as progress."""
        name = name or dataset.name
        self._native.observe(name, self._check_single(dataset, name).number)

    @contextlib.contextmanager
    def loop(self, iterations: int, name: str = "loop") -> Iterator[Loop]:
        """Repeats the stages recorded in the body of `with program.loop(100) as it:`, at most `iterations` times."""
        if not 1 <= iterations < 2**63:
            raise ProgramError(f"loop {name!r}: cannot run {iterations} iterations; use at least 1 and below 2**63")
        self._native.begin_loop(name, iterations)
        loop = Loop(self, name)
        yield loop
        self._native.end_loop(None if loop._flag is None else loop._flag.number)

    @contextlib.contextmanager
    def when(self, dataset: Dataset, name: str = "branch") -> Iterator[Branch]:
        """Runs the stages recorded in the body of `with program.when(flag) as branch:` if the array is not all zeros.

        At the end of the body, `with branch.otherwise():` records the stages that run if it is all zeros.
        """
        self._native.begin_branch(name, self._check_single(dataset, name).number)
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
        """Runs the program on `workers` threads (default: one per core) until it ends.

        `trace` is a file for a trace, which `pellucid analyze` reads. `snapshot` is a folder or URL where the job is
        saved every `snapshot_every` iterations. A program with the same stages, loops and data resumes from the latest
        snapshot there. The code of kernels is not compared, so use another location after changing it. `progress` is
        called a few times per second with the iteration, tasks and observed values. The job fails if it stalls for
        longer than `wait_limit_s` seconds. Ctrl-C ends it.
        """
        for name, number in (("workers", 1 if workers is None else workers), ("snapshot_every", snapshot_every)):
            if not 1 <= number < 2**31:
                raise ProgramError(f"invalid {name}={number}: it must be at least 1")
        if not wait_limit_s > 0:
            raise ProgramError(f"invalid wait_limit_s={wait_limit_s}: it must be positive; float('inf') disables it")
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

    def _check_partitioning(self, datasets: Sequence[Dataset], name: str) -> None:
        if not datasets:
            raise ProgramError(f"stage {name!r} names no dataset; name at least one that it reads or writes")
        for dataset in datasets:
            self._check_owned(dataset, name)
            if dataset.partitions != datasets[0].partitions:
                raise ProgramError(
                    f"stage {name!r} uses {datasets[0].name!r} with {datasets[0].partitions} partitions and "
                    f"{dataset.name!r} with {dataset.partitions}; move data between them with exchange"
                )

    def _check_owned(self, dataset: Dataset, name: str) -> Dataset:
        if dataset.program is not self:
            raise ProgramError(f"{name!r} uses dataset {dataset.name!r} of another program; use this program's own")
        return dataset

    def _check_single(self, dataset: Dataset, name: str) -> Dataset:
        if self._check_owned(dataset, name).partitions != 1:
            raise ProgramError(
                f"{name!r} needs a dataset with one partition, but {dataset.name!r} has {dataset.partitions}; reduce it into one first"
            )
        return dataset

    def _check_same_type(self, single: Dataset, many: Dataset, name: str) -> None:
        expected = single.arrays[0]
        for array in self._check_owned(many, name).arrays:
            if (array.dtype, array.shape) != (expected.dtype, expected.shape):
                raise ProgramError(
                    f"{name!r}: {many.name!r} has arrays of {array.dtype} {array.shape}, but {single.name!r} of "
                    f"{expected.dtype} {expected.shape}; they must match"
                )
