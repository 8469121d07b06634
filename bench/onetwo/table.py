"""Makes the manifest and `bench/ONETWO.md` from lines and logs: `python -m bench.onetwo.table`. Measures nothing."""

import statistics
import sys
from collections import defaultdict

from bench.common import pages, results
from bench.common.pages import row
from bench.onetwo import models
from bench.onetwo.cases import DISKS, LOGS, REPEATS, SETTINGS, SUITE, Question, questions

MANIFEST = LOGS / "manifest.json"
MODELS = ("slots per core", "slots per disk", "resources", "stock log", "plugin's trace")
OF_SETTING = {"stock": "stock log", "measure": "plugin's trace"}

PREDICTED = (
    "Times are in seconds. *measured before* and *after* are the median job times of stock Spark, from its logs (± half the range). A model's",
    "cell has its prediction, the error (positive: too long), and the 90 % interval if the model has one.",
    "",
    "- The intervals come from the errors of other jobs, on one disk that the kernel throttles ([SPARK.md](SPARK.md)). Spinning disks, where",
    "  concurrent requests cost time, are a new case for them.",
    "- *stock log*: Spark's log does not record the number of cores, so the what-if counts each of the 8 slots as one. If waits for disks halve,",
    "  more tasks compute at once than the two cores can serve (*core time* below), so it expects too much of a second disk.",
    "- *plugin's trace*: the plugin records the cores (`pellucid.cores`), so tasks that no longer wait for disks wait for cores. An earlier",
    "  measurement of these six cases set the width of its intervals (a tenth wider on each side), so they do not test it independently.",
)

USES = (
    "Inputs of the model *resources*: medians of stock Spark's runs. The ideal time of a stage is its core time over the cores, or its bytes over",
    "the disks' rate. The last two columns are the drives' own counters for the whole job; seeks make the rate lower than the disks' nominal one.",
)

Runs = dict[tuple[str, int, str], list[dict]]


def newest(lines: list[dict]) -> Runs:
    """Returns, by job, number of disks and setting, the runs of the newest build and size, in order of repeat."""
    found: dict = defaultdict(dict)
    numbers = {disk: number for number, disk in DISKS.items()}
    last = {}
    for line in lines:
        case = line["case"]
        key = case["job"], numbers[case["disk"]], case["setting"]
        what = line["build"], case["bytes"]
        if last.setdefault(key, what) != what:
            last[key] = what
            found[key].clear()
        found[key][case["repeat"]] = line
    return {key: [runs[repeat] for repeat in sorted(runs)] for key, runs in found.items()}


def complete_questions(runs: Runs) -> list[Question]:
    """Returns the questions whose logs all exist."""
    return [q for q in questions() if all((q.job, disks, setting) in runs for disks in (q.before, q.after) for setting in SETTINGS)]


def manifest(runs: Runs) -> dict:
    """Returns the manifest for `pellucid backtest`: baselines of stock Spark and the plugin, targets of stock Spark."""
    found = []
    for q in complete_questions(runs):
        target = [line["log"] for line in runs[q.job, q.after, "stock"]]
        for setting in SETTINGS:
            base = [line["log"] for line in runs[q.job, q.before, setting]]
            times = f"x{q.after / q.before:g}"
            case = {"name": q.name(setting), "query": q.job, "set": {"disk.rate": times}, "baseline": base, "measured": target}
            found.append(case | {"emulation": "kernel", "note": f"{len(base)} and {len(target)} of {REPEATS} runs"})
    machines = "; ".join(sorted({line["machine"] for lines in runs.values() for line in lines}))
    return {"format": "pellucid.manifest/1", "machine": machines, "cases": found}


def used(lines: list[dict]) -> list[dict]:
    """Returns each stage's use of resources, as medians of the runs."""
    of_stages = zip(*(line["stages"] for line in lines), strict=False)
    return [
        {
            "s": statistics.median(use["s"] for use in uses),
            "core_s": statistics.median(use["core_s"] for use in uses),
            "disk_bytes": [statistics.median(moved) for moved in zip(*(use["disk_bytes"] for use in uses), strict=True)],
        }
        for uses in of_stages
    ]


