"""Which runs there are, and what is asked of them. Pure."""

from dataclasses import dataclass

from bench import results
from bench.adaptive.matrix import Case
from bench.onetwo.jobs import JOBS

SUITE = "onetwo"
LOGS = results.FOLDER / SUITE
KIND = "H150R"
# By how many there are.
DISKS = {1: KIND, 2: f"{KIND}x2"}
SETTINGS = ("stock", "measure")
REPEATS = 5


def cases(size_bytes: int, repeats: int) -> list[Case]:
    """All runs, in their order: what is compared takes turns."""
    return [
        Case(disk, job, setting, size_bytes, repeat)
        for repeat in range(repeats)
        for job in JOBS
        for disk in DISKS.values()
        for setting in SETTINGS
    ]


@dataclass(frozen=True)
class Question:
    """What does a job on so many disks take on so many others? The paper asks from two to one (§6.6)."""

    job: str
    before: int
    after: int

    def name(self, setting: str) -> str:
        """In the manifest: by whose log it is answered."""
        return f"{self.job}, {self.before} to {self.after}, {setting}"


def questions() -> list[Question]:
    """All of them."""
    return [Question(job, *disks) for job in JOBS for disks in ((1, 2), (2, 1))]
