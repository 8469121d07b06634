"""Which runs there are: jobs, disks and settings, in the order in which they run.

Rounds go over all groups, and settings take turns within each, so that a run that is stopped leaves
whole comparisons.
"""

from dataclasses import dataclass

SWEEP = (2, 4, 8, 16, 32)
SLOTS = 32
DEFAULT = f"stock-{SLOTS}"
POLICIES = ("throughput", "index")
# Which jobs on which disks: sort on all, the others on the main model. `H150x2`: two of them.
GROUPS = (
    ("H150R", "sort"),
    ("H150", "sort"),
    ("SSD50", "sort"),
    ("H150x2", "sort"),
    ("H150R", "pagerank"),
    ("H150R", "join"),
    ("H150R", "aggregation"),
    ("memory", "cpu"),
)


@dataclass(frozen=True)
class Case:
    """One application."""

    disk: str
    job: str
    setting: str
    bytes: int
    repeat: int

    @property
    def name(self) -> str:
        """For people and `--only`."""
        return f"{self.disk}/{self.job}/{self.setting}/{self.repeat}"

    @property
    def kind(self) -> str:
        """Of its disks."""
        return self.disk.partition("x")[0]

    @property
    def disks(self) -> int:
        """How many there are."""
        return int(self.disk.partition("x")[2] or 1)


def settings_of(group: tuple[str, str]) -> list[str]:
    """What takes turns. Where nothing can be gained, only what the plugin costs; on two disks, queues per disk."""
    disk, job = group
    if job == "cpu":
        return [DEFAULT, *POLICIES]
    if disk.endswith("x2"):
        return [DEFAULT, "monotasks"]
    return [*(f"stock-{n}" for n in SWEEP), *POLICIES]


def cases(size_bytes: int, repeats: int) -> list[Case]:
    """All of them."""
    return [
        Case(*group, setting, size_bytes, repeat)
        for repeat in range(repeats)
        for group in GROUPS
        for setting in settings_of(group)
    ]
