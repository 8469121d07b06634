"""The few statistics that the tables use. Pure."""

import math
import statistics
from collections.abc import Sequence

# Two-sided 90 %: the 0.95 quantile of Student's t by degrees of freedom (tables; 1.645 at infinity).
T_95 = {
    1: 6.314,
    2: 2.920,
    3: 2.353,
    4: 2.132,
    5: 2.015,
    6: 1.943,
    7: 1.895,
    8: 1.860,
    9: 1.833,
    10: 1.812,
    11: 1.796,
    12: 1.782,
    13: 1.771,
    14: 1.761,
    15: 1.753,
    16: 1.746,
    17: 1.740,
    18: 1.734,
    19: 1.729,
    20: 1.725,
    25: 1.708,
    30: 1.697,
}


def geometric_mean(values: Sequence[float]) -> float:
    """Of ratios: a half and a double cancel."""
    return math.exp(statistics.fmean(map(math.log, values)))


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Ratio of medians."""
    return statistics.median(ours) / statistics.median(theirs)


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Geometric mean of `a / b` over pairs, and its 90 % interval (Student's t on logarithms)."""
    logs = [math.log(a / b) for a, b in pairs]
    mean, freedom = statistics.fmean(logs), len(logs) - 1
    if freedom < 1:
        raise ValueError("an interval needs at least two pairs")
    quantile = T_95[max(known for known in T_95 if known <= freedom)]
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def resolved(low: float, high: float) -> bool:
    """Whether an interval of a ratio tells it from 1."""
    return not low <= 1 <= high
