"""The runs of the suite, and the questions that they answer. Pure."""

from dataclasses import dataclass

from bench.adaptive.matrix import Case
from bench.common import results
from bench.onetwo.jobs import JOBS

SUITE = "onetwo"
LOGS = results.FOLDER / SUITE
KIND = "H150R"
# Names of the disks, by their number.
DISKS = {1: KIND, 2: f"{KIND}x2"}
SETTINGS = ("stock", "measure")
REPEATS = 5


def cases(size_bytes: int, repeats: int) -> list[Case]:
    """Returns all runs in order; compared runs take turns."""
    return [
        Case(disk, job, setting, size_bytes, repeat) for repeat in range(repeats) for job in JOBS for disk in DISKS.values() for setting in SETTINGS
    ]


@dataclass(frozen=True)
class Question:
    """The question of a job's time on another number of disks. The paper asks from two to one (§6.6)."""

    job: str
    before: int
    after: int

    def name(self, setting: str) -> str:
        """Returns the name in the manifest, with the setting whose log answers the question."""
        return f"{self.job}, {self.before} to {self.after}, {setting}"


def questions() -> list[Question]:
    """Returns all questions."""
    return [Question(job, *disks) for job in JOBS for disks in ((1, 2), (2, 1))]
