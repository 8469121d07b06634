"""The two models that the paper tried on Spark, and how they answer. Pure.

*Slots*: a job takes as long as its slots are few. Spark has a slot a core, so that another disk changes
nothing; whoever counts slots by the disk has the job take half as long on twice as many (figure 15).

*Resources*: what a stage moved and computed is measured on the executor from outside while nothing else runs
there. Its ideal time is the longer of core time over cores and bytes over the disks' rate; the job's
time is scaled by the sum of those (§6.1, figure 17).
"""

from itertools import pairwise


def between(samples: list[tuple[float, list[float]]], at_s: float) -> list[float]:
    """The counters at a moment, straight between the looks around it; at the ends the first and the last."""
    if at_s <= samples[0][0]:
        return samples[0][1]
    for (before_s, before), (after_s, after) in pairwise(samples):
        if at_s <= after_s:
            share = (at_s - before_s) / (after_s - before_s)
            return [b + (a - b) * share for b, a in zip(before, after, strict=True)]
    return samples[-1][1]


def uses(spans: list[tuple[float, float]], samples: list[tuple[float, list[float]]]) -> list[dict]:
    """What was used in each span of time: core seconds, which is the first counter, and bytes of each disk."""
    found = []
    for begun_s, ended_s in spans:
        before, after = between(samples, begun_s), between(samples, ended_s)
        core_s, *moved = (b - a for a, b in zip(before, after, strict=True))
        found.append({"s": round(ended_s - begun_s, 3), "core_s": round(core_s, 3), "disk_bytes": [round(n) for n in moved]})
    return found


def ideal_s(use: dict, disks: int, cores: int, bytes_per_s: float) -> float:
    """The longer of what the cores and what the disks need for a stage, were nothing else in their way."""
    return max(use["core_s"] / cores, sum(use["disk_bytes"]) / (disks * bytes_per_s))


def by_resources(ms: float, stages: list[dict], disks: tuple[int, int], cores: int, bytes_per_s: float) -> float:
    """A job of `ms` on the first number of disks, on the second."""
    before, after = (sum(ideal_s(use, count, cores, bytes_per_s) for use in stages) for count in disks)
    return ms * after / before


def by_slots(ms: float, disks: tuple[int, int]) -> dict[str, float]:
    """The same where slots are the cores', and where they are the disks'."""
    return {"slots: a core's": ms, "slots: a disk's": ms * disks[0] / disks[1]}
