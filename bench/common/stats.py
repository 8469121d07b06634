"""Statistics for the tables. Pure."""

import math
import statistics
from collections.abc import Sequence

# Two-sided 95 %: the 0.975 quantile of Student's t by degrees of freedom (tables; 1.960 at infinity).
T_975 = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    11: 2.201,
    12: 2.179,
    13: 2.160,
    14: 2.145,
    15: 2.131,
    16: 2.120,
    17: 2.110,
    18: 2.101,
    19: 2.093,
    20: 2.086,
    25: 2.060,
    30: 2.042,
}


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean, in which ratios of a half and a double cancel."""
    return math.exp(statistics.fmean(map(math.log, values)))


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns the ratio of medians."""
    return statistics.median(ours) / statistics.median(theirs)


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Returns the geometric mean of `a / b` over pairs, and its 95 % interval (Student's t on logarithms)."""
    logs = [math.log(a / b) for a, b in pairs]
    mean, freedom = statistics.fmean(logs), len(logs) - 1
    if freedom < 1:
        raise ValueError("an interval needs at least two pairs")
    quantile = T_975[max(known for known in T_975 if known <= freedom)]
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def resolved(low: float, high: float) -> bool:
    """Returns whether a ratio's interval excludes 1."""
    return not low <= 1 <= high
