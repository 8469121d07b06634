"""Makes `bench/BACKTEST.md` from the measured cases and their predictions: `python -m bench.backtest.table`.

Measurements come from `bench/results/backtest.jsonl`; predictions are the answer of
`pellucid backtest` to the manifests next to the traces. Goals are judged by unrounded values, and
are met only if everything that they cover was measured.
"""

import json
import statistics
import sys
from pathlib import Path

from bench.backtest import cases, judge, manifest
from bench.common import pages, results
from bench.common.pages import header, row
from harness import binary, traces

SUITE = "backtest"
# The answer to each manifest.
KEPT = {manifest.NAME: "predictions.json", manifest.SPILLING: "predictions-spilling.json"}
# Goals: the breadth of the matrix, then the accuracy of the predictions.
CASES, QUERIES, KERNEL, CHANGING, MOVING, BALANCED = 60, 10, 30, 40, 15, 15
CHANGE = 1.3
MEDIAN, WORST, COVERAGE, HALF_WIDTH = 0.02, 0.07, 0.9, 0.05
# Of queries that do not fit into memory: a goal of their own.
SPILLING, SPILLING_MEDIAN = 30, 0.15


CASES_HEAD = [
    "",
    "## Cases",
    "",
    "Each table has one kind of change; figures and sections are those of the [monotasks paper](../docs/how/monotasks.md).",
    "",
    "- *query*: `sort-N` sorts records of N values; `bdb-…` are queries of the Big Data Benchmark.",
    "- *baseline*: cores, then disks and the rate of each, or the rate of the link to an S3 server. `2c-1x100mb` has two cores and one disk",
    "  of 100 MB/s. A size at its end is the memory budget of a query that spills to these disks.",
    "- *what if*: the change that `pellucid whatif --set` predicts from the baseline's trace.",
    "- Times are medians of the *repeats* of baseline and target, which took turns.",
    "- *spread*: half the width of the median's 90 % interval over the median; the larger of baseline's and target's.",
    "- *limited by*: the bottleneck of baseline → target.",
]


def answer(scored: list[dict]) -> list[str]:
    """Returns the answer: the errors of the predictions, and how many measured times lie inside their intervals."""
    if not scored:
        return []
    errors = [case["error"] for case in scored]
    within = sum(case["low_ms"] <= case["measured_ms"] <= case["high_ms"] for case in scored)
    more = sum(error > WORST for error in errors)
    missed = f" The goal of at most {WORST:.0%} is missed by {more} of them ([cause](#misses))." if more else ""
    return [
        f"**Of {len(scored)} predictions, the median error is {statistics.median(errors):.1%} and the worst {max(errors):.1%}; {within} have the measured time inside",
        f"their 90 % interval.**{missed}",
        "",
    ]


def median(line: dict, end: str) -> float:
    """Returns the median of the repeats of the baseline or the target."""
    return statistics.median(line[f"{end}_ms"])


def change(line: dict) -> float:
    """Returns the ratio of target and baseline, the larger over the smaller."""
    ratio = median(line, "target") / median(line, "baseline")
    return max(ratio, 1 / ratio)


def moved(line: dict) -> bool:
    """Returns whether another kind of resource limits the target."""
    return line["baseline_bottleneck"] != line["target_bottleneck"]


def balanced(line: dict) -> bool:
    """Returns whether two ideal times are close, in the baseline or the target."""
    return any(judge.balanced(line[f"{end}_ideal_ms"] or {}) for end in ("baseline", "target"))


def goal(what: str, measured, limit: str, met: bool | None) -> str:
    """Formats a row of the table of goals."""
    return row(what, measured, limit, {True: "met", False: "not met", None: "not decided: cases are missing"}[met])


def breadth(lines: list[dict]) -> list[tuple[str, int, int]]:
    """Returns the goals for the matrix itself: description, count and minimum."""
    kernel = [line for line in lines if line["emulation"] == "kernel"]
    return [
        ("cases", len(lines), CASES),
        ("different queries", len({line["query"] for line in lines}), QUERIES),
        ("cases on hardware limited by the kernel (disk, link, quota, cores)", len(kernel), KERNEL),
        (f"cases that change the time more than {CHANGE} times", sum(change(line) > CHANGE for line in lines), CHANGING),
        ("cases that move the bottleneck", sum(map(moved, lines)), MOVING),
        ("cases with two ideal times within 20 %, before or after", sum(map(balanced, lines)), BALANCED),
    ]


