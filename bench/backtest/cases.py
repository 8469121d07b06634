"""The backtest's matrix: configurations, queries, and the cases that pair two configurations. Pure data.

A case asks for a query's time on a target configuration, given its run on a baseline. Its `set` is derived from the
difference of the two. Cases with the same baseline form a group, whose runs take turns.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

# Fixed in all runs, since the default follows the number of cores and would change the plan.
PARTITIONS = 8


@dataclass(frozen=True)
class Config:
    """A configuration of the hardware and the location of the input."""

    cores: float = 2
    disk_mb: int = 100  # MB/s of each disk
    disks: int = 1
    link_mbit: int | None = None  # rate of the link to the S3 server with the input
    input: str = "storage"  # or memory, memory-decoded; cached: on a disk, but in the page cache
    memory: str | None = None  # budget of a query that spills to the disks
    drive: str = "throttled"  # or emulated ones: ssd, on which reads and writes share the rate, or spinning

    @property
    def threads(self) -> int:
        """The engine's number of cores."""
        return math.ceil(self.cores)

    @property
    def name(self) -> str:
        """A short unique name."""
        throttled, ssd = f"{self.disks}x{self.disk_mb}mb", f"{self.disks}xssd{self.disk_mb}"
        disks = {"throttled": throttled, "ssd": ssd}.get(self.drive, self.drive)
        storage = f"{self.link_mbit}mbit" if self.link_mbit else disks
        found = f"{self.cores:g}c-{storage}" + ("" if self.input == "storage" else f"-{self.input}")
        return found + (f"-{self.memory.lower()}" if self.memory else "")


@dataclass(frozen=True)
class Query:
    """A query over tables of a data set; its text is `bench/queries/PATH.sql`."""

    name: str
    path: str
    data: str
    tables: tuple[str, ...]


def _bdb(number: str, data: str, *tables: str) -> Query:
    return Query(f"bdb-{number}", f"bdb/{number}", data, tables)


SORTS = [Query(f"sort-{values}", "sort", f"sort-{values}", ("sort",)) for values in (10, 20, 50)]
BDB = [
    *(_bdb(f"1{letter}", "rankings", "rankings") for letter in "abc"),
    *(_bdb(f"2{letter}", "bdb", "uservisits") for letter in "abc"),
    *(_bdb(f"3{letter}", "bdb", "rankings", "uservisits") for letter in "abc"),
    _bdb("4", "documents", "documents"),
]
QUERIES = {query.name: query for query in (*SORTS, *BDB)}
# Arguments of `pellucid generate` for each data set.
DATA = {
    **{f"sort-{values}": ("sort", "--values", str(values), "--scale", "0.4") for values in (10, 20, 50)},
    "rankings": ("bdb", "--tables", "rankings", "--scale", "4"),
    "bdb": ("bdb", "--tables", "rankings,uservisits", "--scale", "1.5"),
    "documents": ("bdb", "--tables", "documents", "--scale", "0.6"),
}
# Rate of each of two disks (MB/s) at which a query's disks and cores are about equally busy, or a run takes long enough.
TWO_DISKS_MB = {"rankings": 25, "bdb-2": 30, "bdb-3": 60, "documents": 100}
# Rate of one disk (MB/s) at which reading a query's input takes about as long as computing on it with one core.
BALANCED_MB = {"bdb-2a": 125, "bdb-2c": 75, "bdb-3c": 200, "bdb-4": 200, "sort-10": 200, "sort-20": 250}
# Budgets with which a query spills: the baseline's, another, and one that suffices.
SPILLS = {
    "sort-10": ("128MiB", "256MiB", "4GiB"),
    "sort-20": ("128MiB", "256MiB", "4GiB"),
    "sort-50": ("128MiB", "256MiB", "4GiB"),
    "bdb-2c": ("256MiB", "384MiB", "4GiB"),
    "bdb-3c": ("64MiB", "256MiB", "4GiB"),
}
# Of these, the queries that also run on a spinning disk.
SPINNING = ("sort-20", "sort-50", "bdb-2c", "bdb-3c")
# The start of `Case.why` of these cases.
SPILL = "spilling"
# Estimated time of a run that was never measured.
RUN_S = 4.0


@dataclass(frozen=True)
class Case:
    """A what-if to be measured."""

    query: Query
    base: Config
    target: Config
    why: str  # the figure of the paper, or what is swept

    @property
    def name(self) -> str:
        """A unique name."""
        return f"{self.query.name} {self.base.name} to {self.target.name}"

    @property
    def settings(self) -> dict[str, str]:
        """The difference, as `pellucid whatif --set` takes it."""
        return settings(self.base, self.target)


