"""How far a ranking by path agrees with measured times: Kendall's τ-b. Pure.

A pair of compositions is tied by path where their links are equal, and tied by time where the intervals of their
medians overlap; else the shorter path, and the shorter time, come first.
"""

import math
from itertools import combinations

Interval = tuple[float, float]


def order_of_links(a: int, b: int) -> int:
    """-1 where `a` comes first, 1 where `b` does, 0 where they are tied."""
    return (a > b) - (a < b)


def order_of_times(a: Interval, b: Interval) -> int:
    """The same by intervals of time."""
    if a[1] < b[0]:
        return -1
    return 1 if b[1] < a[0] else 0


def tau_b(links: dict[str, int], times: dict[str, Interval]) -> float | None:
    """(concordant − discordant) ÷ √((pairs − tied by path)(pairs − tied by time)); None where one side has all tied."""
    score, by_path, by_time = 0, 0, 0
    for a, b in combinations(sorted(links), 2):
        path, time = order_of_links(links[a], links[b]), order_of_times(times[a], times[b])
        score += path * time
        by_path += path != 0
        by_time += time != 0
    return score / math.sqrt(by_path * by_time) if by_path and by_time else None


def outliers(links: dict[str, int], times: dict[str, Interval]) -> list[tuple[str, str]]:
    """Pairs that the path gets wrong: the first is nearer its data by path and slower all the same, or as near and slower."""
    found = []
    for a, b in combinations(sorted(links), 2):
        path, time = order_of_links(links[a], links[b]), order_of_times(times[a], times[b])
        if time and path != time:
            found.append((a, b) if time > 0 else (b, a))
    return found
