"""Makes `bench/STORAGE.md` from `bench/results/storage.jsonl`: `python -m bench.storage.table`.

What is said of an outlier is what the tool found by itself: `pellucid storage doctor` on the composition with its
probe, on the traces, and on Spark's event logs.
"""

import json
import statistics
import sys
import tempfile
import tomllib
from pathlib import Path

from bench import results
from bench.backtest.judge import RANKS, median_interval
from bench.storage.agreement import outliers, tau_b
from bench.storage.causes import COMPOSITIONS, CONDITIONS, EXAMINED, TRACES, compositions, diagnosed, reasons, traced_findings
from bench.storage.rig import ALL, VOLUMES
from bench.storage.spark import lines_of
from bench.storage.workloads import LARGE, NO_WRITES_BY_SPARK, RECORD, RECORDS, WORKLOADS, Workload
from tests import binary

PAGE = results.ROOT / "bench" / "STORAGE.md"
ENGINES = ("Pellucid", "Spark")
# Jobs are predicted on every other storage from their traces on this one.
BASIS = "GC"
# The suite of those predictions. Of several statements a trace is of the last, and an iterative job's says nothing of storage.
PREDICTED = "storage-predicted"
PREDICTED_WORKLOADS = ("word count", "DFSIO")
# Predicted within this share of what switching off then saves.
GOAL = 0.15
COMMIT_HEADS = ("composition", "output, MB", "with renames, s", "without, s", "saved, s", "predicted, s", "goal", "interval")
# Small requests that S3A's magic committer makes when a task commits, one after another.
COMMIT_REQUESTS = 9
# What a run moved in all, with the digits that are shown.
MOVED = (("disk_mb", 0), ("link_mb", 0), ("data_core_s", 2))
# Student's t for 90 %, two-sided, by how many differences there are.
STUDENT = {3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 12: 1.796}
AT_THE_MEDIAN = "MB/s of the disk and cores of the data layer at the median"
HEAD = """# Where data lives: compositions measured beside their paths

Made by `python -m bench.storage.table` from `results/storage.jsonl`, which `make bench-storage` fills; nothing here is
written by hand. `README.md` says how it is measured. Runs of an engine's workload took turns, by one build: the newest that has any.
Of two compositions that do not differ, five runs each lie apart by chance once in 126 such pairs; a table of eight has 28.
"""


def lines(suite: str = "storage") -> list[dict]:
    """Of each engine's workload, of probes and of commits, the lines of the newest build that has any, failed ones too."""

    def beside(line: dict) -> tuple:
        case = line["case"]
        of = case.get("tasks", case)
        return next(iter(case)), of.get("engine"), of.get("workload")

    every = results.load(suite)
    newest = {beside(line): line["build"] for line in every}
    return [line for line in every if line["build"] == newest[beside(line)]]