def settings(base: Config, target: Config) -> dict[str, str]:
    """Returns the what-if that leads from one configuration to another."""
    found = {}
    if base.drive != target.drive:
        raise ValueError(f"{base.name} to {target.name}: no setting makes another drive of a disk")
    if base.cores != target.cores:
        # A trace counts a thread under a quota as a whole core, so only the ratio is exact.
        whole = base.cores == base.threads
        found["cores"] = f"{target.cores:g}" if whole else f"x{target.cores / base.cores:g}"
    if target.input == "cached":
        found["no"] = "store" if base.link_mbit else "disk"
    elif target.input != base.input:
        found["input"] = target.input
    elif base.link_mbit != target.link_mbit:
        if not (base.link_mbit and target.link_mbit):
            raise ValueError(f"{base.name} to {target.name}: no setting moves the input to another place")
        # The link leads only to the store, and a trace names the store.
        found["store.rate"] = f"{target.link_mbit}Mbit/s"
    elif not base.link_mbit:
        if base.disks != target.disks:
            found["disks"] = str(target.disks)
        if base.disk_mb != target.disk_mb:
            found["disk.rate"] = f"{target.disk_mb}MB/s"
    if base.memory != target.memory:
        found["memory"] = target.memory
    if not found:
        raise ValueError(f"{base.name} to {target.name}: nothing differs")
    return found


@cache
def full() -> list[Case]:
    """Returns the whole matrix."""
    found = []

    def add(query: Query, base: Config, **targets: list[Config]) -> None:
        found.extend(Case(query, base, target, why) for why, several in targets.items() for target in several)

    for query in SORTS:
        base = Config(2, 100)
        add(
            query,
            base,
            **{
                "fig. 11: twice the disks": [replace(base, disks=2)],
                "§6.3: input decoded in memory": [replace(base, input="memory-decoded")],
                "disk rate": [replace(base, disk_mb=rate) for rate in (50, 200)],
            },
        )
        slow = Config(0.5, 50)
        add(query, slow, **{"fig. 13: all at once": [Config(2, 200, input="memory")]})
    for query in BDB:
        rate = TWO_DISKS_MB.get(query.data) or TWO_DISKS_MB[query.name[:5]]
        base = Config(2, rate, disks=2)
        # Without its disk the scan of rankings takes 0.15 s, too short for a certain median.
        bound = [] if query.data == "rankings" else [replace(base, input="cached")]
        add(
            query,
            base,
            **{
                "fig. 12: half the disks": [replace(base, disks=1)],
                "fig. 14: bound of the disk": bound,
                "cores": [replace(base, cores=cores) for cores in (0.5 if query.data != "bdb" else 1.5, 1)],
            },
        )
    for query in (QUERIES["bdb-1a"], QUERIES["bdb-1b"], QUERIES["bdb-1c"]):
        base = Config(2, 50)
        add(query, base, **{"disk rate": [replace(base, disk_mb=rate) for rate in (25, 100)]})
        base = Config(2, link_mbit=250)
        add(query, base, **{"link to an S3 server": [replace(base, link_mbit=rate) for rate in (100, 500, 1000)]})
    for query in (QUERIES["bdb-2b"], QUERIES["bdb-3b"], QUERIES["bdb-4"], *SORTS):
        base = Config(1, 75)
        targets = [replace(base, cores=0.5), replace(base, disk_mb=150), replace(base, cores=2, disk_mb=200)]
        add(query, base, **{"cores and disk rate": targets})
    for name, rate in BALANCED_MB.items():
        base = Config(1, rate)
        targets = [replace(base, cores=2), replace(base, disk_mb=rate // 2)]
        add(QUERIES[name], base, **{"from cores and disk in balance": targets})
    for name, (little, more, enough) in SPILLS.items():
        base = Config(2, 100, memory=little, drive="ssd")
        add(
            QUERIES[name],
            base,
            **{
                f"{SPILL}: disks": [replace(base, disk_mb=50), replace(base, disk_mb=200), replace(base, disks=2)],
                f"{SPILL}: cores": [replace(base, cores=1)],
                f"{SPILL}: memory": [replace(base, memory=memory) for memory in (more, enough)],
            },
        )
    for name in SPINNING:
        little, more, _ = SPILLS[name]
        base = Config(2, memory=little, drive="spinning")
        add(QUERIES[name], base, **{f"{SPILL}: spinning disk": [replace(base, cores=1), replace(base, memory=more)]})
    return found


@cache
def short() -> list[Case]:
    """Returns CI's cases, paced by the engine, on a tenth of the data; they are limited by disks, so others may compute."""
    found = []
    # The third one computes for longer, so it would not be limited by a faster disk beside others.
    for name, (slower, rate, faster) in {"sort-50": (5, 10, 20), "bdb-1c": (5, 10, 20), "bdb-2a": (3, 5, 10)}.items():
        base = Config(2, rate)
        found.extend(Case(QUERIES[name], base, replace(base, disk_mb=other), "short") for other in (slower, faster))
    return found


def groups(cases: list[Case]) -> list[tuple[Query, Config, list[Case]]]:
    """Groups cases by query and baseline, in order of appearance."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        found.setdefault((case.query.name, case.base.name), []).append(case)
    return [(several[0].query, several[0].base, several) for several in found.values()]
