"""Use of each layer: copies, bytes moved, bottlenecks, and samples of cores, disk and link."""

import statistics
import tomllib

from bench.common.pages import narrow_header, row
from bench.storage.causes import COMPOSITIONS
from bench.storage.measured import ENGINES, medians, runs, times
from bench.storage.rig import ALL, VOLUMES
from bench.storage.workloads import WORKLOADS

# Totals of a run, with the number of digits shown.
MOVED = (("disk_mb", 0), ("link_mb", 0), ("data_core_s", 2))


def copies(found: list[dict]) -> list[str]:
    """Returns the section on the cost of copies: one, two by the volume, and two by HDFS on volumes with two each."""
    files = {name: tomllib.loads((COMPOSITIONS / f"{name.lower()}.toml").read_text()) for name in VOLUMES}
    stored = {name: file["data"].get("copies", 1) * file["storage"].get("copies", 1) for name, file in files.items()}
    by_engine = {engine: times(found, engine, "DFSIO") for engine in ENGINES}
    if not all(seconds.keys() >= stored.keys() for seconds in by_engine.values()):
        return []
    out = [
        "## Copies in one layer and in two",
        "",
        "What does replication in two layers cost? Time of DFSIO's output on volumes, and its ratio to the time with one copy.",
        "",
    ]
    out += narrow_header("composition", "bytes stored per byte", *(f"{engine}, median s (ratio)" for engine in by_engine))
    for name, factor in stored.items():
        middles = [(statistics.median(seconds[name]), statistics.median(seconds["GC-V"])) for seconds in by_engine.values()]
        out.append(row(name, factor, *(f"{middle:.2f} ({middle / one:.1f})" for middle, one in middles)))
    return [*out, ""]


def moved(found: list[dict]) -> list[str]:
    """Returns the totals of the median runs."""
    out = [
        "## Bytes moved",
        "",
        "Bytes over disk and link in each median run, and the core time of the data layer (the processes of HDFS, Swift, Ceph and so on).",
        "",
    ]
    out += narrow_header("workload", "engine", "composition", "s", "disk, MB", "link, both ways, MB", "data layer, core seconds")
    by_engine = {engine: medians(found, engine) for engine in ENGINES}
    for workload in (w for w in WORKLOADS if w.way):
        for engine, by in by_engine.items():
            for name in (name for name in ALL if (workload.name, name) in by):
                line = by[workload.name, name]
                cells = (f"{line['use'][key]:.{digits}f}" if key in line["use"] else "not measured" for key, digits in MOVED)
                out.append(row(workload.name, engine, name, f"{line['s']:.2f}", *cells))
    return [*out, ""]


def bottlenecks(found: list[dict]) -> list[str]:
    """Returns the section of bottlenecks that the engine's traces name."""
    out = [
        "## Bottlenecks of Pellucid, from its traces",
        "",
        "The bottleneck that each run's trace names; for TPC-DS, that of the longest query.",
        "",
        *narrow_header("workload", "composition", "bottleneck, runs"),
    ]
    for workload in WORKLOADS:
        for name, some in runs(found, "Pellucid", workload.name).items():
            kinds = [line.get("bottleneck") or "none named" for line in some]
            out.append(row(workload.name, name, ", ".join(f"{kind} {kinds.count(kind)}×" for kind in sorted(set(kinds)))))
    return [*out, ""]


def use(found: list[dict]) -> list[str]:
    """Returns the paper's figures 4 and 5: use of each layer and task times, as medians of the runs' percentiles."""
    out = ["## Use of each layer, and task times", ""]
    out += [
        "The paper's figures 4 and 5. Each cell has the percentiles 5, 25, 50, 75 and 95: of samples every 0.1 s, or of task times. They are medians"
    ]
    out += ["over the runs.", ""]
    out += narrow_header("workload", "engine", "composition", "compute, cores", "data layer, cores", "disk, MB/s", "link, MB/s", "tasks, s")

    def middle(some: list[list[float]]) -> str:
        some = [one for one in some if one]
        values = [statistics.median(column) for column in zip(*some, strict=True)]
        return " / ".join(f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in values) or "–"

    # A session's task times are lines of their own, written when the session ends.
    spark = {tuple(line["case"]["tasks"].values()): line["task_s"] for line in found if "tasks" in line["case"]}
    for workload in WORKLOADS:
        for engine in ENGINES:
            for name, some in runs(found, engine, workload.name).items():
                tasks = [line.get("task_s") or spark.get(tuple(line["case"].values())) or [] for line in some]
                uses = [middle([line["use"][key] for line in some]) for key in ("compute_cores", "data_cores", "disk_mb_s", "link_mb_s")]
                out.append(row(workload.name, engine, name, *uses, middle(tasks)))
    return [*out, ""]
