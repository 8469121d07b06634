"""Makes `bench/STORAGE.md` from `bench/results/storage.jsonl`: `python -m bench.storage.table`.

What is said of an outlier is what the tool found by itself: `pellucid storage doctor` on the composition with its
probe, on the traces, and on Spark's event logs.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from bench import results
from bench.backtest.judge import RANKS, median_interval
from bench.storage.agreement import outliers, tau_b
from bench.storage.workloads import WORKLOADS
from tests import binary

PAGE = results.ROOT / "bench" / "STORAGE.md"
COMPOSITIONS = Path(__file__).with_name("compositions")
# Jobs are predicted on every other storage from their traces on this one.
BASIS = "GC"
TRACES = results.FOLDER / "storage"
# Predicted within this share of what switching off then saves.
GOAL = 0.15
HEAD = """# Where data lives: compositions measured beside their paths

Made by `python -m bench.storage.table` from `results/storage.jsonl`, which `make bench-storage` fills; nothing here is
written by hand. `README.md` says how it is measured.
"""


def lines() -> list[dict]:
    """The newest build's lines, but for those that failed."""
    every = results.load("storage")
    newest = every[-1]["build"] if every else None
    return [line for line in every if line["build"] == newest]


def ranks() -> dict[str, dict[str, int]]:
    """Links of each composition, for reads and writes, as `pellucid storage rank` counts them."""
    document = binary.run("storage", "rank", "--json", *sorted(COMPOSITIONS.glob("*.toml"))).check().json()
    return {way: {path["composition"]: path["links"] for path in document[way]} for way in ("read", "write")}


def runs(found: list[dict], engine: str, workload: str) -> dict[str, list[dict]]:
    """Runs that ended, by composition."""
    by: dict[str, list[dict]] = {}
    for line in found:
        case = line["case"]
        if case.get("engine") == engine and case["workload"] == workload and line.get("s"):
            by.setdefault(case["composition"], []).append(line)
    return by


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


def runtimes(found: list[dict], engine: str, links: dict) -> list[str]:
    """The paper's Table III for an engine, with agreement and outliers."""
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
            out.append(f"Agreement with the {workload.way} rank by path: τ-b {said}.")
            wrong = outliers(known, intervals)
            out += [f"Against the path: {', '.join(f'{a} is slower than {b}' for a, b in wrong)}."] if wrong else []
            out.append("")
    return out


def findings(found: list[dict]) -> list[str]:
    """What the doctor says of each composition with its probe, and what each probe measured."""
    out = ["## Explained", "", "What `pellucid storage doctor COMPOSITION --probe PROBE` finds, on each composition as it was probed.", ""]
    reports = {line["case"]["probe"]: line["report"] for line in found if "report" in line}
    out += head("composition", "one stream MB/s", "best MB/s (at once)", "first byte ms", "written alone MB/s", "rename", "small objects/s")
    with tempfile.TemporaryDirectory() as folder:
        said = []
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
                    f"{report['small_objects_per_s'] or 0:.0f}",
                )
            )
            path = Path(folder) / "probe.json"
            path.write_text(json.dumps(report))
            (file,) = [f for f in COMPOSITIONS.glob("*.toml") if f'name = "{name}"' in f.read_text()]
            document = json.loads(binary.run("storage", "doctor", file, "--probe", path, "--json").check().out)
            said += [f"- **{name}**: {f['title']}: {f['evidence']}." for f in document["findings"]]
    return [*out, "", *said, ""]


def commits(found: list[dict]) -> list[str]:
    """What a commit by rename costs, as the doctor said before it was switched off, and as it was."""
    done = [line for line in found if "commits" in line["case"] and "rename_s" in line]
    if not done:
        return []
    out = ["## Output committed by rename", ""]
    out += [
        "Spark writes the same output with Hadoop's committer (tasks and driver rename) and with the magic one (uploads "
        "completed at commit). The saving is predicted by `pellucid storage doctor` from the first session's event log "
        f"alone; the goal is {GOAL:.0%} of what was then saved.",
        "",
        *head("composition", "with renames, s", "without, s", "saved, s", "predicted, s", "off by", "goal"),
    ]
    split = []
    for line in done:
        finding = next((f for f in line["rename_findings"] if "rename" in f["title"]), None)
        saved = sum(line["rename_s"]) - sum(line["magic_s"])
        predicted = finding and finding["saves_ms"] and finding["saves_ms"] / 1e3
        off = abs(predicted - saved) / saved if predicted and saved > 0 else None
        goal = "not seen" if off is None else "met" if off <= GOAL else "not met"
        cells = (f"{sum(line[f'{name}_s']):.1f}" for name in ("rename", "magic"))
        shown = f"{predicted:.1f}" if predicted else "–"
        out.append(row(line["case"]["commits"], *cells, f"{saved:.1f}", shown, "–" if off is None else f"{off:.0%}", goal))
        if finding:
            split.append(f"- **{line['case']['commits']}**: {finding['evidence'].split('; ')[-1]}.")
        again = [f["title"] for f in line["magic_findings"] if "rename" in f["title"]]
        split += [f"- {line['case']['commits']} without renames: {', '.join(again) or 'nothing is found any more'}."]
    return [*out, "", "Split into the tasks' and the driver's part, as the paper's §V-A.3:", "", *split, ""]


