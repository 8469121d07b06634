"""Makes `bench/STORAGE.md` from `bench/results/storage.jsonl`: `python -m bench.storage.table`. Measures nothing.

The explanations of outliers are findings of `pellucid storage doctor`: on the composition with its probe, on the
traces, and on Spark's event logs.
"""

import sys
import tomllib

from bench.common import pages, results
from bench.storage.causes import COMPOSITIONS, EXAMINED, compositions, traced_findings
from bench.storage.measured import ENGINES, kept, lines
from bench.storage.rig import ALL, VOLUMES
from bench.storage.sections.commits import commits
from bench.storage.sections.examined import examined
from bench.storage.sections.findings import findings
from bench.storage.sections.layers import bottlenecks, copies, moved, use
from bench.storage.sections.predictions import predicted, worst_errors
from bench.storage.sections.runtimes import answer, ranks, runtimes
from bench.storage.workloads import NO_WRITES_BY_SPARK

HEAD = """# Compositions of compute, data and storage, compared with their paths

Does the number of links between compute and data, as `pellucid storage rank` counts them, predict which composition of compute, data and
storage is faster? This repeats the measurements of the paper on [storage compositions](../docs/how/storage-compositions.md).
`make bench-storage` measures it as root; [README.md](README.md#storage-compositions) says how. `python -m bench.storage.table` generates
this page from `results/storage.jsonl` and the files in `results/storage/`; do not edit it.
"""
# Below the answer.
READING = """## How to read the tables

- *Links* are those that a record crosses when it is read, or written if the workload writes. k-means works in memory, so it has none.
- All runs of one engine and workload took turns and are of one build, the newest measured. Times are medians of five rounds.
- Two compositions are tied in time if the 90 % intervals of their medians overlap. Intervals of two equal compositions are disjoint by
  chance in one of 126 pairs; a table of eight compositions has 28 pairs.
- *Agreement* is Kendall's τ-b: 1 if the times have the order of the links, 0 if they are unrelated to it.
- *Slower than the path suggests* lists the compositions that are slower than another one with at least as many links, with the cause that
  [`pellucid storage doctor`](../docs/storage.md#doctor) finds. All findings are [below](#findings).
"""


def descriptions(found: list[dict]) -> list[str]:
    """Describes each measured composition by the first line of its file."""
    texts = [file.read_text() for file in COMPOSITIONS.glob("*.toml")]
    said = {tomllib.loads(text)["name"]: text.splitlines()[0].removeprefix("# ") for text in texts}
    measured = {line["case"].get("composition") for line in found}
    return ["", *(f"- **{name}**: {said[name]}" for name in ALL if name in measured), ""]


def noise(found: list[dict]) -> str:
    """Counts the runs, and those during which other processes computed."""
    measured = [line for line in found if "engine" in line["case"] and line.get("s")]
    noisy = [line["case"] for line in measured if line.get("others_cores", 0) > results.NOISE_CORES]
    writing = sum(case["workload"] == "DFSIO" for case in noisy)
    volumes = sum(case["workload"] != "DFSIO" and case["composition"] in VOLUMES for case in noisy)
    return (
        f"- {len(measured)} runs. During {len(noisy)} of them other processes used more than {results.NOISE_CORES} cores. Of these, {writing} write and {volumes} more read from\n"
        "  volumes. Kernel threads that serve loop devices and file systems count as other processes, and so do idle services."
    )


def page() -> str:
    """Returns the whole page."""
    found = lines()
    if not found:
        return HEAD + "\nNothing is measured yet.\n"
    links, placed = ranks(), ranks(as_placed=True)
    hardware = sorted({line["hardware"] for line in found if "hardware" in line})
    ended = [line["case"] for line in found if line.get("s")]
    errors = [line for line in found if "error" in line and "engine" in line["case"] and line["case"] not in ended]
    failed = {(*list(line["case"].values())[1:], line["error"]) for line in errors}
    reports, there = ({line["case"][kind]: line["report"] for line in found if kind in line["case"]} for kind in ("probe", "probed"))
    explained = compositions(reports)
    traced = {engine: traced_findings(kept(found, engine), there) for engine in ENGINES}
    tables = [part for engine, some in traced.items() for part in runtimes(found, engine, links, placed, explained, some)]
    unexplained = sum(part.startswith("- ") and "no cause found" in part for part in tables)
    slower = sum(part.startswith("- ") and " is slower than " in part for part in tables)
    out = [HEAD, *answer(found, links)]
    out += (
        [
            f"- {slower - unexplained} of {slower} compositions that are slower than their path suggests have a cause that `pellucid storage doctor` finds."
        ]
        if slower
        else []
    )
    rows = predicted()
    out += (
        ["- [Predictions](#predicted-from-a-probe) of jobs on other stores from probes are off by at most " + worst_errors(rows) + "."]
        if rows
        else []
    )
    out += ["", READING, *pages.machines(found)]
    out += [f"- Emulated hardware, as calibrated at each start: {'; '.join(hardware) or 'not measured'}", noise(found)]
    out += [f"- Failed: {', '.join(map(str, case))}." for case in sorted(failed)]
    out += [f"- Spark writes nothing to {name}: {why}." for name, why in NO_WRITES_BY_SPARK.items()]
    out += descriptions(found)
    out += tables
    out += [*findings(reports, explained, traced), *moved(found), *examined(lines(EXAMINED))]
    out += [*copies(found), *commits(found), *rows, *bottlenecks(found), *use(found)]
    return "\n".join(out).rstrip() + "\n"


def main() -> int:
    """Writes the page."""
    return pages.write("STORAGE.md", page())


if __name__ == "__main__":
    sys.exit(main())
