"""The matrix of runs: jobs, disks and settings, in the order in which they run.

Each round covers all groups, and settings take turns within a group, so a stopped run leaves complete comparisons.
"""

from dataclasses import dataclass

SWEEP = (2, 4, 8, 16, 32)
SLOTS = 32
DEFAULT = f"stock-{SLOTS}"
POLICIES = ("throughput", "index")
# The default policy with the numbers that its previous run found (`spark.pellucid.memory`).
REMEMBERED = "remembered"
# Disks and jobs: the sort runs on all disks, the others on the main model. `H150x2` is two disks.
GROUPS = (
    ("H150R", "sort"),
    ("H150", "sort"),
    ("SSD50", "sort"),
    ("H150x2", "sort"),
    ("H150R", "pagerank"),
    ("H150R", "join"),
    ("H150R", "aggregation"),
    ("memory", "cpu"),
    ("memory", "tasks"),
)
# Jobs without input or shuffled bytes, and the number of empty tasks of the second.
WITHOUT_INPUT = ("cpu", "tasks")
EMPTY_TASKS = 6000
# Jobs with concurrent stages (both sides of a join), and those in which the order of these varies between runs.
CONCURRENT_STAGES = ("join", "pagerank")
VARYING_ORDER = ("pagerank",)

# Input sizes for runs of about half a minute; PageRank reads its edges three times, and one disk is slower.
MIB = 1 << 20
BYTES = {"sort": 384 * MIB, "pagerank": 96 * MIB, "join": 192 * MIB, "aggregation": 192 * MIB, **dict.fromkeys(WITHOUT_INPUT, 0)}
SLOW = {"SSD50": 2}


@dataclass(frozen=True)
class Case:
    """A run of the matrix: one Spark application."""

    disk: str
    job: str
    setting: str
    bytes: int
    repeat: int

    @property
    def name(self) -> str:
        """The name in messages and for `--only`."""
        return f"{self.disk}/{self.job}/{self.setting}/{self.repeat}"

    @property
    def kind(self) -> str:
        """The kind of its disks."""
        return self.disk.partition("x")[0]

    @property
    def disks(self) -> int:
        """The number of its disks."""
        return int(self.disk.partition("x")[2] or 1)


def settings_of(group: tuple[str, str]) -> list[str]:
    """Returns the settings that take turns: the sweep, or the plugin's cost in jobs without disks, or queues per disk on two."""
    disk, job = group
    if job == "cpu":
        return [DEFAULT, *POLICIES]
    if job == "tasks":
        return [DEFAULT, "measure", POLICIES[0]]
    if disk.endswith("x2"):
        return [DEFAULT, "monotasks"]
    remembered = [REMEMBERED] if job == "sort" and disk.startswith("H") else []
    return [*(f"stock-{n}" for n in SWEEP), *POLICIES, *remembered]


def cases(size_bytes: int | None, repeats: int) -> list[Case]:
    """Returns all cases, with inputs of this size or of each job's default."""
    return [
        Case(*group, setting, BYTES[group[1]] // SLOW.get(group[0], 1) if size_bytes is None else size_bytes, repeat)
        for repeat in range(repeats)
        for group in GROUPS
        for setting in settings_of(group)
    ]
