"""The iterative engine's targets compared with measurements: the first table of `bench/ITERATE.md`."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

from bench.common.pages import narrow_header


class Target(NamedTuple):
    """A figure with an upper or lower bound. `of` finds it in the lines, or returns None if it was not measured."""

    name: str
    bound: float
    at_most: bool
    unit: str
    of: Callable[[list[dict]], float | None]


def _floor(name: str, scale: float = 1.0) -> Callable[[list[dict]], float | None]:
    """Returns a function that finds a benchmark's median in ns, times a factor."""

    def of(lines):
        found = [line["ns"][name] for line in lines if name in line.get("ns", {})]
        return found[-1][0] * scale if found else None

    return of


def _rate(name: str) -> Callable[[list[dict]], float | None]:
    """Returns a function that finds a benchmark's rate, in millions per second."""
    floor = _floor(name)

    def of(lines):
        ns = floor(lines)
        return 1e3 / ns if ns else None

    return of


def _overhead(lines: list[dict]) -> float | None:
    """Returns the percentage of a useful task's time that is not its work."""
    whole, alone = _floor("task with work/threads/1")(lines), _floor("the work alone")(lines)
    return 100 * (1 - alone / whole) if whole and alone else None


def _turns(lines: list[dict], application: str, peer: str) -> list[dict]:
    """Returns a peer's lines for the largest data size."""
    found = [line for line in lines if line["case"].get("application") == application and "turn" in line["case"]]
    size = max((line["case"].get("rows") or line["case"]["scale"] for line in found), default=None)
    of_size = [line for line in found if size in (line["case"].get("rows"), line["case"].get("scale"))]
    return [line for line in of_size if line["case"]["peer"] == peer and "error" not in line]


def pass_s(lines: list[dict]) -> float | None:
    """Returns the median seconds of an iteration over all turns."""
    times = [statistics.median(line["iteration_s"]) for line in lines]
    return statistics.median(times) if times else None


def _times_faster(application: str, peer: str) -> Callable[[list[dict]], float | None]:
    def of(lines):
        theirs, ours = (pass_s(_turns(lines, application, name)) for name in (peer, "Pellucid f64"))
        return theirs / ours if theirs and ours else None

    return of


def _over_limit(application: str, limit_s: Callable[[dict], float | None], inverse: bool) -> Callable:
    """Returns a function that finds an iteration's time over the memory limit of the same run, or the inverse."""

    def of(lines):
        found = [line for line in _turns(lines, application, "Pellucid f64") if limit_s(line)]
        shares = [statistics.median(line["iteration_s"]) / limit_s(line) for line in found]
        middle = statistics.median(shares) if shares else None
        return 1 / middle if middle and inverse else middle

    return of


def _uneven(lines: list[dict]) -> float | None:
    """Returns the percentage by which iterations exceed the ideal, from the tenth after a worker slows down."""
    found = [run for line in lines if line["case"].get("experiment") == "uneven" for run in line["lines"]]
    over = [100 * (run["after_ms"] / run["ideal_ms"] - 1) for run in found if run["case"] == "slowed"]
    return statistics.median(over) if over else None


def _whatif(lines: list[dict]) -> float | None:
    """Returns the largest error of the predictions, in percent."""
    errors = []
    for line in (line for line in lines if line["case"].get("experiment") == "whatif"):
        predicted = statistics.median(run["duration_ms"] for run in line["predictions"])
        measured = statistics.median(run["all_ms"] for run in line["measured"])
        errors.append(100 * abs(predicted / measured - 1))
    return max(errors, default=None)


def _bounded(application: str, peer: str) -> Callable:
    """Returns the cause of a missed speedup: how many times the data can be read during a pass of the peer."""

    def cause(lines, limit_s):
        theirs = pass_s(_turns(lines, application, peer))
        limits = [limit for line in _turns(lines, application, "Pellucid f64") if (limit := limit_s(line))]
        if not theirs or not limits:
            return ""
        limit, name = statistics.median(limits), " ".join(reversed(peer.split(", ")))
        times, ours = f"{theirs / limit:.3g}", pass_s(_turns(lines, application, "Pellucid f64")) / limit
        return (
            f"a pass of {name} takes {times} times as long as reading the data once from memory, so no speedup can exceed {times}; "
            f"Pellucid's takes {ours:.3g} times as long"
        )

    return cause


def _round(lines: list[dict], _) -> str:
    alone = _floor("round/threads/1", 1e-3)(lines)
    return (
        f"on one thread, a round already takes {alone:.1f} µs: eight tasks wake each other through a locked inbox and a run queue. "
        "On two threads, the cache lines of both also move between cores"
        if alone
        else ""
    )


def _edges(lines: list[dict], _) -> str:
    double, single = (pass_s(_turns(lines, "pagerank", f"Pellucid {name}")) for name in ("f64", "f32"))
    if not double or not single:
        return ""
    return (
        "updating the sums in the caches takes longer than reading the edges from memory; "
        f"with half the bytes (f32) a pass takes {single / double:.0%} of the time"
    )


