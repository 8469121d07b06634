"""The two models that the paper tried on Spark. Pure.

*Slots*: a job's time is inversely proportional to its slots. Spark has a slot per core, so another disk changes
nothing; with slots per disk, the job takes half as long on twice as many (figure 15).

*Resources*: a stage's bytes and core time are measured from outside the executor while nothing else runs there. A
stage's ideal time is the longer of core time over cores and bytes over the disks' rate; the job's time is scaled by
the sum of the ideal times (§6.1, figure 17).
"""

from itertools import pairwise


def between(samples: list[tuple[float, list[float]]], at_s: float) -> list[float]:
    """Interpolates the counters linearly between samples; outside of them returns the first or last sample."""
    if at_s <= samples[0][0]:
        return samples[0][1]
    for (before_s, before), (after_s, after) in pairwise(samples):
        if at_s <= after_s:
            share = (at_s - before_s) / (after_s - before_s)
            return [b + (a - b) * share for b, a in zip(before, after, strict=True)]
    return samples[-1][1]


def uses(spans: list[tuple[float, float]], samples: list[tuple[float, list[float]]]) -> list[dict]:
    """Returns the use in each span of time: core seconds, from the first counter, and each disk's bytes."""
    found = []
    for begun_s, ended_s in spans:
        before, after = between(samples, begun_s), between(samples, ended_s)
        core_s, *moved = (b - a for a, b in zip(before, after, strict=True))
        found.append({"s": round(ended_s - begun_s, 3), "core_s": round(core_s, 3), "disk_bytes": [round(n) for n in moved]})
    return found


def ideal_s(use: dict, disks: int, cores: int, bytes_per_s: float) -> float:
    """Returns a stage's ideal time: the longer of the cores' and the disks'."""
    return max(use["core_s"] / cores, sum(use["disk_bytes"]) / (disks * bytes_per_s))


def by_resources(ms: float, stages: list[dict], disks: tuple[int, int], cores: int, bytes_per_s: float) -> float:
    """Predicts a job's time on the second number of disks from its time `ms` on the first."""
    before, after = (sum(ideal_s(use, count, cores, bytes_per_s) for use in stages) for count in disks)
    return ms * after / before


def by_slots(ms: float, disks: tuple[int, int]) -> dict[str, float]:
    """Predicts the same with slots per core and with slots per disk."""
    return {"slots per core": ms, "slots per disk": ms * disks[0] / disks[1]}