def predicted(found: list[dict]) -> list[str]:
    """Jobs on each storage, as `pellucid whatif --set storage=PROBE` predicts them from a trace on the local disk."""
    reports = {line["case"]["probe"]: line["report"] for line in found if "report" in line}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.json"
        # Of several statements a trace is of the last, and an iterative job's says nothing of storage.
        for workload in (w for w in WORKLOADS if w.name in ("word count", "DFSIO")):
            trace = TRACES / f"{workload.name.replace(' ', '-')}-0.trace"
            seconds = times(found, "Pellucid", workload.name)
            for name, report in reports.items():
                if not trace.exists() or name not in seconds or name == BASIS:
                    continue
                probe.write_text(json.dumps(report))
                ran = binary.run("whatif", trace, "--set", f"storage={probe}", "--json")
                measured = statistics.median(seconds[name])
                if ran.code:
                    rows.append(row(workload.name, name, f"{measured:.2f}", "refused", ran.err.strip().splitlines()[0], ""))
                    continue
                told = json.loads(ran.out)["prediction"]
                low, middle, high = (told[key] / 1e3 for key in ("low_ms", "duration_ms", "high_ms"))
                inside = "inside" if low <= measured <= high else "outside"
                off = f"{abs(middle - measured) / measured:.0%}"
                rows.append(row(workload.name, name, f"{measured:.2f}", f"{middle:.2f} ({low:.2f} to {high:.2f})", off, inside))
    if not rows:
        return []
    said = (
        f"From one trace on {BASIS} and the probe of the other store; measured times are the command's, from its start until "
        "its output is on the disk, predicted ones the job's."
    )
    heads = head("workload", "composition", "measured s", "predicted s (90 % interval)", "off by", "interval")
    return ["## Predicted from a probe", "", said, "", *heads, *rows, ""]


def use(found: list[dict]) -> list[str]:
    """The paper's figures 4 and 5: use of each layer, and how long tasks took; medians of the runs' percentiles."""
    out = ["## Use of each layer, and task times", ""]
    out += ["5, 25, 50, 75 and 95 of a hundred samples of 0.1 s; task times in seconds, the same percentiles.", ""]
    out += head("workload", "engine", "composition", "compute, cores", "data layer, cores", "disk, MB/s", "link, MB/s", "tasks, s")

    def middle(some: list[list[float]]) -> str:
        some = [one for one in some if one]
        return " / ".join(f"{statistics.median(column):.2g}" for column in zip(*some, strict=True)) if some else "–"

    for workload in WORKLOADS:
        for engine in ("Pellucid", "Spark"):
            for name, some in runs(found, engine, workload.name).items():
                uses = [middle([line["use"][key] for line in some]) for key in ("compute_cores", "data_cores", "disk_mb_s", "link_mb_s")]
                out.append(row(workload.name, engine, name, *uses, middle([line.get("task_s") or [] for line in some])))
    return [*out, ""]


def bottlenecks(found: list[dict]) -> list[str]:
    """What the engine's own traces name."""
    out = ["## What limited Pellucid, by its own traces", "", *head("workload", "composition", "bottleneck of the runs")]
    for workload in WORKLOADS:
        for name, some in runs(found, "Pellucid", workload.name).items():
            kinds = [line.get("bottleneck") or "none named" for line in some]
            out.append(row(workload.name, name, ", ".join(f"{kind} {kinds.count(kind)}×" for kind in sorted(set(kinds)))))
    return [*out, ""]


def page() -> str:
    """The whole page."""
    found = lines()
    if not found:
        return HEAD + "\nNothing is measured yet.\n"
    links = ranks()
    hardware = sorted({line["hardware"] for line in found if "hardware" in line})
    noisy = sum(line.get("others_cores", 0) > results.NOISE_CORES for line in found)
    measured = sum("engine" in line["case"] and bool(line.get("s")) for line in found)
    failed = {(*list(line["case"].values())[1:], line["error"]) for line in found if "error" in line and "engine" in line["case"]}
    out = [HEAD, f"Machine: {found[-1]['machine']}. Emulated: {'; '.join(hardware) or 'not measured'}."]
    out += [f"{measured} runs; beside {noisy} of them other processes used more than {results.NOISE_CORES} cores.", ""]
    out += [f"Failed: {', '.join(map(str, case))}." for case in sorted(failed)]
    for engine in ("Pellucid", "Spark"):
        out += runtimes(found, engine, links)
    out += [*findings(found), *commits(found), *predicted(found), *bottlenecks(found), *use(found)]
    return "\n".join(out).rstrip() + "\n"


def main() -> int:
    """Writes the page."""
    PAGE.write_text(page())
    print(f"written to {PAGE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
