"""Makes `bench/STORAGE.md` from `bench/results/storage.jsonl`: `python -m bench.storage.table`. Measures nothing.

The explanations of outliers are findings of `pellucid storage doctor`: on the composition with its probe, on the
traces, and on Spark's event logs.
"""

import json
import statistics
import sys
import tempfile
import tomllib
from pathlib import Path

from bench.backtest.judge import RANKS, median_interval
from bench.common import pages, results
from bench.common.pages import narrow_header, row
from bench.storage.agreement import order_of_times, outliers, tau_b
from bench.storage.causes import COMPOSITIONS, CONDITIONS, EXAMINED, TRACES, compositions, diagnosed, reasons, traced_findings
from bench.storage.rig import ALL, VOLUMES
from bench.storage.spark import lines_of
from bench.storage.workloads import LARGE, NO_WRITES_BY_SPARK, RECORD, RECORDS, WORKLOADS, Workload
from harness import binary

ENGINES = ("Pellucid", "Spark")
# The composition whose traces predict the jobs on all others.
BASIS = "GC"
# The suite of those predictions. A trace covers only the last of several statements, and an iterative job's has no storage times.
PREDICTED = "storage-predicted"
PREDICTED_WORKLOADS = ("word count", "DFSIO")
# The largest error of a predicted saving, as a share of the measured one.
GOAL = 0.15
COMMIT_HEADS = ("composition", "output, MB", "with renames, s", "without, s", "saved, s", "predicted, s", "goal", "interval")
# Small sequential requests of S3A's magic committer when a task commits.
COMMIT_REQUESTS = 9
# Totals of a run, with the number of digits shown.
MOVED = (("disk_mb", 0), ("link_mb", 0), ("data_core_s", 2))
# Student's t for 90 %, two-sided, by number of differences.
STUDENT = {3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 12: 1.796}
AT_THE_MEDIAN = "median MB/s of the disk and cores of the data layer"
HEAD = """# Compositions of compute, data and storage, compared with their paths

Does the number of links between compute and data, as `pellucid storage rank` counts them, predict which composition of compute, data and
storage is faster? This repeats the measurements of the paper on [storage compositions](../docs/how/storage-compositions.md).
`make bench-storage` measures it as root; [README.md](README.md#storage-compositions) says how. `python -m bench.storage.table` generates
this page from `results/storage.jsonl` and the files in `results/storage/`; do not edit it.
"""


SPLIT = (
    "Split into tasks and driver, as in §V-A.3 of the paper. Each session with renames has the doctor's evidence, and each without them should\n"
    "have no finding. Below are the times of the parts with and without renames:"
)
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


def lines(suite: str = "storage") -> list[dict]:
    """Returns, for each engine's workload, for probes and for commits, the lines of the newest build, with failed ones."""

    def group(line: dict) -> tuple:
        case = line["case"]
        of = case.get("tasks", case)
        return next(iter(case)), of.get("engine"), of.get("workload")

    every = results.load(suite)
    newest = {group(line): line["build"] for line in every}
    return [line for line in every if line["build"] == newest[group(line)]]


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


def descriptions(found: list[dict]) -> list[str]:
    """Describes each measured composition by the first line of its file."""
    texts = [file.read_text() for file in COMPOSITIONS.glob("*.toml")]
    said = {tomllib.loads(text)["name"]: text.splitlines()[0].removeprefix("# ") for text in texts}
    measured = {line["case"].get("composition") for line in found}
    return ["", *(f"- **{name}**: {said[name]}" for name in ALL if name in measured), ""]


def runs(found: list[dict], engine: str, workload: str) -> dict[str, list[dict]]:
    """Returns the completed runs, by composition."""
    by: dict[str, list[dict]] = {}
    for line in found:
        case = line["case"]
        if case.get("engine") == engine and case["workload"] == workload and line.get("s"):
            by.setdefault(case["composition"], []).append(line)
    return by