def hardware(line: dict) -> tuple[int, float]:
    """Returns the number of cores and the bytes per second of a disk."""
    return line["cores"], statistics.mean(line["calibration"])


def predictions(q: Question, runs: Runs, said: dict[str, dict]) -> dict[str, float]:
    """Returns each model's prediction, in ms."""
    stock = runs[q.job, q.before, "stock"]
    ms, disks = said[q.name("stock")]["baseline_ms"], (q.before, q.after)
    found = models.by_slots(ms, disks)
    found["resources"] = models.by_resources(ms, used(stock), disks, *hardware(stock[0]))
    return found | {OF_SETTING[setting]: said[q.name(setting)]["predicted_ms"] for setting in SETTINGS}


def interval(case: dict) -> str:
    """Formats a prediction's interval in seconds, as the end of its cell."""
    return f"; {case['low_ms'] / 1e3:.1f} to {case['high_ms'] / 1e3:.1f}"


def errors_table(runs: Runs, document: dict) -> list[str]:
    """Returns the table of predictions and their errors by model; positive errors are too long."""
    said = {case["name"]: case for case in document["cases"]}
    out = [row("job", "disks", "measured before, s", "after, s", *MODELS), row(*["---"] * (4 + len(MODELS)))]
    errors, inside = defaultdict(list), defaultdict(list)
    for q in complete_questions(runs):
        case = said[q.name("stock")]
        between = {OF_SETTING[setting]: interval(said[q.name(setting)]) for setting in SETTINGS}
        cells = []
        for name, ms in predictions(q, runs, said).items():
            off = ms / case["measured_ms"] - 1
            errors[name].append(abs(off))
            cells.append(f"{ms / 1e3:.1f} ({off:+.0%}{between.get(name, '')})")
        for setting in SETTINGS:
            inside[OF_SETTING[setting]].append(said[q.name(setting)]["inside"])
        measured = (f"{case[f'{when}_ms'] / 1e3:.1f} (± {case[f'{when}_spread'] / 2:.0%})" for when in ("baseline", "measured"))
        out.append(row(q.job, f"{q.before} → {q.after}", *measured, *cells))
    for name, of in (("median error", statistics.median), ("worst error", max)):
        out.append(row(name, "", "", "", *(f"{of(errors[model]):.0%}" for model in MODELS)))
    out += ["", *(f"- {name}: {sum(hits)} of {len(hits)} of its 90 % intervals contain the measured time" for name, hits in inside.items())]
    costs = (
        f"{q.job}, {q.before}: {said[q.name('measure')]['baseline_ms'] / said[q.name('stock')]['baseline_ms']:.3f}" for q in complete_questions(runs)
    )
    out.append(f"- Median time with the plugin over stock Spark's (job, disks): {'; '.join(costs)}")
    fewest = min(len(lines) for lines in runs.values())
    return [*out, *([f"- Runs of each kind: at least {fewest} of {REPEATS}"] if fewest < REPEATS else []), ""]


def uses_table(runs: Runs) -> list[str]:
    """Returns the table of the resource model's inputs, and the drives' own counters."""
    head = (
        "job",
        "disks",
        "stage",
        "time, s",
        "core time, s",
        "cores, ideal s",
        "MB per disk",
        "disks, ideal s",
        "job: each drive busy, s",
        "MB/s while busy",
    )
    out = [row(*head), row(*["---"] * len(head))]
    for (job, disks, setting), lines in sorted(runs.items()):
        if setting != "stock":
            continue
        cores, rate = hardware(lines[0])
        drives = [[sum(drive[key] for drive in line["drives"]) for key in ("busy_ns", "read_bytes", "write_bytes")] for line in lines]
        busy_ns, read, written = (statistics.median(of) for of in zip(*drives, strict=True))
        whole = [f"{busy_ns / disks / 1e9:.1f}", f"{(read + written) / busy_ns * 1e3:.0f}"]
        for number, use in enumerate(used(lines)):
            moved = " + ".join(f"{n / 1e6:.0f}" for n in use["disk_bytes"])
            ideal = sum(use["disk_bytes"]) / disks / rate
            took = f"{use['s']:.1f}", f"{use['core_s']:.1f}", f"{use['core_s'] / cores:.1f}"
            out.append(row(job, disks, number, *took, moved, f"{ideal:.1f}", *(whole if number == 0 else ["", ""])))
    return [*out, ""]