def ranks(as_placed: bool = False) -> dict[str, dict[str, int]]:
    """Links of each composition, for reads and writes, as `pellucid storage rank` counts them.

    `as_placed`: copies stand beside each other, as they do on this machine; the files say where such systems have them.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for file in sorted(COMPOSITIONS.glob("*.toml")):
            files.append(Path(folder, file.name))
            text = file.read_text()
            files[-1].write_text(text.replace("\ncopies = 2\n", '\ncopies = 2\ncopies_run = "machine"\n') if as_placed else text)
        document = binary.run("storage", "rank", "--json", *files).check().json()
    return {way: {path["composition"]: path["links"] for path in document[way]} for way in ("read", "write")}


def what_they_are(found: list[dict]) -> list[str]:
    """Each composition that was measured, in the words of its file."""
    texts = [file.read_text() for file in COMPOSITIONS.glob("*.toml")]
    said = {tomllib.loads(text)["name"]: text.splitlines()[0].removeprefix("# ") for text in texts}
    measured = {line["case"].get("composition") for line in found}
    return ["", *(f"- **{name}**: {said[name]}" for name in ALL if name in measured), ""]


def runs(found: list[dict], engine: str, workload: str) -> dict[str, list[dict]]:
    """Runs that ended, by composition."""
    by: dict[str, list[dict]] = {}
    for line in found:
        case = line["case"]
        if case.get("engine") == engine and case["workload"] == workload and line.get("s"):
            by.setdefault(case["composition"], []).append(line)
    return by


def medians(found: list[dict], engine: str) -> dict[tuple[str, str], dict]:
    """Of each of an engine's workloads on each composition the run that took the median time, by workload and composition."""
    every = ((w.name, name, some) for w in WORKLOADS for name, some in runs(found, engine, w.name).items())
    return {(workload, name): sorted(some, key=lambda line: line["s"])[len(some) // 2] for workload, name, some in every}


def stem(workload: str, name: str, number: int) -> str:
    """How the files begin that are kept of a run, by composition and round."""
    return f"{workload.replace(' ', '-')}-{name}-r{number}"


def files(found: list[dict], run: dict) -> list[str]:
    """What was kept of a run: traces, or its part of the session's log, which is known once that has ended."""
    ended = (line for line in found if line["case"].get("tasks") == run["case"])
    return run.get("files") or next((line.get("files", []) for line in ended), [])


def kept(found: list[dict], engine: str) -> dict[tuple[str, str], list[str]]:
    """What was kept of the runs that took the median time, by workload and composition."""
    of_each = {case: files(found, run) for case, run in medians(found, engine).items()}
    return {case: some for case, some in of_each.items() if some}


def files_to_keep(found: list[dict], repeats: int) -> set[str]:
    """What was kept of runs and is to stay: of the median's where there are all repeats, else of each."""
    stay = set()
    for engine in ENGINES:
        for (workload, name), middle in medians(found, engine).items():
            every = runs(found, engine, workload)[name]
            stay.update(*(files(found, run) for run in ([middle] if len(every) >= repeats else every)))
    return stay


def times(found: list[dict], engine: str, workload: str) -> dict[str, list[float]]:
    """Seconds, by composition."""
    return {name: [line["s"] for line in some] for name, some in runs(found, engine, workload).items()}


def interval(seconds: list[float]) -> tuple[float, float]:
    """Where the median lies with at least 90 % confidence; of fewer than five runs, all of them."""
    return median_interval(seconds) if len(seconds) in RANKS else (min(seconds), max(seconds))


def row(*cells) -> str:
    """A row of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells) -> list[str]:
    """Its first two."""
    return [row(*cells), "|" + "---|" * len(cells)]


def runtimes(found: list[dict], engine: str, links: dict, placed: dict, explained: dict[str, list[dict]], traced: dict) -> list[str]:
    """The paper's Table III for an engine, with agreement, and outliers with what was found of the slower one."""
    out = [f"## {engine}", ""]
    for workload in WORKLOADS:
        seconds = times(found, engine, workload.name)
        if not seconds:
            continue
        by_path = links[workload.way] if workload.way else {}
        out += [f"### {workload.name}", "", *head("composition", "links", "median s", "90 % interval", "runs")]
        for name, some in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
            low, high = interval(some)
            out.append(row(name, by_path.get(name, "–"), f"{statistics.median(some):.2f}", f"{low:.2f} to {high:.2f}", len(some)))
        out.append("")
        if by_path:
            intervals = {name: interval(some) for name, some in seconds.items()}
            known = {name: by_path[name] for name in intervals}
            tau = tau_b(known, intervals)
            said = "not defined: all are tied" if tau is None else f"{tau:.2f}"
            here = {name: placed[workload.way][name] for name in intervals}
            without = tau_b(here, intervals) if here != known else None
            but = "" if without is None else f"; {without:.2f} without the links between copies, which are on one machine here"
            out.append(f"Agreement with the {workload.way} rank by path: τ-b {said}{but}.")
            wrong = outliers(known, intervals)
            out += ["", "Against the path:", ""] if wrong else []
            known_of = {name: [*explained.get(name, []), *traced.get((workload.name, name), [])] for name in seconds}
            out += [*against_the_path(runs(found, engine, workload.name), engine, workload, wrong, known_of), ""]
    return out


def against_the_path(measured: dict[str, list[dict]], engine: str, workload: Workload, wrong: list, known_of: dict) -> list[str]:
    """Each composition that is slower than its path says, with what was found of it or of those that are faster."""
    out = []
    for slower in sorted({a for a, _ in wrong}):
        whys: dict[str, list[str]] = {}
        for faster in (b for a, b in wrong if a == slower):
            why = reasons(known_of[slower], known_of[faster], workload.way, engine)
            whys.setdefault(why, []).append(faster)
        said = []
        for why, names in whys.items():
            uses = "; ".join(f"{name} {at_the_median(measured[name])}" for name in (slower, *names))
            said.append(f"than {' and '.join(names)}: {why or f'nothing is found that says why ({AT_THE_MEDIAN}: {uses})'}")
        out.append(f"- {slower} is slower {'; '.join(said)}.")
    return out


def at_the_median(some: list[dict]) -> str:
    """What the disk moved and the data layer computed, in the middle of the runs."""
    middle = {key: statistics.median(line["use"][key][2] for line in some) for key in ("disk_mb_s", "data_cores")}
    return f"{middle['disk_mb_s']:.0f}, {middle['data_cores']:.2g}"


def copies(found: list[dict]) -> list[str]:
    """What copies cost: one, two of the volume's, and two of HDFS's on each of two."""
    files = {name: tomllib.loads((COMPOSITIONS / f"{name.lower()}.toml").read_text()) for name in VOLUMES}
    stored = {name: file["data"].get("copies", 1) * file["storage"].get("copies", 1) for name, file in files.items()}
    by_engine = {engine: times(found, engine, "DFSIO") for engine in ENGINES}
    if not all(seconds.keys() >= stored.keys() for seconds in by_engine.values()):
        return []
    out = ["## Copies at one layer and at two", "", "DFSIO's output on volumes, and how many times as long as with one copy.", ""]
    out += head("composition", "bytes stored for one", *(f"{engine}, median s" for engine in by_engine))
    for name, factor in stored.items():
        middles = [(statistics.median(seconds[name]), statistics.median(seconds["GC-V"])) for seconds in by_engine.values()]
        out.append(row(name, factor, *(f"{middle:.2f} ({middle / one:.1f})" for middle, one in middles)))
    return [*out, ""]


def findings(reports: dict[str, dict], explained: dict[str, list[dict]], traced: dict) -> list[str]:
    """What the doctor says of each composition with its probe, and what each probe measured."""
    read = (
        "This probe reads what it has just written: HDFS's data nodes have that in memory, NC's behind the link and GC-VB's on this side of it."
    )
    said = f"What `pellucid storage doctor COMPOSITION --probe PROBE` finds, on each composition as it was probed. {read}"
    out = ["## Explained", "", said, ""]
    heads = ("one stream MB/s", "best MB/s (at once)", "first byte ms", "written alone, by the probe MB/s", "rename", "commit, renames", "commit, uploads")
    out += head("composition", *heads)
    ms = lambda value: "not measured" if value is None else f"{value:.0f} ms"  # noqa: E731
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
            "And in Pellucid's traces of the runs above, of each workload on each composition that of the run that took the median time, beside a probe that "
            "read what was there and in no memory. TPC-DS has one of each query, in turn: what the ones before it have read of a file system, a volume's as well, "
            "is in the page cache by then.",
            *("", *told(traced["Pellucid"])),
        ]
    if traced["Spark"]:
        out += ["And in Spark's event log, in its part of the median run of each:", "", *told(traced["Spark"])]
    return out


def told(traced: dict[tuple[str, str], list[dict]]) -> list[str]:
    """What was found in kept traces or logs, and in which there was nothing."""
    query = lambda f: f", query {f['query']}" if f["query"] else ""  # noqa: E731
    out = []
    for (workload, name), some in traced.items():
        out += [f"- **{name}**, {workload}{query(f)}: {f['title']}: {f['evidence']}{saving(f)}." for f in some]
    silent = [f"{name}, {workload}" for (workload, name), some in traced.items() if not some]
    return [*out, "", f"Nothing is found in: {'; '.join(silent)}.", ""] if silent else [*out, ""]


def moved(found: list[dict]) -> list[str]:
    """What the median runs moved in all."""
    out = ["## Moved", "", "What disk and link moved in each run that took the median time, and what the data layer computed.", ""]
    out += head("workload", "engine", "composition", "s", "disk, MB", "link, both ways, MB", "data layer, core seconds")
    by_engine = {engine: medians(found, engine) for engine in ENGINES}
    for workload in (w for w in WORKLOADS if w.way):
        for engine, by in by_engine.items():
            for name in (name for name in ALL if (workload.name, name) in by):
                line = by[workload.name, name]
                cells = (f"{line['use'][key]:.{digits}f}" if key in line["use"] else "not measured" for key, digits in MOVED)
                out.append(row(workload.name, engine, name, f"{line['s']:.2f}", *cells))
    return [*out, ""]


def examined(once_more: list[dict]) -> list[str]:
    """The word count under conditions that differ in one thing each."""
    if not once_more:
        return []
    said = (
        "The word count on volumes and on a service behind the same link, by `python -m bench.storage.examined`. *Eight reads at once*: were it the wait for "
        "each answer, more of them would help. *Lines counted only*: were it the engine's own computing on the same two cores, less of it would. "
        "*A core each*: the engine on one core, all processes of the data and the storage layer on the other, so that what a byte passes on its "
        "way (a loop device, FUSE, librbd, a daemon's threads) is never woken on another core. The disk's rate is that of the middle sample."
    )
    out = ["## Examined", "", said, "", *head("composition", "condition", "median s (90 % interval)", "disk, MB/s", "data layer, core seconds", "runs")]
    by: dict[tuple[str, str], list[dict]] = {}
    for line in once_more:
        by.setdefault((line["case"]["composition"], line["case"]["condition"]), []).append(line)
    for (name, condition), some in sorted(by.items(), key=lambda item: (item[0][0], CONDITIONS.index(item[0][1]))):
        low, high = interval([line["s"] for line in some])
        middle = statistics.median(line["s"] for line in some)
        rate = statistics.median(line["use"]["disk_mb_s"][2] for line in some)
        core_s = statistics.median(line["use"]["data_core_s"] for line in some)
        out.append(row(name, condition, f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{rate:.0f}", f"{core_s:.2f}", len(some)))
    return [*out, ""]


def saving(finding: dict) -> str:
    """What a finding's change saves, where that is predicted."""
    if finding["saves_ms"] is None:
        return ""
    return f"; mending it saves {finding['saves_ms']:.0f} ms ({finding['low_ms']:.0f} to {finding['high_ms']:.0f})"


def commits(found: list[dict]) -> list[str]:
    """What a commit by rename costs, as the doctor says from the log alone, and as switching it off then saved."""
    done = {tuple(line["case"].values()): line for line in found if "commits" in line["case"]}
    if not done:
        return []
    out = ["## Output committed by rename", ""]
    out += [
        "Spark writes the same output with Hadoop's committer (tasks and driver rename) and with the magic one (uploads "
        "completed at commit), in turns, after a probe of the store over the same interface, S3's. Saved is with 90 % of Student's t over the writes, the first with "
        "the first and so on. The saving is predicted by `pellucid storage doctor` from the log of the session that renamed and from "
        f"that probe alone; the goal is {GOAL:.0%} of what was saved, and is not resolved where the saving lies within it for some value "
        "of the interval only. How uploads' own requests count, and the interval's room for them, was settled on the logs of four "
        "earlier sessions; those below came after it.",
        "",
        *head(*COMMIT_HEADS),
    ]
    split = []
    for (name, times_as_large), line in sorted(done.items(), reverse=True):
        saved = sum(line["rename_s"]) - sum(line["magic_s"])
        logs = {kind: TRACES / log_name(name, times_as_large, kind) for kind in ("rename", "magic")}
        # What the build says that makes the page; without the logs, what the one said that measured.
        said = {kind: renames(diagnosed(log, line["report"]) or line[f"{kind}_findings"]) for kind, log in logs.items()}
        seen = said["rename"]
        each = [a - b for a, b in zip(line["rename_s"], line["magic_s"], strict=True)]
        half = STUDENT[len(each)] * statistics.stdev(each) * len(each) ** 0.5
        goal = verdict(seen and seen["saves_ms"], saved, half)
        cells = [f"{sum(line[f'{kind}_s']):.1f}" for kind in ("rename", "magic")] + [f"{saved:.1f} ± {half:.1f}"]
        written_mb = RECORD * RECORDS * times_as_large * len(line["rename_s"]) / 1e6
        out.append(row(name, f"{written_mb:.0f}", *cells, against(seen, saved), goal, within(seen, saved)))
        split += [f"- **{name}**: {seen['evidence'].split('; ')[-1]}."] if seen else []
        again = said["magic"]["title"] if said["magic"] else "nothing is found any more"
        split.append(f"- {name}, {written_mb:.0f} MB, without renames: {again}.")
        split += compared(*logs.values()) + requests(logs["magic"], line["report"])
    left_out = [f"{name} is left out: {why}." for name, why in NO_WRITES_BY_SPARK.items()]
    counted = (
        "A commit by uploads takes time of its own. S3A's magic committer makes 13 small requests more for each task that writes, "
        "14 in its driver, and one for each upload that it completes. The doctor counts each for as long as one takes in the probe, "
        "where two tasks send the same kinds of requests while the other may be writing, and 7 ms that S3A itself takes here, where it, the "
        "tasks and the store share two cores; its interval has room for half as much and half as much more. That is the same for small "
        "files and large ones, so it weighs where output is small. Probed in Swift's own protocol, whose requests take less than those of its "
        "S3 interface, what was saved on SWI was predicted 21 % too high for small output, and 7 % for large (a session before this one, "
        "whose lines stay in `results/storage.jsonl`)."
    )
    return [*out, "", counted, "", "Split into the tasks' and the driver's part, as the paper's §V-A.3:", "", *split, "", *left_out, ""]


def verdict(predicted_ms: float | None, saved_s: float, half_s: float) -> str:
    """Whether a predicted saving is within the goal of what was saved, give or take `half_s`."""
    if not predicted_ms or saved_s <= 0:
        return "not seen"
    least, most = (1 - GOAL) * 1e3, (1 + GOAL) * 1e3
    if saved_s * least <= predicted_ms <= saved_s * most:
        return "met"
    return "not resolved" if (saved_s - half_s) * least <= predicted_ms <= (saved_s + half_s) * most else "not met"


def compared(before: Path, after: Path) -> list[str]:
    """Where the saving was, by the logs of the session with renames and of the one without."""
    if not (before.exists() and after.exists()):
        return []
    pairs = zip(parts(before).items(), parts(after).values(), strict=True)
    said = "; ".join(f"{what} {with_s:.1f} s with, {without_s:.1f} s without" for (what, with_s), without_s in pairs)
    return [f"  By the logs of both sessions: {said}."]


def requests(log: Path, report: dict) -> list[str]:
    """What a small request took S3A, by the nine that a task's commit by uploads makes, beside the probe's."""
    if not log.exists() or not (probes_ms := report["commit"].get("request_ms")):
        return []
    tasks_s = [commit_s(event) for event in map(json.loads, lines_of(log)) if "Task Info" in event]
    mean_ms = statistics.mean(s * 1e3 for s in tasks_s if s > 0)
    return [
        f"  Without renames a task's commit took {mean_ms:.0f} ms in the mean: each of S3A's {COMMIT_REQUESTS} requests "
        f"{mean_ms / COMMIT_REQUESTS:.1f} ms, the probe's {probes_ms:.1f} ms."
    ]


def commit_s(event: dict) -> float:
    """What a task that has ended took to commit."""
    return sum(float(u["Update"]) for u in event["Task Info"]["Accumulables"] if u.get("Name") == "task commit time") / 1e3


def parts(log: Path) -> dict[str, float]:
    """Seconds of a log: of jobs, of the driver after them, of tasks' commits, and of the tasks beside those."""
    seconds = dict.fromkeys(("jobs", "the driver after them", "commits of tasks", "tasks beside their commits"), 0.0)
    for line in lines_of(log):
        event = json.loads(line)
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerJobStart":
            begun = event["Submission Time"]
        elif kind == "SparkListenerJobEnd":
            ended = event["Completion Time"]
            seconds["jobs"] += (ended - begun) / 1e3
        elif kind == "SparkListenerSQLExecutionEnd":
            seconds["the driver after them"] += (event["time"] - ended) / 1e3
        elif kind == "SparkListenerTaskEnd":
            seconds["commits of tasks"] += commit_s(event)
            seconds["tasks beside their commits"] += event["Task Metrics"]["Executor Run Time"] / 1e3 - commit_s(event)
    return seconds


def log_name(name: str, times_as_large: int, kind: str) -> str:
    """Of the log of a session that committed so, by renames or without."""
    return f"commits-{name}-{times_as_large}-{kind}.zstd"


def renames(some: list[dict]) -> dict | None:
    """The finding that output is committed by rename."""
    return next((f for f in some if "rename" in f["title"]), None)


def within(finding: dict | None, saved_s: float) -> str:
    """A predicted saving's interval, and whether the measured one is in it."""
    if not finding or not finding["saves_ms"]:
        return "–"
    low, high = finding["low_ms"] / 1e3, finding["high_ms"] / 1e3
    return f"{low:.1f} to {high:.1f}: {'inside' if low <= saved_s <= high else 'outside'}"


def against(finding: dict | None, saved_s: float) -> str:
    """A predicted saving, and by how much of the measured one it is off."""
    if not finding or not finding["saves_ms"]:
        return "–"
    predicted_s = finding["saves_ms"] / 1e3
    return f"{predicted_s:.1f} ({abs(predicted_s - saved_s) / saved_s:.0%})" if saved_s > 0 else f"{predicted_s:.1f}"


def basis(workload: str) -> Path:
    """The trace on the local disk that a workload is predicted from."""
    return TRACES / f"predicted-{workload.replace(' ', '-')}.trace"


def predicted() -> list[str]:
    """Jobs on each storage, as `pellucid whatif --set storage=PROBE` predicts them from a trace on the local disk."""
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
    said = (
        "From one trace on the local disk and a probe of the other store, by `python -m bench.storage.predicted`: a word count of "
        f"{LARGE['word count'] * 101} MB and {RECORD * RECORDS * LARGE['DFSIO'] / 1e6:.0f} MB of output, five rounds. Times are the "
        "jobs' own, as their traces say. Before each run and each probe what is on the disk leaves the page cache, and the probe "
        "reads the job's own input, no byte twice. The last two "
        "columns are what completing the upload took in the runs, and what the probe says that it takes, in seconds. All stores have the "
        "same disk behind them, so that a word count that waits for it takes as long everywhere: its rows show that the probe sees the disk, "
        "which it does not where it reads back what it has written (124 MB/s, the link's, for 100). A job's output meets a disk that has "
        "rested and takes the first 25 MB or so at once, which is 7 % of it; the probe's upload comes after its other writes. "
        f"Beside {noisy} of {len(found)} lines other processes used more than {results.NOISE_CORES} cores."
    )
    heads = ("measured s (90 % interval)", "predicted s (90 % interval)", "off by", "interval", "completed in", "by the probe")
    return ["## Predicted from a probe", "", said, "", *head("workload", "composition", *heads), *rows, ""]


def completion_s(report: dict) -> float:
    """What a probe says that completing the upload of DFSIO's output takes."""
    upload = report["upload"]
    least_ms = min(upload["complete_small_ms"], upload["complete_ms"])
    of_bytes = (upload["complete_ms"] - least_ms) * RECORD * RECORDS * LARGE["DFSIO"] / upload["bytes"]
    return (least_ms + of_bytes) / 1e3


def use(found: list[dict]) -> list[str]:
    """The paper's figures 4 and 5: use of each layer, and how long tasks took; medians of the runs' percentiles."""
    out = ["## Use of each layer, and task times", ""]
    out += ["5, 25, 50, 75 and 95 of a hundred samples of 0.1 s; task times in seconds, the same percentiles.", ""]
    out += head("workload", "engine", "composition", "compute, cores", "data layer, cores", "disk, MB/s", "link, MB/s", "tasks, s")

    def middle(some: list[list[float]]) -> str:
        some = [one for one in some if one]
        values = [statistics.median(column) for column in zip(*some, strict=True)]
        return " / ".join(f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in values) or "–"

    # How long Spark's tasks took is known once their session has ended.
    spark = {tuple(line["case"]["tasks"].values()): line["task_s"] for line in found if "tasks" in line["case"]}
    for workload in WORKLOADS:
        for engine in ENGINES:
            for name, some in runs(found, engine, workload.name).items():
                tasks = [line.get("task_s") or spark.get(tuple(line["case"].values())) or [] for line in some]
                uses = [middle([line["use"][key] for line in some]) for key in ("compute_cores", "data_cores", "disk_mb_s", "link_mb_s")]
                out.append(row(workload.name, engine, name, *uses, middle(tasks)))
    return [*out, ""]


def bottlenecks(found: list[dict]) -> list[str]:
    """What the engine's own traces name."""
    out = ["## What limited Pellucid, by its own traces", "", "Of TPC-DS that is the longest query's.", "", *head("workload", "composition", "bottleneck of the runs")]
    for workload in WORKLOADS:
        for name, some in runs(found, "Pellucid", workload.name).items():
            kinds = [line.get("bottleneck") or "none named" for line in some]
            out.append(row(workload.name, name, ", ".join(f"{kind} {kinds.count(kind)}×" for kind in sorted(set(kinds)))))
    return [*out, ""]


def noise(found: list[dict]) -> str:
    """How many runs there are, and beside how many something else computed."""
    measured = [line for line in found if "engine" in line["case"] and line.get("s")]
    noisy = [line["case"] for line in measured if line.get("others_cores", 0) > results.NOISE_CORES]
    writing = sum(case["workload"] == "DFSIO" for case in noisy)
    volumes = sum(case["workload"] != "DFSIO" and case["composition"] in VOLUMES for case in noisy)
    return (
        f"{len(measured)} runs; beside {len(noisy)} of them others than their own processes used more than {results.NOISE_CORES} cores. "
        f"Of these {writing} write and {volumes} more read from volumes: threads of the kernel that serve loop devices and file systems "
        "count as others, and so do the services that are not asked."
    )


def page() -> str:
    """The whole page."""
    found = lines()
    if not found:
        return HEAD + "\nNothing is measured yet.\n"
    links, placed = ranks(), ranks(as_placed=True)
    hardware = sorted({line["hardware"] for line in found if "hardware" in line})
    ended = [line["case"] for line in found if line.get("s")]
    errors = [line for line in found if "error" in line and "engine" in line["case"] and line["case"] not in ended]
    failed = {(*list(line["case"].values())[1:], line["error"]) for line in errors}
    out = [HEAD, f"Machine: {'; '.join(sorted({line['machine'] for line in found}))}. Emulated, as calibrated at each start: {'; '.join(hardware) or 'not measured'}."]
    out += [noise(found), ""]
    out += [f"Failed: {', '.join(map(str, case))}." for case in sorted(failed)]
    out += [f"Spark writes nothing to {name}: {why}." for name, why in NO_WRITES_BY_SPARK.items()]
    out += what_they_are(found)
    reports, there = ({line["case"][kind]: line["report"] for line in found if kind in line["case"]} for kind in ("probe", "probed"))
    explained = compositions(reports)
    traced = {engine: traced_findings(kept(found, engine), there) for engine in ENGINES}
    for engine, some in traced.items():
        out += runtimes(found, engine, links, placed, explained, some)
    out += [*findings(reports, explained, traced), *moved(found), *examined(lines(EXAMINED))]
    out += [*copies(found), *commits(found), *predicted(), *bottlenecks(found), *use(found)]
    return "\n".join(out).rstrip() + "\n"


def main() -> int:
    """Writes the page."""
    PAGE.write_text(page())
    print(f"written to {PAGE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
