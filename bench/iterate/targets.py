"""What the iterative engine was to reach, beside what was measured: the first table of `bench/ITERATE.md`."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

class Target(NamedTuple):
    """A figure that has to stay below or above a bound; `of` finds it in the lines, or None where it was not measured."""

    name: str
    bound: float
    at_most: bool
    unit: str
    of: Callable[[list[dict]], float | None]


def _floor(name: str, scale: float = 1.0) -> Callable[[list[dict]], float | None]:
    """A benchmark's median in ns, times a factor."""

    def of(lines):
        found = [line["ns"][name] for line in lines if name in line.get("ns", {})]
        return found[-1][0] * scale if found else None

    return of


def _rate(name: str) -> Callable[[list[dict]], float | None]:
    """Millions a second of what a benchmark measures in ns."""
    floor = _floor(name)

    def of(lines):
        ns = floor(lines)
        return 1e3 / ns if ns else None

    return of


def _overhead(lines: list[dict]) -> float | None:
    """Share of a useful task that is not its work."""
    whole, alone = _floor("task with work/threads/1")(lines), _floor("the work alone")(lines)
    return 100 * (1 - alone / whole) if whole and alone else None


def _turns(lines: list[dict], application: str, peer: str) -> list[dict]:
    """The lines of one side, of the largest data that there are."""
    found = [line for line in lines if line["case"].get("application") == application and "turn" in line["case"]]
    size = max((line["case"].get("rows") or line["case"]["scale"] for line in found), default=None)
    of_size = [line for line in found if size in (line["case"].get("rows"), line["case"].get("scale"))]
    return [line for line in of_size if line["case"]["peer"] == peer and "error" not in line]


def pass_s(lines: list[dict]) -> float | None:
    """Median seconds of an iteration over all turns."""
    times = [statistics.median(line["iteration_s"]) for line in lines]
    return statistics.median(times) if times else None


def _times_faster(application: str, peer: str) -> Callable[[list[dict]], float | None]:
    def of(lines):
        theirs, ours = (pass_s(_turns(lines, application, name)) for name in (peer, "Pellucid f64"))
        return theirs / ours if theirs and ours else None

    return of


def _over_limit(application: str, limit_s: Callable[[dict], float | None], inverse: bool) -> Callable:
    """An iteration over the memory's limit in the same run; or the limit over the iteration."""

    def of(lines):
        found = [line for line in _turns(lines, application, "Pellucid f64") if limit_s(line)]
        shares = [statistics.median(line["iteration_s"]) / limit_s(line) for line in found]
        middle = statistics.median(shares) if shares else None
        return 1 / middle if middle and inverse else middle

    return of


def _uneven(lines: list[dict]) -> float | None:
    """How far over the ideal iterations are from the tenth after a worker got slow, in percent."""
    found = [run for line in lines if line["case"].get("experiment") == "uneven" for run in line["lines"]]
    over = [100 * (run["after_ms"] / run["ideal_ms"] - 1) for run in found if run["case"] == "slowed"]
    return statistics.median(over) if over else None


def _whatif(lines: list[dict]) -> float | None:
    """The largest error of the predictions, in percent."""
    errors = []
    for line in (line for line in lines if line["case"].get("experiment") == "whatif"):
        predicted = statistics.median(run["duration_ms"] for run in line["predictions"])
        measured = statistics.median(run["all_ms"] for run in line["measured"])
        errors.append(100 * abs(predicted / measured - 1))
    return max(errors, default=None)


def _bounded(application: str, peer: str) -> Callable:
    """Why ours is faster than a peer by no more: how often the data can be read while the peer makes a pass."""

    def told(lines, limit_s):
        theirs = pass_s(_turns(lines, application, peer))
        limits = [limit for line in _turns(lines, application, "Pellucid f64") if (limit := limit_s(line))]
        if not theirs or not limits:
            return ""
        return (
            f"a pass of {peer} takes {theirs / statistics.median(limits):.0f} times as long as reading the data does: "
            "nothing that reads them is faster by more"
        )

    return told


