"""Makes `bench/BACKTEST.md` from the measured cases and their predictions: `python -m bench.backtest.table`.

The measured part is `bench/results/backtest.jsonl`; predictions are what `pellucid backtest`
says of the manifest beside the traces. Nothing is rounded in favour of a goal: a goal counts as
met only when all that it asks for was measured.
"""

import json
import statistics
import sys
from pathlib import Path

from bench import results
from bench.backtest import cases, judge, manifest
from bench.table import header, row
from tests import binary, traces

SUITE = "backtest"
PAGE = binary.ROOT / "bench" / "BACKTEST.md"
# The goals.
CASES, QUERIES, KERNEL, CHANGING, MOVING, BALANCED = 60, 10, 30, 40, 15, 15
CHANGE = 1.3
MEDIAN, WORST, COVERAGE, HALF_WIDTH = 0.02, 0.07, 0.9, 0.05


def median(line: dict, end: str) -> float:
    """Of the repeats of the baseline or the target."""
    return statistics.median(line[f"{end}_ms"])


def change(line: dict) -> float:
    """By how much the target differs, whichever way; at least 1."""
    ratio = median(line, "target") / median(line, "baseline")
    return max(ratio, 1 / ratio)


def moved(line: dict) -> bool:
    """Whether another kind of resource limits the target."""
    return line["baseline_bottleneck"] != line["target_bottleneck"]


def balanced(line: dict) -> bool:
    """Whether two ideal times are close at either end."""
    return any(judge.balanced(line[f"{end}_ideal_ms"] or {}) for end in ("baseline", "target"))


def goal(what: str, measured, limit: str, met: bool | None) -> str:
    """A row of the table of goals."""
    return row(what, measured, limit, {True: "met", False: "not met", None: "not decided: cases are missing"}[met])


def breadth(lines: list[dict]) -> list[tuple[str, int, int]]:
    """What the issue asks of the matrix itself: what, how many there are, how many at least."""
    kernel = [line for line in lines if line["emulation"] == "kernel"]
    return [
        ("cases", len(lines), CASES),
        ("different queries", len({line["query"] for line in lines}), QUERIES),
        ("cases on kernel-throttled disks, links, quota or pinned cores", len(kernel), KERNEL),
        (f"cases that change the time by over {CHANGE} times", sum(change(line) > CHANGE for line in lines), CHANGING),
        ("cases that move the bottleneck", sum(map(moved, lines)), MOVING),
        ("cases with two ideal times within 20 % of each other, before or after the change", sum(map(balanced, lines)), BALANCED),
    ]


def accuracy(scored: list[dict], broad: bool) -> list[str]:
    """What the issue asks of the predictions; decided as met only where the matrix is broad enough."""
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
        # A worst case stays, whatever is still to come.
        final = broad or (what.startswith("worst") and not good)
        rows.append(goal(what, f"{got:.1%}", limit, good if final else None))
    return rows


def case_row(line: dict, predicted: dict | None) -> str:
    """A case of the table."""
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
    """A table for each experiment, engine-paced cases apart."""
    out = []
    kinds = dict.fromkeys((line["emulation"], line["why"]) for line in lines)
    for emulation, why in kinds:
        out += ["", f"## {why[0].upper()}{why[1:]}" + (" (engine-paced)" if emulation != "kernel" else ""), ""]
        out += header(
            "query", "baseline", "what if", "baseline (ms)", "measured (ms)", "predicted (ms)", "90 % interval",
            "error", "spread", "repeats", "limited by",
        )  # fmt: skip
        of = [line for line in lines if (line["emulation"], line["why"]) == (emulation, why)]
        out += [case_row(line, predictions.get(line["case"]["name"])) for line in of]
    return out


def same_work_ns(paths: list[Path]) -> list[int]:
    """Of traces of one query: core time of the stages that read in none of them, which is the same work in all."""
    found, reading = [], set()
    for path in paths:
        of = traces.read(path).of
        stage = [task["stage"] for task in of["multitask"]]
        reading |= {stage[m["multitask"]] for m in of["monotask"] if m["phase"] != "compute" or m.get("cached_bytes")}
        found.append([(stage[m["multitask"]], m.get("cpu_ns") or 0) for m in of["monotask"]])
    return [sum(ns for stage, ns in computed if stage not in reading) for computed in found]