# Causes of missed targets, by name, found by investigation; shown only while the target is missed.
CAUSES: dict[str, Callable[[list[dict], Callable], str]] = {
    "round on two threads": _round,
    "round on four processes, two cores": lambda lines, _: (
        "every step wakes sleeping processes, since no process has a core on which to poll for messages"
    ),
    "PageRank, share of the streaming limit": _edges,
    "logistic regression, speed over hand-tuned Spark": _bounded("regression", "Spark, hand-tuned"),
    "k-means, speed over MLlib": _bounded("kmeans", "Spark MLlib"),
    "PageRank, speed over GraphX": _bounded("pagerank", "GraphX"),
}


def targets(limit_s: Callable[[dict], float | None]) -> list[Target]:
    """Returns all targets. `limit_s` gives the time to read a line's data once at the memory bandwidth."""
    return [
        Target("empty task, core time", 12, True, "ns", _floor("empty task/threads/1")),
        Target("empty tasks per core", 80, False, "million/s", _rate("empty task/threads/1")),
        Target("useful tasks per core", 3.6, False, "million/s", _rate("task with work/threads/1")),
        Target("overhead of useful tasks", 10, True, "%", _overhead),
        Target("round on two threads", 1, True, "µs", _floor("round/threads/2", 1e-3)),
        Target("round on two processes over TCP", 40, True, "µs", _floor("round/two processes over TCP", 1e-3)),
        Target("round on four threads, two cores", 100, True, "µs", _floor("round/threads/4", 1e-3)),
        Target("round on four processes, two cores", 100, True, "µs", _floor("round/four processes over TCP", 1e-3)),
        Target("logistic regression, time over the memory limit", 1.10, True, "×", _over_limit("regression", limit_s, False)),
        Target("logistic regression, speed over hand-tuned Spark", 13, False, "×", _times_faster("regression", "Spark, hand-tuned")),
        Target("k-means, speed over MLlib", 60, False, "×", _times_faster("kmeans", "Spark MLlib")),
        Target("PageRank, share of the streaming limit", 0.3, False, "", _over_limit("pagerank", limit_s, True)),
        Target("PageRank, speed over GraphX", 350, False, "×", _times_faster("pagerank", "GraphX")),
        Target("iterations after a worker slowed, over the ideal", 15, True, "%", _uneven),
        Target("all cores predicted from one, worst error", 10, True, "%", _whatif),
    ]


def answer(lines: list[dict], limit_s: Callable[[dict], float | None]) -> list[str]:
    """Returns the answer: speedups, the time over the memory limit, and the number of missed targets."""
    found = {target.name: (target, target.of(lines)) for target in targets(limit_s)}

    def figure(name: str) -> str:
        value = found[name][1]
        return "not measured" if value is None else f"{value:.3g} times"

    measured = [(target, value) for target, value in found.values() if value is not None]
    missed = sum(value > target.bound if target.at_most else value < target.bound for target, value in measured)
    return [
        f"- Logistic regression takes {figure('logistic regression, time over the memory limit')} as long as reading the data once from memory.",
        f"- Compared with Spark, Pellucid is {figure('logistic regression, speed over hand-tuned Spark')} as fast as hand-tuned code (logistic regression),",
        f"  {figure('k-means, speed over MLlib')} as fast as MLlib (k-means) and {figure('PageRank, speed over GraphX')} as fast as GraphX (PageRank).",
        f"- {missed} of {len(measured)} [targets](#targets) are missed; the causes are below the table.",
        "",
    ]


def section(lines: list[dict], limit_s: Callable[[dict], float | None]) -> list[str]:
    """Returns the table of targets, then the causes of the missed ones."""
    page = ["## Targets", ""]
    page += ["Tasks and rounds are those of the table [Cost of scheduling](#cost-of-scheduling). A round is a broadcast, a gather and a"]
    page += ["[signal](../docs/glossary.md#iterative-jobs-and-storage). The memory limit is the time to read the data once.", ""]
    page += narrow_header("figure", "target", "measured", "verdict")
    causes = []
    for target in targets(limit_s):
        figure = target.of(lines)
        bound = f"{'≤' if target.at_most else '≥'} {target.bound:g} {target.unit}".strip()
        if figure is None:
            page.append(f"| {target.name} | {bound} | not measured | |")
            continue
        met = figure <= target.bound if target.at_most else figure >= target.bound
        cause = "" if met or target.name not in CAUSES else CAUSES[target.name](lines, limit_s)
        causes += [f"- {target.name}: {cause}."] if cause else []
        shown = f"{figure:.3g} {target.unit}".strip()
        page.append(f"| {target.name} | {bound} | {shown} | {'met' if met else 'missed'} |")
    return [*page, "", *(["Causes of the misses:", "", *causes, ""] if causes else [])]