def medians(found: list[dict], engine: str) -> dict[tuple[str, str], dict]:
    """Returns an engine's median run of each workload and composition."""
    every = ((w.name, name, some) for w in WORKLOADS for name, some in runs(found, engine, w.name).items())
    return {(workload, name): sorted(some, key=lambda line: line["s"])[len(some) // 2] for workload, name, some in every}


def stem(workload: str, name: str, number: int) -> str:
    """Returns the prefix of a run's kept files."""
    return f"{workload.replace(' ', '-')}-{name}-r{number}"


def files(found: list[dict], run: dict) -> list[str]:
    """Returns a run's kept files: traces, or its part of the session's log, which is written when the session ends."""
    ended = (line for line in found if line["case"].get("tasks") == run["case"])
    return run.get("files") or next((line.get("files", []) for line in ended), [])


def kept(found: list[dict], engine: str) -> dict[tuple[str, str], list[str]]:
    """Returns the kept files of the median runs, by workload and composition."""
    of_each = {case: files(found, run) for case, run in medians(found, engine).items()}
    return {case: some for case, some in of_each.items() if some}


def files_to_keep(found: list[dict], repeats: int) -> set[str]:
    """Returns the files to keep: the median run's once all repeats exist, every run's until then."""
    stay = set()
    for engine in ENGINES:
        for (workload, name), middle in medians(found, engine).items():
            every = runs(found, engine, workload)[name]
            stay.update(*(files(found, run) for run in ([middle] if len(every) >= repeats else every)))
    return stay


def times(found: list[dict], engine: str, workload: str) -> dict[str, list[float]]:
    """Returns seconds, by composition."""
    return {name: [line["s"] for line in some] for name, some in runs(found, engine, workload).items()}


def interval(seconds: list[float]) -> tuple[float, float]:
    """Returns the interval of the median with at least 90 % confidence; with fewer than five runs, their range."""
    return median_interval(seconds) if len(seconds) in RANKS else (min(seconds), max(seconds))


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


def joined(names: list[str]) -> str:
    """Joins names with commas and "and"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def at_the_median(some: list[dict]) -> str:
    """Formats the medians of the disk's rate and the data layer's cores."""
    middle = {key: statistics.median(line["use"][key][2] for line in some) for key in ("disk_mb_s", "data_cores")}
    return f"{middle['disk_mb_s']:.0f}, {middle['data_cores']:.2g}"


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


def findings(reports: dict[str, dict], explained: dict[str, list[dict]], traced: dict) -> list[str]:
    """Returns what each composition's probe measured, and the doctor's findings."""
    out = [
        "## Findings",
        "",
        "### From each composition and its probe",
        "",
        "The table has what [`pellucid storage probe`](../docs/storage.md#probe) measured, and the list what `pellucid storage doctor COMPOSITION",
        "--probe PROBE` finds. This probe reads what it has just written. HDFS still has that in the data nodes' memory, which is behind the link",
        "for NC and on the engine's side of it for GC-VB.",
        "",
    ]
    heads = ("one stream, MB/s", "best, MB/s (at once)", "first byte, ms", "write, MB/s", "rename", "commit by rename", "commit by upload")
    out += narrow_header("composition", *heads)
    ms = lambda value: "not measured" if value is None else f"{value:.0f} ms"
    for name, report in reports.items():
        sequential = [r for r in report["read"] if r["pattern"] == "sequential"]
        best = max(sequential, key=lambda r: r["bytes_per_s"])
        one = sequential[0]
        rename = report["rename"] and ("copies" if report["rename"]["is_copy"] else "moves nothing")
        out.append(
            row(
                name,
                f"{one['bytes_per_s'] / 1e6:.0f}",
                f"{best['bytes_per_s'] / 1e6:.0f} ({best['concurrency']})",
                f"{one['first_byte_ms']['median']:.1f}",
                f"{(report['write_bytes_per_s'] or 0) / 1e6:.0f}",
                rename or "not measured",
                *(ms(report["commit"][key]) for key in ("rename_ms", "multipart_ms")),
            )
        )
    said = [f"- **{name}**: {f['title']}: {f['evidence']}." for name, some in explained.items() for f in some]
    out += ["", *said, ""]
    if traced["Pellucid"]:
        out += [
            "### From Pellucid's traces",
            "",
            "These are the traces of the median runs, with a probe that read stored data that was not in memory. TPC-DS has one trace per query, in",
            "order. What earlier queries read from a file system, including a volume's, is in the page cache by then.",
            *("", *in_kept_files(traced["Pellucid"])),
        ]
    if traced["Spark"]:
        out += [
            "### From Spark's event log",
            "",
            "These are the parts of the log that belong to the median runs.",
            "",
            *in_kept_files(traced["Spark"]),
        ]
    return out


def in_kept_files(traced: dict[tuple[str, str], list[dict]]) -> list[str]:
    """Returns a line for each finding in kept traces or logs, and the list of those without findings."""
    query = lambda f: f", query {f['query']}" if f["query"] else ""
    out = []
    for (workload, name), some in traced.items():
        out += [f"- **{name}**, {workload}{query(f)}: {f['title']}: {f['evidence']}{saving(f)}." for f in some]
    silent = [f"{name}, {workload}" for (workload, name), some in traced.items() if not some]
    return [*out, "", f"No findings: {'; '.join(silent)}.", ""] if silent else [*out, ""]


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


def examined(once_more: list[dict]) -> list[str]:
    """Returns the section on the word count under conditions that differ in one thing each."""
    if not once_more:
        return []
    said = [
        "Why can volumes be slower than a service behind the same link? Pellucid's word count on both, under conditions that differ in one thing",
        "(`python -m bench.storage.examined`). *as it is* is the unchanged run. The disk's rate is the median sample's.",
        "",
        "- *eight reads at once*: faster if reads wait for each answer.",
        "- *lines counted only*: faster if the engine's computing on the same two cores is the limit.",
        "- *a core each*: the engine on one core, all processes of the data and storage layers on the other. Faster if it costs time that the",
        "  processes on a byte's way (loop device, FUSE, librbd, daemon threads) wake each other on another core.",
    ]
    out = [
        "## Possible causes, tested",
        "",
        *said,
        "",
        *narrow_header("composition", "condition", "median s (90 % interval)", "disk, MB/s", "data layer, core seconds", "runs"),
    ]
    by: dict[tuple[str, str], list[dict]] = {}
    for line in once_more:
        by.setdefault((line["case"]["composition"], line["case"]["condition"]), []).append(line)
    base = {name: interval([line["s"] for line in some]) for (name, condition), some in by.items() if condition == CONDITIONS[0]}
    faster, slower = [], []
    for (name, condition), some in sorted(by.items(), key=lambda item: (item[0][0], CONDITIONS.index(item[0][1]))):
        low, high = interval([line["s"] for line in some])
        order = order_of_times((low, high), base[name]) if name in base else 0
        (faster if order < 0 else slower if order > 0 else []).append(f"{name} with *{condition}*")
        middle = statistics.median(line["s"] for line in some)
        rate = statistics.median(line["use"]["disk_mb_s"][2] for line in some)
        core_s = statistics.median(line["use"]["data_core_s"] for line in some)
        out.append(row(name, condition, f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{rate:.0f}", f"{core_s:.2f}", len(some)))
    changed = [f"{word} than *{CONDITIONS[0]}*: {joined(names)}." for word, names in (("Faster", faster), ("Slower", slower)) if names]
    return [*out, "", f"{' '.join(changed)} All other intervals overlap that of *{CONDITIONS[0]}*.".strip(), ""]


def saving(finding: dict) -> str:
    """Formats the predicted saving of a finding, if it has one."""
    if finding["saves_ms"] is None:
        return ""
    return f"; fixing it saves {finding['saves_ms']:.0f} ms ({finding['low_ms']:.0f} to {finding['high_ms']:.0f})"


def commits(found: list[dict]) -> list[str]:
    """Returns the section on commits by rename: the saving that the doctor predicts from the log, and the measured one."""
    done = {tuple(line["case"].values()): line for line in found if "commits" in line["case"]}
    if not done:
        return []
    out = ["## Output committed by rename", ""]
    out += [
        "How much time do renames cost, and does `pellucid storage doctor` predict it? In turns, Spark writes the same output with Hadoop's",
        "committer (tasks and driver rename) and with the magic committer (uploads are completed at commit). The doctor predicts the saving from",
        "a probe over the same interface, S3's, and from the log of the session with renames alone.",
        "",
        "- The interval of *saved* is Student's t at 90 % over the pairs of writes.",
        f'- The goal is an error of at most {GOAL:.0%}. It is "not resolved" if only some values of that interval meet it.',
        "- *interval*: the doctor's 90 % interval, and whether the measured saving is inside.",
        "- Four earlier sessions settled how the doctor counts the requests of uploads, and how wide it makes the interval for them. The sessions",
        "  below are later.",
        "",
        *narrow_header(*COMMIT_HEADS),
    ]
    split = []
    for (name, times_as_large), line in sorted(done.items(), reverse=True):
        saved = sum(line["rename_s"]) - sum(line["magic_s"])
        logs = {kind: TRACES / log_name(name, times_as_large, kind) for kind in ("rename", "magic")}
        # Findings of the build that makes the page; without the logs, those of the build that measured.
        said = {kind: renames(diagnosed(log, line["report"]) or line[f"{kind}_findings"]) for kind, log in logs.items()}
        seen = said["rename"]
        each = [a - b for a, b in zip(line["rename_s"], line["magic_s"], strict=True)]
        half = STUDENT[len(each)] * statistics.stdev(each) * len(each) ** 0.5
        goal = verdict(seen and seen["saves_ms"], saved, half)
        cells = [f"{sum(line[f'{kind}_s']):.1f}" for kind in ("rename", "magic")] + [f"{saved:.1f} ± {half:.1f}"]
        written_mb = RECORD * RECORDS * times_as_large * len(line["rename_s"]) / 1e6
        out.append(row(name, f"{written_mb:.0f}", *cells, against(seen, saved), goal, within(seen, saved)))
        split += [f"- **{name}**: {seen['evidence'].split('; ')[-1]}."] if seen else []
        again = said["magic"]["title"] if said["magic"] else "no finding"
        split.append(f"- {name}, {written_mb:.0f} MB, without renames: {again}.")
        split += compared(*logs.values()) + requests(logs["magic"], line["report"])
    left_out = [f"{name} is left out: {why}." for name, why in NO_WRITES_BY_SPARK.items()]
    counted = [
        "Commits by upload take time as well. S3A's magic committer makes 13 additional small requests for each task that writes, 14 in its",
        "driver, and one for each upload that it completes. The doctor charges each with the time of such a request in the probe, where two",
        "tasks send the same kinds of requests while the other may be writing. It adds 7 ms for S3A itself, since S3A, the tasks and the store",
        "share two cores here. Its interval allows for half of that time more or less. The time does not depend on file size, so it matters",
        "most where output is small. An earlier session probed Swift's own protocol, whose requests are faster than those of its S3 interface.",
        "The saving predicted on SWI was then 21 % too high for small output and 7 % for large (the lines are in `results/storage.jsonl`).",
    ]
    return [*out, "", *counted, "", SPLIT, "", *split, "", *left_out, ""]


def verdict(predicted_ms: float | None, saved_s: float, half_s: float) -> str:
    """Returns whether a predicted saving is within the goal of the measured one, which is known to ± `half_s`."""
    if not predicted_ms or saved_s <= 0:
        return "not seen"
    least, most = (1 - GOAL) * 1e3, (1 + GOAL) * 1e3
    if saved_s * least <= predicted_ms <= saved_s * most:
        return "met"
    return "not resolved" if (saved_s - half_s) * least <= predicted_ms <= (saved_s + half_s) * most else "not met"


def compared(before: Path, after: Path) -> list[str]:
    """Compares the parts of the sessions with and without renames, from their logs."""
    if not (before.exists() and after.exists()):
        return []
    pairs = zip(parts(before).items(), parts(after).values(), strict=True)
    said = "; ".join(f"{what} {with_s:.1f} s with, {without_s:.1f} s without" for (what, with_s), without_s in pairs)
    return [f"  From the logs of both sessions: {said}."]


def requests(log: Path, report: dict) -> list[str]:
    """Compares the time of S3A's small requests, from those of a task's commit by upload, with the probe's."""
    if not log.exists() or not (probes_ms := report["commit"].get("request_ms")):
        return []
    tasks_s = [commit_s(event) for event in map(json.loads, lines_of(log)) if "Task Info" in event]
    mean_ms = statistics.mean(s * 1e3 for s in tasks_s if s > 0)
    return [
        f"  Without renames a task's commit took {mean_ms:.0f} ms on average: each of S3A's {COMMIT_REQUESTS} requests "
        f"{mean_ms / COMMIT_REQUESTS:.1f} ms, against {probes_ms:.1f} ms in the probe."
    ]


def commit_s(event: dict) -> float:
    """Returns the commit time of a finished task, in seconds."""
    return sum(float(u["Update"]) for u in event["Task Info"]["Accumulables"] if u.get("Name") == "task commit time") / 1e3


def parts(log: Path) -> dict[str, float]:
    """Returns a log's seconds of jobs, of the driver after them, of task commits, and of tasks without their commits."""
    seconds = dict.fromkeys(("jobs", "driver after the jobs", "task commits", "tasks without commits"), 0.0)
    for line in lines_of(log):
        event = json.loads(line)
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerJobStart":
            begun = event["Submission Time"]
        elif kind == "SparkListenerJobEnd":
            ended = event["Completion Time"]
            seconds["jobs"] += (ended - begun) / 1e3
        elif kind == "SparkListenerSQLExecutionEnd":
            seconds["driver after the jobs"] += (event["time"] - ended) / 1e3
        elif kind == "SparkListenerTaskEnd":
            seconds["task commits"] += commit_s(event)
            seconds["tasks without commits"] += event["Task Metrics"]["Executor Run Time"] / 1e3 - commit_s(event)
    return seconds


def log_name(name: str, times_as_large: int, kind: str) -> str:
    """Returns the name of the log of a session that committed with or without renames."""
    return f"commits-{name}-{times_as_large}-{kind}.zstd"


def renames(some: list[dict]) -> dict | None:
    """Returns the finding that output is committed by rename, if any."""
    return next((f for f in some if "rename" in f["title"]), None)


def within(finding: dict | None, saved_s: float) -> str:
    """Formats the interval of a predicted saving, and whether it contains the measured one."""
    if not finding or not finding["saves_ms"]:
        return "–"
    low, high = finding["low_ms"] / 1e3, finding["high_ms"] / 1e3
    return f"{low:.1f} to {high:.1f}: {'inside' if low <= saved_s <= high else 'outside'}"


def against(finding: dict | None, saved_s: float) -> str:
    """Formats a predicted saving and its error relative to the measured one."""
    if not finding or not finding["saves_ms"]:
        return "–"
    predicted_s = finding["saves_ms"] / 1e3
    return f"{predicted_s:.1f} ({abs(predicted_s - saved_s) / saved_s:.0%})" if saved_s > 0 else f"{predicted_s:.1f}"


def basis(workload: str) -> Path:
    """Returns the trace on the local disk from which a workload is predicted."""
    return TRACES / f"predicted-{workload.replace(' ', '-')}.trace"


def predicted() -> list[str]:
    """Returns the section on jobs that `pellucid whatif --set storage=PROBE` predicts from a trace on the local disk."""
    found = lines(PREDICTED)
    reports = {line["case"]["probe"]: line["report"] for line in found if "report" in line}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.json"
        for workload in PREDICTED_WORKLOADS:
            for name, report in reports.items():
                asked = {"workload": workload, "composition": name}
                some = [line for line in found if asked.items() <= line["case"].items()]
                if not some or not basis(workload).exists():
                    continue
                probe.write_text(json.dumps(report))
                ran = binary.run("whatif", basis(workload), "--set", f"storage={probe}", "--json")
                told = ran.check().json()["prediction"]
                seconds = [line["job_s"] for line in some]
                measured, (least, most) = statistics.median(seconds), interval(seconds)
                low, middle, high = (float(told[key]) / 1e3 for key in ("low_ms", "duration_ms", "high_ms"))
                inside = "inside" if low <= measured <= high else "outside"
                cells = [f"{measured:.2f} ({least:.2f} to {most:.2f})", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
                cells += [f"{round(100 * (middle / measured - 1)):+d} %", inside]
                ended = [statistics.median(line["publish_s"] for line in some), completion_s(report)]
                rows.append(row(workload, name, *cells, *(f"{s:.2f}" if workload == "DFSIO" else "–" for s in ended)))
    if not rows:
        return []
    noisy = sum(line["others_cores"] > results.NOISE_CORES for line in found)
    said = [
        "Can a job's time on another store be predicted without running it there? `pellucid whatif --set storage=PROBE` predicts each job from one",
        "trace on the local disk and a probe of the other store",
        f"(`python -m bench.storage.predicted`): a word count of {LARGE['word count'] * 101} MB, and {RECORD * RECORDS * LARGE['DFSIO'] / 1e6:.0f} MB of output (DFSIO), five rounds.",
        "",
        "- Times are the jobs' own, from their traces. The page cache is emptied before each run and each probe, and the probe reads the job's",
        "  own input, no byte twice.",
        "- *completion* is the time to complete the upload, in the runs and by the probe.",
        "- All stores share one disk, so a word count that waits for it takes equally long on each. Its rows show that the probe measures the",
        "  disk; a probe that reads back what it has just written does not (124 MB/s, the link's rate, instead of 100).",
        "- Output is predicted less exactly. A job's output finds an idle disk, which takes the first 25 MB or so, 7 % of the output, at once. The",
        "  probe's upload follows its other writes and does not gain from that.",
        f"- For {noisy} of {len(found)} lines other processes used more than {results.NOISE_CORES} cores.",
    ]
    heads = ("measured s (90 % interval)", "predicted s (90 % interval)", "error", "interval", "completion, s", "completion by probe, s")
    return ["## Predicted from a probe", "", *said, "", *narrow_header("workload", "composition", *heads), *rows, ""]


def worst_errors(rows: list[str]) -> str:
    """Returns the largest error of each workload in the table of predictions, and the cases outside their interval."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    errors = {workload: [abs(int(row[4].split()[0])) for row in cells if row[0] == workload] for workload in PREDICTED_WORKLOADS}
    outside = [f"{row[1]}'s {row[0]}" for row in cells if len(row) > 5 and row[5] == "outside"]
    worst = " and ".join(f"{max(found)} % ({workload})" for workload, found in errors.items() if found)
    return worst + (f"; outside its 90 % interval: {joined(outside)}" if outside else "")


def completion_s(report: dict) -> float:
    """Returns the time to complete the upload of DFSIO's output, from a probe, in seconds."""
    upload = report["upload"]
    least_ms = min(upload["complete_small_ms"], upload["complete_ms"])
    of_bytes = (upload["complete_ms"] - least_ms) * RECORD * RECORDS * LARGE["DFSIO"] / upload["bytes"]
    return (least_ms + of_bytes) / 1e3


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
