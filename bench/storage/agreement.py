"""The agreement of a ranking by path with measured times, as Kendall's τ-b. Pure.

Two compositions are tied by path if their numbers of links are equal, and tied by time if the intervals of their
medians overlap. Otherwise the shorter path and the shorter time come first.
"""

import math
from itertools import combinations

Interval = tuple[float, float]


def order_of_links(a: int, b: int) -> int:
    """Returns -1 if `a` comes first, 1 if `b` does, and 0 if they are tied."""
    return (a > b) - (a < b)


def order_of_times(a: Interval, b: Interval) -> int:
    """Returns the same for intervals of time."""
    if a[1] < b[0]:
        return -1
    return 1 if b[1] < a[0] else 0


def tau_b(links: dict[str, int], times: dict[str, Interval]) -> float | None:
    """Returns (concordant − discordant) ÷ √((pairs − tied by path)(pairs − tied by time)), or None if one side is all ties."""
    score, by_path, by_time = 0, 0, 0
    for a, b in combinations(sorted(links), 2):
        path, time = order_of_links(links[a], links[b]), order_of_times(times[a], times[b])
        score += path * time
        by_path += path != 0
        by_time += time != 0
    return score / math.sqrt(by_path * by_time) if by_path and by_time else None


def outliers(links: dict[str, int], times: dict[str, Interval]) -> list[tuple[str, str]]:
    """Returns the pairs that contradict the path: the first is slower although its path is not longer."""
    found = []
    for a, b in combinations(sorted(links), 2):
        path, time = order_of_links(links[a], links[b]), order_of_times(times[a], times[b])
        if time and path != time:
            found.append((a, b) if time > 0 else (b, a))
    return found
