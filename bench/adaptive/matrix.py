"""Which runs there are: jobs, disks and settings, in the order in which they run.

Rounds go over all groups, and settings take turns within each, so that a run that is stopped leaves
whole comparisons.
"""

from dataclasses import dataclass

SWEEP = (2, 4, 8, 16, 32)
SLOTS = 32
DEFAULT = f"stock-{SLOTS}"
POLICIES = ("throughput", "index")
# The default policy once more, with what its run before found (`spark.pellucid.memory`), as a job that comes back has it.
REMEMBERED = "remembered"
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
    ("memory", "tasks"),
)
# Jobs without input or shuffled bytes, and how many tasks of the second do nothing.
WITHOUT_INPUT = ("cpu", "tasks")
EMPTY_TASKS = 6000
# Jobs of which some stages run beside each other (both sides of a join), and the one where these change places between runs.
BESIDE = ("join", "pagerank")
CHANGE_PLACES = ("pagerank",)

# Input, so that a run takes about half a minute; PageRank reads its edges three times, and one disk is slower.
MIB = 1 << 20
BYTES = {"sort": 384 * MIB, "pagerank": 96 * MIB, "join": 192 * MIB, "aggregation": 192 * MIB, **dict.fromkeys(WITHOUT_INPUT, 0)}
SLOW = {"SSD50": 2}


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
    if job == "tasks":
        return [DEFAULT, "measure", POLICIES[0]]
    if disk.endswith("x2"):
        return [DEFAULT, "monotasks"]
    remembered = [REMEMBERED] if job == "sort" and disk.startswith("H") else []
    return [*(f"stock-{n}" for n in SWEEP), *POLICIES, *remembered]


def cases(size_bytes: int | None, repeats: int) -> list[Case]:
    """All of them, with inputs of this size or each job's own."""
    return [
        Case(*group, setting, BYTES[group[1]] // SLOW.get(group[0], 1) if size_bytes is None else size_bytes, repeat)
        for repeat in range(repeats)
        for group in GROUPS
        for setting in settings_of(group)
    ]
