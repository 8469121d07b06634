"""Goals, and whether what was measured meets them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """One goal, as measured."""

    what: str
    measured: str
    limit: str
    verdict: str
    # The row of a table that says it already; else it is an item of a list.
    shown: str | None = None

    def __str__(self) -> str:
        return self.shown or f"- {self.what}: **{self.measured}** (goal: {self.limit}): {self.verdict}"


def at_most(
    what: str,
    value: float | None,
    limit: float,
    failed: Sequence[str] = (),
    lacks: str = "",
    interval: Sequence[float] | None = None,
    unit: str = "",
) -> Goal:
    """A goal that is a limit. `failed`: cases of ours without an answer; `lacks`: what was not measured."""
    low, high = interval or (value, value)
    if failed:
        verdict = f"not met: failed on {', '.join(failed)}"
    elif value is None:
        verdict = "not measured"
    elif low > limit:
        verdict = f"not met: {lacks}" if lacks else "not met"
    elif lacks:
        verdict = f"not decided: {lacks}"
    else:
        verdict = "met" if high <= limit else "not resolved"
    return Goal(what, "–" if value is None else f"{value:.4g}{unit}", f"at most {limit:g}{unit}", verdict)


def of_all(measured: int, all_of_them: int, name: str) -> str:
    """What is lacking, in words; empty: nothing."""
    return "" if measured >= all_of_them else f"{measured} of {all_of_them} {name}"
