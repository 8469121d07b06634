"""Goals, and whether measurements meet them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A goal with its measurement and verdict."""

    what: str
    measured: str
    limit: str
    verdict: str
    # The row of a table that shows the goal; without one it is shown as an item of a list.
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
    """Returns a goal with an upper limit. `failed` names Pellucid's cases without an answer, `lacks` what was not measured."""
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
    """Returns "3 of 5 `name`" if measurements are missing, else an empty text."""
    return "" if measured >= all_of_them else f"{measured} of {all_of_them} {name}"