def spill_goals(scored: list[dict]) -> list[str]:
    """Returns the goals for queries that do not fit into memory."""
    enough = len(scored) >= SPILLING
    rows = [goal("cases that spill", len(scored), f"at least {SPILLING}", enough)]
    if scored:
        error = statistics.median(case["error"] for case in scored)
        rows.append(goal("their median error", f"{error:.1%}", f"at most {SPILLING_MEDIAN:.0%}", error <= SPILLING_MEDIAN if enough else None))
    return rows


def accuracy(scored: list[dict], broad: bool) -> list[str]:
    """Returns the goals for the predictions; they are met only if the matrix is broad enough."""
    if not scored:
        return [goal("error of the predictions", "–", f"median {MEDIAN:.0%}, worst {WORST:.0%}", None)]
    errors = [case["error"] for case in scored]
    within = [case["low_ms"] <= case["measured_ms"] <= case["high_ms"] for case in scored]
    widths = [(case["high_ms"] - case["low_ms"]) / 2 / case["predicted_ms"] for case in scored]
    found = [
        ("median error", statistics.median(errors), f"at most {MEDIAN:.0%}", MEDIAN, -1),
        ("worst error", max(errors), f"at most {WORST:.0%}", WORST, -1),
        ("inside their interval", sum(within) / len(within), f"at least {COVERAGE:.0%}", COVERAGE, 1),
        ("median half-width of the interval", statistics.median(widths), f"at most {HALF_WIDTH:.0%}", HALF_WIDTH, -1),
    ]
    rows = []
    for what, got, limit, bound, sign in found:
        good = sign * got >= sign * bound
        # Further cases cannot improve the worst error.
        final = broad or (what.startswith("worst") and not good)
        rows.append(goal(what, f"{got:.1%}", limit, good if final else None))
    return rows


def case_row(line: dict, predicted: dict | None) -> str:
    """Formats a case of the table."""
    spread = max(judge.uncertainty(line[f"{end}_ms"]) for end in ("baseline", "target"))
    found = [f"{median(line, 'baseline'):.0f}", f"{median(line, 'target'):.0f}"]
    found += ["–"] * 3 if predicted is None else [
        f"{predicted['predicted_ms']:.0f}",
        f"{predicted['low_ms']:.0f} to {predicted['high_ms']:.0f}",
        f"{predicted['error']:.1%}",
    ]  # fmt: skip
    limits = [line["baseline_bottleneck"] or "–", line["target_bottleneck"] or "–"]
    settings = " ".join(f"{key}={value}" for key, value in line["set"].items())
    repeats = f"{len(line['baseline_ms'])}, {len(line['target_ms'])}"
    return row(line["query"], line["configs"]["baseline"], settings, *found, f"{spread:.1%}", repeats, " → ".join(limits))


def sections(lines: list[dict], predictions: dict[str, dict]) -> list[str]:
    """Returns a table for each experiment, with engine-paced cases in tables of their own."""
    out = []
    kinds = dict.fromkeys((line["emulation"], line["why"]) for line in lines)
    for emulation, why in kinds:
        out += ["", f"### {why[0].upper()}{why[1:]}" + (" (engine-paced)" if emulation != "kernel" else ""), ""]
        out += header(
            "query", "baseline", "what if", "baseline (ms)", "measured (ms)", "predicted (ms)", "90 % interval",
            "error", "spread", "repeats", "limited by",
        )  # fmt: skip
        of = [line for line in lines if (line["emulation"], line["why"]) == (emulation, why)]
        out += [case_row(line, predictions.get(line["case"]["name"])) for line in of]
    return out


def same_work_ns(paths: list[Path]) -> list[int]:
    """Returns, for each trace of a query, the core time of the stages that read nothing in any of them: equal work."""
    found, reading = [], set()
    for path in paths:
        of = traces.read(path).of
        stage = [task["stage"] for task in of["multitask"]]
        reading |= {stage[m["multitask"]] for m in of["monotask"] if m["phase"] != "compute" or m.get("cached_bytes")}
        found.append([(stage[m["multitask"]], m.get("cpu_ns") or 0) for m in of["monotask"]])
    return [sum(ns for stage, ns in computed if stage not in reading) for computed in found]