def _round(lines: list[dict], _) -> str:
    alone = _floor("round/threads/1", 1e-3)(lines)
    return (
        f"it takes {alone:.1f} µs on one thread: eight tasks, woken one by the other through a locked inbox and a ring, "
        "whose cache lines travel where there are two threads"
        if alone
        else ""
    )


def _edges(lines: list[dict], _) -> str:
    double, single = (pass_s(_turns(lines, "pagerank", f"Pellucid {name}")) for name in ("f64", "f32"))
    if not double or not single:
        return ""
    return (
        "what an edge adds up is read and written in the caches, and that takes longer than to read the edge from "
        f"memory; with half the bytes (f32) a pass takes {single / double:.0%} of the time"
    )


# Why a target is missed, by its name: written by whoever looked into it, shown while it is missed.
CAUSES: dict[str, Callable[[list[dict], Callable], str]] = {
    "broadcast, gather and signal, two threads": _round,
    "the same, four processes on two cores": lambda lines, _: (
        "every step wakes processes that sleep, since none has a core of its own on which to look for messages"
    ),
    "PageRank, of the streaming limit": _edges,
    "faster than hand-tuned Spark by": _bounded("regression", "Spark, hand-tuned"),
    "k-means, faster than MLlib by": _bounded("kmeans", "Spark MLlib"),
    "faster than GraphX by": _bounded("pagerank", "GraphX"),
}


def targets(limit_s: Callable[[dict], float | None]) -> list[Target]:
    """All of them; `limit_s` is the shortest time in which the memory can be read that a line's pass needs."""
    return [
        Target("a task that does nothing, core time", 12, True, "ns", _floor("empty task/threads/1")),
        Target("empty tasks, on a core", 80, False, "million/s", _rate("empty task/threads/1")),
        Target("useful tasks, on a core", 3.6, False, "million/s", _rate("task with work/threads/1")),
        Target("their overhead", 10, True, "%", _overhead),
        Target("broadcast, gather and signal, two threads", 1, True, "µs", _floor("round/threads/2", 1e-3)),
        Target("the same, two processes over TCP", 40, True, "µs", _floor("round/two processes over TCP", 1e-3)),
        Target("the same, four threads on two cores", 100, True, "µs", _floor("round/threads/4", 1e-3)),
        Target("the same, four processes on two cores", 100, True, "µs", _floor("round/four processes over TCP", 1e-3)),
        Target("logistic regression, over the memory's limit", 1.10, True, "×", _over_limit("regression", limit_s, False)),
        Target("faster than hand-tuned Spark by", 13, False, "×", _times_faster("regression", "Spark, hand-tuned")),
        Target("k-means, faster than MLlib by", 60, False, "×", _times_faster("kmeans", "Spark MLlib")),
        Target("PageRank, of the streaming limit", 0.3, False, "×", _over_limit("pagerank", limit_s, True)),
        Target("faster than GraphX by", 350, False, "×", _times_faster("pagerank", "GraphX")),
        Target("ten iterations after a worker got slow, over the ideal", 15, True, "%", _uneven),
        Target("all cores, predicted from a trace of one, worst error", 10, True, "%", _whatif),
    ]


def section(lines: list[dict], limit_s: Callable[[dict], float | None]) -> list[str]:
    """The table."""
    page = ["## Targets", "", "| | target | measured | |", "|---|---|---|---|"]
    for target in targets(limit_s):
        figure = target.of(lines)
        bound = f"{'≤' if target.at_most else '≥'} {target.bound:g} {target.unit}"
        if figure is None:
            page.append(f"| {target.name} | {bound} | not measured | |")
            continue
        met = figure <= target.bound if target.at_most else figure >= target.bound
        cause = "" if met or target.name not in CAUSES else CAUSES[target.name](lines, limit_s)
        told = "met" if met else f"missed: {cause}" if cause else "missed"
        page.append(f"| {target.name} | {bound} | {figure:.3g} {target.unit} | {told} |")
    return [*page, ""]
