"""Output committed with and without renames: the saving that `pellucid storage doctor` predicts, and the measured one."""

import json
import statistics
from pathlib import Path

from bench.common.pages import narrow_header, row
from bench.storage.causes import diagnosed
from bench.storage.measured import TRACES, log_name
from bench.storage.spark import lines_of
from bench.storage.workloads import NO_WRITES_BY_SPARK, RECORD, RECORDS

# The largest error of a predicted saving, as a share of the measured one.
GOAL = 0.15
COMMIT_HEADS = ("composition", "output, MB", "with renames, s", "without, s", "saved, s", "predicted, s", "goal", "interval")
# Small sequential requests of S3A's magic committer when a task commits.
COMMIT_REQUESTS = 9
# Student's t for 90 %, two-sided, by number of differences.
STUDENT = {3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 12: 1.796}
SPLIT = (
    "Split into tasks and driver, as in §V-A.3 of the paper. Each session with renames has the doctor's evidence, and each without them should\n"
    "have no finding. Below are the times of the parts with and without renames:"
)


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


def renames(some: list[dict]) -> dict | None:
    """Returns the finding that output is committed by rename, if any."""
    return next((f for f in some if "rename" in f["title"]), None)


def against(finding: dict | None, saved_s: float) -> str:
    """Formats a predicted saving and its error relative to the measured one."""
    if not finding or not finding["saves_ms"]:
        return "–"
    predicted_s = finding["saves_ms"] / 1e3
    return f"{predicted_s:.1f} ({abs(predicted_s - saved_s) / saved_s:.0%})" if saved_s > 0 else f"{predicted_s:.1f}"


def within(finding: dict | None, saved_s: float) -> str:
    """Formats the interval of a predicted saving, and whether it contains the measured one."""
    if not finding or not finding["saves_ms"]:
        return "–"
    low, high = finding["low_ms"] / 1e3, finding["high_ms"] / 1e3
    return f"{low:.1f} to {high:.1f}: {'inside' if low <= saved_s <= high else 'outside'}"


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