def misses(lines: list[dict], every: list[dict], predictions: dict[str, dict], folder: Path) -> list[str]:
    """Returns the section of predictions that miss the goal for the worst error, with the core time of equal work."""
    rows = []
    for line in lines:
        predicted = predictions.get(line["case"]["name"])
        if predicted is None or predicted["error"] <= WORST:
            continue
        *of_baseline, after = same_work_ns([folder / name for name in [*line["baseline_traces"], line["target_trace"]]])
        before = statistics.median(of_baseline)
        ratio = after / before if before else None
        left = abs(predicted["predicted_ms"] * ratio / predicted["measured_ms"] - 1) if ratio else None
        shown = ["–", "–"] if ratio is None else [f"{ratio:.2f}", f"{left:.1%}"]
        same = [other["target_ms"] for other in every if other["case"]["name"] == line["case"]["name"]]
        whenever = ", ".join(f"{statistics.median(ms):.0f}" for ms in same)
        rows.append(row(line["case"]["name"], f"{predicted['error']:.1%}", *shown, whenever))
    if not rows:
        return []
    said = [
        f"These predictions are off by more than {WORST:.0%}. A prediction assumes that the cores are as fast as in the baseline. Stages that read",
        "nothing do equal work in baseline and target. If their core times differ, the cores themselves were faster or slower (because of other",
        "virtual machines, caches, or a quota's pauses), which no baseline trace can show. `corrected` is the error after scaling the prediction",
        "by that ratio. The last column has every measurement of the target, including void ones.",
    ]
    heads = header("case", "error", "core time of equal work, target ÷ baseline", "corrected", "target, each time (ms)")
    return ["", "## Misses", "", *said, "", *heads, *rows]


def page(lines: list[dict], predictions: dict[str, dict], wanted: int, folder: Path) -> str:
    """Returns the whole page."""
    chosen = manifest.newest(lines)
    good = [line for line in chosen if not line["void"]]
    void = [line for line in chosen if line["void"]]
    predicted = lambda lines: [predictions[line["case"]["name"]] for line in lines if line["case"]["name"] in predictions]
    fits = [line for line in good if not manifest.spills(line)]
    scored, spilled = predicted(fits), predicted(filter(manifest.spills, good))
    counts = breadth(fits)
    broad = len(scored) == len(fits) and all(got >= least for _, got, least in counts)
    goals = [goal(what, got, f"at least {least}", got >= least) for what, got, least in counts]
    out = [
        "# Backtest: predictions compared with measurements",
        "",
        "How well does a trace of a query on some hardware predict its time on other hardware? `make backtest` measures this as root;",
        "[README.md](README.md#backtest-predictions-on-emulated-hardware) says how. Without root or the hardware,",
        "`pellucid backtest bench/results/backtest/manifest.json` makes the same predictions from the kept traces (`spilling.json` those of queries",
        "that spill). `python -m bench.backtest.table` generates this page; do not edit it.",
        "",
        *answer(scored),
        f"**{len(good)} of {wanted} cases measured, {len(scored) + len(spilled)} of them predicted**; {len(void)} are void, that is, too noisy to count. The model was developed",
        "with these queries. [On all of TPC-H](README.md#causal-predictions-on-all-of-tpc-h), for which nothing was tuned, predictions are worse.",
        "",
    ]
    out += pages.machines(chosen)
    out += [f"- Build {line}" for line in sorted({f"{line['build']}, {line['at'][:10]}" for line in chosen})]
    out += [
        "",
        "## Goals",
        "",
        "The first six goals are about the breadth of the matrix, the others about the predictions. Queries that spill have goals of their own",
        "and are not part of the others.",
        "",
        *header("goal", "measured", "limit", "verdict"),
        *goals,
        *accuracy(scored, broad),
        *spill_goals(spilled),
    ]
    out += misses(fits, lines, predictions, folder)
    if good:
        out += [*CASES_HEAD, *sections(good, predictions)]
    if void:
        out += ["", "## Void", "", "These cases could not be measured well enough, and are not scored.", "", *header("case", "reason")]
        out += [row(line["case"]["name"], line["void"]) for line in void]
    return "\n".join(out) + "\n"


def predict(folder: Path) -> dict[str, dict]:
    """Runs `pellucid backtest` on the manifests, keeps its answers next to them, and returns them; on failure, those kept."""
    for name in KEPT:
        if (folder / name).exists():
            ran = binary.run("backtest", "--json", folder / name)
            if ran.code == 0:
                (folder / KEPT[name]).write_text(ran.out)
            else:
                print(f"no new predictions: {ran.err.strip()}", file=sys.stderr)
    return {name: case for kept in KEPT for name, case in noted(folder, kept).items()}


def noted(folder: Path, of: str) -> dict[str, dict]:
    """Returns the kept predictions of a manifest, by case."""
    kept = folder / KEPT[of]
    return {case["name"]: case for case in json.loads(kept.read_text())["cases"]} if kept.exists() else {}


def main() -> int:
    """Writes the page."""
    predictions = predict(results.FOLDER / SUITE)
    folder = results.FOLDER / SUITE
    return pages.write("BACKTEST.md", page(results.load(SUITE), predictions, len(cases.full()), folder))


if __name__ == "__main__":
    sys.exit(main())
