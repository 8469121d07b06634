"""Times of the compositions, compared with the links of their paths."""

import statistics
import tempfile
from pathlib import Path

from bench.common.pages import joined, narrow_header, row
from bench.storage.agreement import outliers, tau_b
from bench.storage.causes import COMPOSITIONS, reasons
from bench.storage.measured import ENGINES, interval, runs, times
from bench.storage.workloads import WORKLOADS, Workload
from harness import binary

AT_THE_MEDIAN = "median MB/s of the disk and cores of the data layer"


def ranks(as_placed: bool = False) -> dict[str, dict[str, int]]:
    """Returns the links of each composition for reads and writes, as `pellucid storage rank` counts them.

    With `as_placed`, copies share a machine as they do here; the composition files place them as such systems usually do.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for file in sorted(COMPOSITIONS.glob("*.toml")):
            files.append(Path(folder, file.name))
            text = file.read_text()
            files[-1].write_text(text.replace("\ncopies = 2\n", '\ncopies = 2\ncopies_run = "machine"\n') if as_placed else text)
        document = binary.run("storage", "rank", "--json", *files).check().json()
    return {way: {path["composition"]: path["links"] for path in document[way]} for way in ("read", "write")}


def answer(found: list[dict], links: dict) -> list[str]:
    """Returns the answer: the agreement of times and links, by engine and workload."""
    out = []
    for engine in ENGINES:
        parts = []
        for workload in (workload for workload in WORKLOADS if workload.way):
            intervals = {name: interval(some) for name, some in times(found, engine, workload.name).items()}
            if len(intervals) > 1:
                tau = tau_b({name: links[workload.way][name] for name in intervals}, intervals)
                parts.append(f"{workload.name} {'all times tied' if tau is None else f'{tau:.2f}'}")
        out += [f"- Agreement of times with the number of links on {engine} (τ-b, at most 1): {', '.join(parts)}."] if parts else []
    return out


def runtimes(found: list[dict], engine: str, links: dict, placed: dict, explained: dict[str, list[dict]], traced: dict) -> list[str]:
    """Returns the paper's Table III for an engine, with the agreement, and with the findings that explain outliers."""
    out = [f"## {engine}", ""]
    for workload in WORKLOADS:
        seconds = times(found, engine, workload.name)
        if not seconds:
            continue
        by_path = links[workload.way] if workload.way else {}
        out += [f"### {workload.name}", "", *narrow_header("composition", "links", "median s", "90 % interval", "runs")]
        for name, some in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
            low, high = interval(some)
            out.append(row(name, by_path.get(name, "–"), f"{statistics.median(some):.2f}", f"{low:.2f} to {high:.2f}", len(some)))
        out.append("")
        if by_path:
            intervals = {name: interval(some) for name, some in seconds.items()}
            known = {name: by_path[name] for name in intervals}
            tau = tau_b(known, intervals)
            said = "undefined, since all times are tied" if tau is None else f"{tau:.2f}"
            here = {name: placed[workload.way][name] for name in intervals}
            without = tau_b(here, intervals) if here != known else None
            but = "" if without is None else f"; {without:.2f} without the links between copies, which are on one machine here"
            out.append(f"Agreement with the {workload.way} rank by path: τ-b {said}{but}.")
            wrong = outliers(known, intervals)
            out += ["", "Slower than the path suggests:", ""] if wrong else []
            known_of = {name: [*explained.get(name, []), *traced.get((workload.name, name), [])] for name in seconds}
            out += [*against_the_path(runs(found, engine, workload.name), engine, workload, wrong, known_of), ""]
    return out


def against_the_path(measured: dict[str, list[dict]], engine: str, workload: Workload, wrong: list, known_of: dict) -> list[str]:
    """Returns a line for each composition that is slower than its path suggests, with the findings that explain it."""
    out = []
    for slower in sorted({a for a, _ in wrong}):
        whys: dict[str, list[str]] = {}
        for faster in (b for a, b in wrong if a == slower):
            why = reasons(known_of[slower], known_of[faster], workload.way, engine)
            whys.setdefault(why, []).append(faster)
        said = []
        for why, names in whys.items():
            uses = "; ".join(f"{name} {at_the_median(measured[name])}" for name in (slower, *names))
            said.append(f"than {joined(names)}: {why or f'no cause found ({AT_THE_MEDIAN}: {uses})'}")
        out.append(f"- {slower} is slower {'; '.join(said)}.")
    return out


def at_the_median(some: list[dict]) -> str:
    """Formats the medians of the disk's rate and the data layer's cores."""
    middle = {key: statistics.median(line["use"][key][2] for line in some) for key in ("disk_mb_s", "data_cores")}
    return f"{middle['disk_mb_s']:.0f}, {middle['data_cores']:.2g}"
