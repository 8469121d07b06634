"""The suite's runs, their known causes, and the questions that pairs of runs answer. Pure.

A *way* is a configuration of one of the jobs of `lab/spark_logs.py`. A *case* predicts the time of one way from the log
of another, and both are measured. A *cause* is a job that is slow for one known reason.
"""

from dataclasses import dataclass, field

ROUNDS = 3
RATES = ("50MB/s", "100MB/s")
# Estimated seconds of a run that was never measured, including the start of Spark.
RUN_S = 20.0
# The goal of the pairs: the largest error.
ERROR = 0.15


@dataclass(frozen=True)
class Way:
    """A configuration of a job; `rate` is that of the disk with its text."""

    job: str
    cores: int = 2
    rate: str | None = None

    @property
    def name(self) -> str:
        """The name in results and files."""
        disk = "" if self.rate is None else "-" + self.rate.replace("/", "")
        return f"{self.job}-{self.cores}c{disk}"


@dataclass(frozen=True)
class Case:
    """A what-if on the log of `base` with `settings`, measured as `target`."""

    base: Way
    target: Way
    settings: dict[str, str] = field(hash=False)

    @property
    def name(self) -> str:
        """A unique name."""
        return f"{self.base.name} to {self.target.name}"


def _both(slow: Way, fast: Way, slower: dict, faster: dict) -> list[Case]:
    return [Case(slow, fast, faster), Case(fast, slow, slower)]


def pairs() -> list[Case]:
    """Returns the pairs: a job at two disk rates, on one core and two, with and without skew."""
    found = []
    for job in ("disk", "words"):
        slow, fast = (Way(job, rate=rate) for rate in RATES)
        found += _both(slow, fast, {"disk.rate": "x0.5"}, {"disk.rate": "x2"})
    for job in ("cpu", "even"):
        found += _both(Way(job, 1), Way(job, 2), {"cores": "1"}, {"cores": "2"})
    return [*found, Case(Way("skew"), Way("even"), {"no": "skew"})]


def ways() -> list[Way]:
    """Returns the distinct ways of all cases."""
    return list(dict.fromkeys(way for case in pairs() for way in (case.base, case.target)))


# The cause that `analyze` has to name first. "none" allows no cause or cpu. "disk input" has to be the first
# cause other than cpu and unexplained, for the stage that reads.
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
    """Returns the configuration of a job with a known cause."""
    return Way(job, rate=RATES[0] if job == "disk" else None)
