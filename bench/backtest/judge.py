"""The rules by which a configuration's measurements are void. Pure.

Limits are those of `bench/README.md`: calibration 5 % (`lab.rates.TOLERANCE`), spin canary 0.9
of a core (`lab.cores.CANARY`), the median's uncertainty 2 %, the S3 server's core time 10 %.
"""

import statistics
from collections.abc import Sequence

from lab.cores import CANARY

# k by n: the k-th smallest and k-th largest of n enclose the median with at least 90 % confidence
# (binomial; n = 5: 93.8 %, 8: 93.0 %, 11: 93.5 %, 13: 90.8 %, 18: 90.4 %).
RANKS = {5: 1, 6: 1, 7: 1, 8: 2, 9: 2, 10: 2, 11: 3, 12: 3, 13: 4, 14: 4, 15: 4, 16: 5, 17: 5, 18: 6, 19: 6, 20: 6, 21: 7}
REPEATS, MAX_REPEATS = 5, 11
# Short runs are noisier, and cheap to repeat.
SHORT_MS, MAX_SHORT_REPEATS = 2500, 21
UNCERTAIN = 0.02
SERVER_CORES = 0.1


def median_interval(ms: Sequence[float]) -> tuple[float, float]:
    """Returns the interval of the median with at least 90 % confidence, for any distribution."""
    if len(ms) not in RANKS:
        raise ValueError(f"{len(ms)} repeats: an interval needs {min(RANKS)} to {max(RANKS)}")
    rank = RANKS[len(ms)]
    ordered = sorted(ms)
    return ordered[rank - 1], ordered[-rank]


def uncertainty(ms: Sequence[float]) -> float:
    """Returns half the width of the median's interval, over the median."""
    low, high = median_interval(ms)
    return (high - low) / 2 / statistics.median(ms)


def settled(ms: Sequence[float]) -> bool:
    """Returns whether these repeats are enough."""
    return len(ms) in RANKS and uncertainty(ms) <= UNCERTAIN


def counted(runs: Sequence[dict]) -> list[dict]:
    """Returns the undisturbed runs; disturbed ones are void and repeated."""
    return [run for run in runs if run["canary"] >= CANARY]


def enough(runs: Sequence[dict]) -> bool:
    """Returns whether the undisturbed runs of a configuration make its median certain."""
    return settled([run["ms"] for run in counted(runs)])


def ended(runs: Sequence[dict]) -> bool:
    """Returns whether a configuration needs no more repeats: its median is certain, or the maximum is reached."""
    short = runs and statistics.median(run["ms"] for run in runs) < SHORT_MS
    return enough(runs) or len(runs) >= (MAX_SHORT_REPEATS if short else MAX_REPEATS)


def void(runs: Sequence[dict]) -> str | None:
    """Returns why the repeats of a configuration are void, or None.

    Each run has `ms`, `canary` (the worse of before and after), and `server_cores` or None.
    """
    good = counted(runs)
    if len(good) < REPEATS:
        busy = [run["canary"] for run in runs if run not in good]
        why = f", the machine was busy during {len(busy)} (canary {min(busy):.2f})" if busy else ""
        return f"{len(good)} of {REPEATS} repeats{why}"
    serving = [run["server_cores"] for run in good if run.get("server_cores") is not None]
    if serving and statistics.median(serving) > SERVER_CORES:
        return f"the S3 server took {statistics.median(serving):.2f} of a core"
    if not enough(runs):
        ms = [run["ms"] for run in good]
        return f"the median is uncertain by {uncertainty(ms):.1%} after {len(ms)} repeats"
    return None


def balanced(ideal_ms: dict[str, float | None]) -> bool:
    """Returns whether the two largest ideal times are within 20 % of each other."""
    times = sorted((time for time in ideal_ms.values() if time), reverse=True)
    return len(times) > 1 and times[1] >= 0.8 * times[0]
