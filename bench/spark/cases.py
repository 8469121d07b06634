"""What is run, what is known of it, and which question each pair of runs answers. Pure.

A *way* is one way to run one of the jobs of `lab/spark_logs.py`. A *case* asks of the log of one way
what the job would take another way, which was measured too. A *cause* is a job that is slow for
one known reason.
"""

from dataclasses import dataclass, field

ROUNDS = 3
RATES = ("50MB/s", "100MB/s")
# Seconds of a way's run, the start of Spark included, before any is known.
RUN_S = 20.0
# Off by at most so much: the goal of the pairs.
ERROR = 0.15


@dataclass(frozen=True)
class Way:
    """One way to run a job; `rate` is that of the disk that its text is on."""

    job: str
    cores: int = 2
    rate: str | None = None

    @property
    def name(self) -> str:
        """As results and files call it."""
        disk = "" if self.rate is None else "-" + self.rate.replace("/", "")
        return f"{self.job}-{self.cores}c{disk}"


@dataclass(frozen=True)
class Case:
    """From the log of `base`: what would it take if `settings`? It was measured as `target`."""

    base: Way
    target: Way
    settings: dict[str, str] = field(hash=False)

    @property
    def name(self) -> str:
        """Unique."""
        return f"{self.base.name} to {self.target.name}"


def _both(slow: Way, fast: Way, slower: dict, faster: dict) -> list[Case]:
    return [Case(slow, fast, faster), Case(fast, slow, slower)]


def pairs() -> list[Case]:
    """The same job at two disk rates, on one core and two, with and without skew."""
    found = []
    for job in ("disk", "words"):
        slow, fast = (Way(job, rate=rate) for rate in RATES)
        found += _both(slow, fast, {"disk.rate": "x0.5"}, {"disk.rate": "x2"})
    for job in ("cpu", "even"):
        found += _both(Way(job, 1), Way(job, 2), {"cores": "1"}, {"cores": "2"})
    return [*found, Case(Way("skew"), Way("even"), {"no": "skew"})]


def ways() -> list[Way]:
    """Each way that a case names, once."""
    return list(dict.fromkeys(way for case in pairs() for way in (case.base, case.target)))


# The first cause that `analyze` has to name; "none": no cause, or nothing but cpu. Of `disk input` the
# first among those other than cpu and unexplained, said of the stage that reads.
CAUSES = {
    "cpu": "cpu",
    "skew": "skew",
    "skew-adaptive": "skew",
    "failure": "failure",
    "straggler": "straggler",
    "scheduling": "scheduling",
    "gc": "gc",
    "disk": "disk input",
    "stream": "scheduling",
    "none": "none",
}


def cause_of(job: str) -> Way:
    """How a job that is slow by a cause is run."""
    return Way(job, rate=RATES[0] if job == "disk" else None)
