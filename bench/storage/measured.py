"""Lines of the storage matrix's results, and the files kept of its runs."""

from pathlib import Path

from bench.backtest.judge import RANKS, median_interval
from bench.common import results
from bench.storage.workloads import WORKLOADS

TRACES = results.FOLDER / "storage"
ENGINES = ("Pellucid", "Spark")
# The composition whose traces predict the jobs on all others.
BASIS = "GC"
# The suite of those predictions. A trace covers only the last of several statements, and an iterative job's has no storage times.
PREDICTED = "storage-predicted"
PREDICTED_WORKLOADS = ("word count", "DFSIO")


def lines(suite: str = "storage") -> list[dict]:
    """Returns, for each engine's workload, for probes and for commits, the lines of the newest build, with failed ones."""

    def group(line: dict) -> tuple:
        case = line["case"]
        of = case.get("tasks", case)
        return next(iter(case)), of.get("engine"), of.get("workload")

    every = results.load(suite)
    newest = {group(line): line["build"] for line in every}
    return [line for line in every if line["build"] == newest[group(line)]]


def runs(found: list[dict], engine: str, workload: str) -> dict[str, list[dict]]:
    """Returns the completed runs, by composition."""
    by: dict[str, list[dict]] = {}
    for line in found:
        case = line["case"]
        if case.get("engine") == engine and case["workload"] == workload and line.get("s"):
            by.setdefault(case["composition"], []).append(line)
    return by


def medians(found: list[dict], engine: str) -> dict[tuple[str, str], dict]:
    """Returns an engine's median run of each workload and composition."""
    every = ((w.name, name, some) for w in WORKLOADS for name, some in runs(found, engine, w.name).items())
    return {(workload, name): sorted(some, key=lambda line: line["s"])[len(some) // 2] for workload, name, some in every}


def times(found: list[dict], engine: str, workload: str) -> dict[str, list[float]]:
    """Returns seconds, by composition."""
    return {name: [line["s"] for line in some] for name, some in runs(found, engine, workload).items()}


def interval(seconds: list[float]) -> tuple[float, float]:
    """Returns the interval of the median with at least 90 % confidence; with fewer than five runs, their range."""
    return median_interval(seconds) if len(seconds) in RANKS else (min(seconds), max(seconds))


def files(found: list[dict], run: dict) -> list[str]:
    """Returns a run's kept files: traces, or its part of the session's log, which is written when the session ends."""
    ended = (line for line in found if line["case"].get("tasks") == run["case"])
    return run.get("files") or next((line.get("files", []) for line in ended), [])


def kept(found: list[dict], engine: str) -> dict[tuple[str, str], list[str]]:
    """Returns the kept files of the median runs, by workload and composition."""
    of_each = {case: files(found, run) for case, run in medians(found, engine).items()}
    return {case: some for case, some in of_each.items() if some}


def files_to_keep(found: list[dict], repeats: int) -> set[str]:
    """Returns the files to keep: the median run's once all repeats exist, every run's until then."""
    stay = set()
    for engine in ENGINES:
        for (workload, name), middle in medians(found, engine).items():
            every = runs(found, engine, workload)[name]
            stay.update(*(files(found, run) for run in ([middle] if len(every) >= repeats else every)))
    return stay


def stem(workload: str, name: str, number: int) -> str:
    """Returns the prefix of a run's kept files."""
    return f"{workload.replace(' ', '-')}-{name}-r{number}"


def log_name(name: str, times_as_large: int, kind: str) -> str:
    """Returns the name of the log of a session that committed with or without renames."""
    return f"commits-{name}-{times_as_large}-{kind}.zstd"


def basis(workload: str) -> Path:
    """Returns the trace on the local disk from which a workload is predicted."""
    return TRACES / f"predicted-{workload.replace(' ', '-')}.trace"