def misses(lines: list[dict], every: list[dict], predictions: dict[str, dict], folder: Path) -> list[str]:
    """Of each prediction that is further off than the worst may be: whether its cores did the same work as fast."""
    rows = []
    for line in lines:
        told = predictions.get(line["case"]["name"])
        if told is None or told["error"] <= WORST:
            continue
        *of_baseline, after = same_work_ns([folder / name for name in [*line["baseline_traces"], line["target_trace"]]])
        before = statistics.median(of_baseline)
        ratio = after / before if before else None
        left = abs(told["predicted_ms"] * ratio / told["measured_ms"] - 1) if ratio else None
        shown = ["–", "–"] if ratio is None else [f"{ratio:.2f}", f"{left:.1%}"]
        same = [other["target_ms"] for other in every if other["case"]["name"] == line["case"]["name"]]
        whenever = ", ".join(f"{statistics.median(ms):.0f}" for ms in same)
        rows.append(row(line["case"]["name"], f"{told['error']:.1%}", *shown, whenever))
    if not rows:
        return []
    said = (
        f"Predictions that are off by more than {WORST:.0%}. A prediction takes core times from the baseline. Stages that read nothing "
        "do the same work at both ends; where they took another core time, the cores themselves were faster or slower (another "
        "virtual machine's load, caches, the pauses of a quota), which no trace of the baseline says. Then the error of the "
        "prediction times that ratio; last, what the very same target took whenever it was measured, void ones included."
    )
    heads = header("case", "error", "core time of the same work, target ÷ baseline", "error with it", "target at several times (ms)")
    return ["", "## Misses", "", said, "", *heads, *rows]


def page(lines: list[dict], predictions: dict[str, dict], wanted: int, folder: Path) -> str:
    """The whole page."""
    chosen = manifest.newest(lines)
    good = [line for line in chosen if not line["void"]]
    void = [line for line in chosen if line["void"]]
    scored = [predictions[line["case"]["name"]] for line in good if line["case"]["name"] in predictions]
    counts = breadth(good)
    broad = len(scored) == len(good) and all(got >= least for _, got, least in counts)
    goals = [goal(what, got, f"at least {least}", got >= least) for what, got, least in counts]
    out = [
        "# Backtest: predictions against what was measured",
        "",
        "Made by `make backtest` from `bench/results/backtest.jsonl` and the traces in "
        "`bench/results/backtest/`; how and what: `bench/README.md`. The same predictions, without measuring: "
        "`pellucid backtest bench/results/backtest/manifest.json`.",
        "",
        f"**{len(good)} of {wanted} cases measured, {len(scored)} of them predicted**; "
        f"{len(void)} are void so far.",
        "",
    ]
    out += [f"- Machine: {machine}" for machine in sorted({line["machine"] for line in chosen})]
    out += [f"- Build {line}" for line in sorted({f"{line['build']}, {line['at'][:10]}" for line in chosen})]
    out += ["", "## Goals", "", *header("goal", "measured", "limit", ""), *goals, *accuracy(scored, broad)]
    out += misses(good, lines, predictions, folder)
    if good:
        out += sections(good, predictions)
        out += [
            "",
            "Baseline and target are measured in turns; times are medians. Spread: half the width of the 90 % interval of the "
            "median, over it, the larger of baseline's and target's. Limited by: baseline's → target's bottleneck.",
        ]
    if void:
        out += ["", "## Void", "", *header("case", "why")]
        out += [row(line["case"]["name"], line["void"]) for line in void]
    return "\n".join(out) + "\n"


def predict(folder: Path) -> dict[str, dict]:
    """What `pellucid backtest` says of each case of the manifest, kept beside it; what was kept, where it cannot."""
    kept = folder / "predictions.json"
    if (folder / manifest.NAME).exists():
        ran = binary.run("backtest", "--json", folder / manifest.NAME)
        if ran.code == 0:
            kept.write_text(ran.out)
        else:
            print(f"no new predictions: {ran.err.strip()}", file=sys.stderr)
    return noted(folder)


def noted(folder: Path) -> dict[str, dict]:
    """The predictions that were kept, by the name of their case."""
    kept = folder / "predictions.json"
    return {case["name"]: case for case in json.loads(kept.read_text())["cases"]} if kept.exists() else {}


def main() -> int:
    """Writes the page."""
    predictions = predict(results.FOLDER / SUITE)
    folder = results.FOLDER / SUITE
    PAGE.write_text(page(results.load(SUITE), predictions, len(cases.full()), folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