def answer(lines: list[dict], document: dict | None) -> list[str]:
    """Returns the models in order of their median error."""
    if document is None:
        return []
    runs, said = newest(lines), {case["name"]: case for case in document["cases"]}
    errors = defaultdict(list)
    for q in complete_questions(runs):
        for name, ms in predictions(q, runs, said).items():
            errors[name].append(abs(ms / said[q.name("stock")]["measured_ms"] - 1))
    ranked = sorted(errors, key=lambda name: statistics.median(errors[name]))
    shown = ", ".join(f"{name} {statistics.median(errors[name]):.0%} ({max(errors[name]):.0%})" for name in ranked)
    return [f"**Median error (worst) of the models, best first: {shown}.**", ""]


def page(lines: list[dict], document: dict | None) -> str:
    """Returns the whole page."""
    out = [
        "# One disk or two: predictions for Spark",
        "",
        "Which model predicts best how long a Spark job takes on two disks, from runs on one, and the reverse? This is the question of §6.6",
        "(figures 15 and 17) of the [monotasks paper](../docs/how/monotasks.md). `make bench-onetwo` measures it;",
        "[README.md](README.md#one-disk-or-two) says how. `python -m bench.onetwo.table` generates this page from `bench/results/onetwo.jsonl` and",
        "the logs in `bench/results/onetwo/`; do not edit it.",
        "",
        *answer(lines, document),
        "| model | prediction |",
        "|---|---|",
        "| slots per core | Spark's slots stay the same, so nothing changes (figure 15) |",
        "| slots per disk | half the disks have half the slots, so the job takes twice as long (figure 15) |",
        "| resources | from core time and disks' bytes, both counted by the OS, and the disks' rate (figure 17) |",
        "| stock log | `pellucid whatif LOG --set disk.rate=x2` (or x0.5); the log has only upper bounds of waits for disks |",
        "| plugin's trace | the same what-if, on the log of a run with the plugin in `measure` mode |",
        "",
        "- The jobs are a `scan`, which the disks limit, a `sort`, which needs disks and cores, and `hashes`, which the cores limit",
        "  (`bench/onetwo/jobs.py`). They write no result.",
        "- One executor has 8 slots. On two disks, every second file of input and shuffle is on the second. Each stage starts with the disks'",
        "  files evicted from the page cache.",
    ]
    if document is None:
        return "\n".join([*out, "", "Nothing is measured yet.", ""])
    out += pages.machines(lines)
    out += [f"- Spark {version}" for version in sorted({line["spark"] for line in lines})]
    out += [f"- Disks: {label}" for label in sorted({line["label"].split(" (measured")[0] for line in lines})]
    out += [pages.noisy(lines), ""]
    runs = newest(lines)
    out += ["## Predictions", "", *PREDICTED, "", *errors_table(runs, document)]
    return "\n".join([*out, "## Resource use of the stages", "", *USES, "", *uses_table(runs)])


def main() -> int:
    """Writes the manifest, runs its predictions, and writes the page."""
    lines = [line for line in results.load(SUITE) if (LOGS / line["log"]).exists()]
    found, document = manifest(newest(lines)), None
    if found["cases"]:
        document = pages.backtested(MANIFEST, found)
    return pages.write("ONETWO.md", page(lines, document))


if __name__ == "__main__":
    sys.exit(main())
