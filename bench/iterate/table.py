"""Makes `bench/ITERATE.md` from the lines of `bench/results/iterate.jsonl`. Measures nothing."""

import statistics
import sys
from collections import defaultdict

from bench.common import pages, results
from bench.common.pages import narrow_header, newest
from bench.iterate import targets

TITLES = {
    "regression": "Logistic regression, one pass of gradient descent",
    "kmeans": "k-means, 10 centers, one pass",
    "pagerank": "PageRank, one pass",
}
# Bytes of a row of 20 features (and its label), by application.
ROW_BYTES = {"regression": 168, "kmeans": 160}
# Bytes per edge that the streaming limit assumes.
EDGE_BYTES = 8
# Peers that no registry has, measured earlier on another machine; their times allow no ratio.
OTHER_MACHINE = {
    "regression": "C without vector instructions took 0.221 s, with a limit of 0.087 s (20 million rows)",
    "kmeans": "C without vector instructions took 0.296 s, with a limit of 0.085 s (20 million rows)",
    "pagerank": "GAPBS processed 461 million edges per second, with a limit of 6,270",
}


# Explains the columns of the comparisons.
COMPARED = [
    "## How to read the comparisons",
    "",
    "The next three sections compare a pass over the data. All programs read the same files. Pellucid runs before and after the others.",
    "",
    "- *turns*: Pellucid's two times, before and after the others.",
    "- *÷ Pellucid f64*: the program's time over Pellucid's with 64-bit numbers.",
    "- *÷ memory limit*: time over the time to read the data once at the memory bandwidth that the same run measured.",
    "- *check*: loss, inertia or sum of ranks at the end. Pellucid runs more passes than the others, and scikit-learn and MLlib use other",
    "  solvers for logistic regression, so it differs between programs.",
    "- *other processes*: cores that processes outside of the run used. Ray's own processes count as such.",
    "",
]


def limit_s(line: dict) -> float | None:
    """Returns the time to read the data once at the memory bandwidth that the same run measured."""
    case, rate = line["case"], line.get("memory_bytes_per_s")
    if not rate:
        return None
    if case["application"] == "pagerank":
        return EDGE_BYTES * 16 * 2 ** case["scale"] / rate
    half = 2 if case["peer"].endswith("f32") else 1
    return ROW_BYTES[case["application"]] / half * case["rows"] / rate


def median_s(line: dict) -> float:
    """Returns the median seconds of an iteration."""
    return statistics.median(line["iteration_s"])


def section(application: str, lines: list[dict]) -> list[str]:
    """Returns the section that compares Pellucid with its peers on one application."""
    peers = defaultdict(list)
    for line in lines:
        peers[line["case"]["peer"]].append(line)
    base = [median_s(line) for line in peers.get("Pellucid f64", [])]
    case = lines[0]["case"]
    size = f"scale {case['scale']}" if "scale" in case else f"{case['rows']:,} rows"
    page = [f"## {TITLES[application]} ({size})", ""]
    page += ["| program | s per pass | turns | ÷ Pellucid f64 | ÷ memory limit | check | other processes (cores) |"]
    page += ["|---|---|---|---|---|---|---|"]
    for peer, turns in peers.items():
        failed = next((line["error"] for line in turns if "error" in line), None)
        if failed:
            page.append(f"| {peer} | {failed} | | | | | |")
            continue
        times = [median_s(line) for line in turns]
        took = statistics.median(times)
        spread = " ".join(f"{time:.4f}" for time in times) if len(times) > 1 else ""
        ratio = f"{took / statistics.median(base):.1f}" if base and "Pellucid" not in peer else ""
        limits = [median_s(line) / limit_s(line) for line in turns if limit_s(line)]
        share = f"{statistics.median(limits):.2f}" if limits else ""
        noise = max(line["others_cores"] for line in turns)
        page.append(f"| {peer} | {took:.4f} | {spread} | {ratio} | {share} | {turns[-1]['check']:.9g} | {noise} |")
    own = [line for peer, turns in peers.items() if "Pellucid" in peer for line in turns if "error" not in line]
    rates = sorted(line["memory_bytes_per_s"] / 1e9 for line in own if line.get("memory_bytes_per_s"))
    if rates:
        page += ["", f"Memory bandwidth in the same runs: {rates[0]:.1f} to {rates[-1]:.1f} GB/s."]
    if application == "pagerank" and base:
        line = peers["Pellucid f64"][0]
        rate = 16 * 2 ** line["case"]["scale"] / median_s(line) / 1e6
        share = limit_s(line) / median_s(line)
        page.append(f"{rate:,.0f} million edges per second: {share:.2f} of the streaming limit at {EDGE_BYTES} bytes per edge.")
    page += ["", f"On another machine, so not comparable: {OTHER_MACHINE[application]}."]
    return page + ["", f"Pellucid's command: `{own[0]['command']}`" if own else "", ""]


def micropartitions(lines: list[dict]) -> list[str]:
    """Returns the section for the paper's figures 7 to 9."""
    page = ["## Micropartitioning", ""]
    page += ["What does it cost to divide the data into many small partitions? This repeats figures 7 to 9 of [Canary](../docs/how/canary.md) (§5.4)"]
    page += ["with less data than above. *Idle* is the share of the cores' time outside tasks. Task times are those of the longest stage.", ""]
    page += ["| application | partitions per core | program | s per pass | tasks/s | task ms: 10 %, median, 90 %, 99 % | idle |"]
    page += ["|---|---|---|---|---|---|---|"]
    applications = list(TITLES)

    def place(line):
        case = line["case"]
        return applications.index(case["application"]), case["partitions a core"], case["peer"]

    for line in sorted(lines, key=place):
        case = line["case"]
        cells = [case["application"], str(case["partitions a core"]), case["peer"]]
        if "error" in line:
            cells += [line["error"], "", "", ""]
        else:
            task = line["task_ms"]
            times = ", ".join(f"{task[at]:.2f}" for at in ("p10", "p50", "p90", "p99"))
            idle = line["outside_tasks"]
            cells += [f"{median_s(line):.4f}", f"{line['tasks_per_s']:,.0f}", times, f"{idle:.1%}"]
        page.append("| " + " | ".join(cells) + " |")
    return [*page, ""]


def workers(lines: list[dict]) -> list[str]:
    """Returns the section that compares one core with all."""
    page = [
        "## From one core to all",
        "",
        "The same partitions on one worker, and on one worker per core.",
        "",
        *narrow_header("application", "workers", "s per pass", "speedup"),
    ]
    ones = {line["case"]["application"]: median_s(line) for line in lines if line["case"]["workers"] == 1}
    for line in lines:
        case = line["case"]
        one = ones.get(case["application"])
        faster = f"{one / median_s(line):.2f}" if one else ""
        page.append(f"| {case['application']} | {case['workers']} | {median_s(line):.4f} | {faster} |")
    return [*page, ""]


def whatif(lines: list[dict]) -> list[str]:
    """Returns the section on predictions from one core."""
    page = [
        "## All cores, predicted from a trace of one core",
        "",
        "`pellucid whatif TRACE --set workers=N`. Times are medians of three runs of the whole job, including loading.",
        "",
    ]
    page += narrow_header("application", "one worker, s", "all predicted, s", "all measured, s", "error")
    for line in lines:

        def median(side, key):
            return statistics.median(run[key] for run in line[side]) / 1e3

        predicted, measured = median("predictions", "duration_ms"), median("measured", "all_ms")
        cells = [line["case"]["application"], f"{median('measured', 'one_ms'):.3f}", f"{predicted:.3f}", f"{measured:.3f}"]
        page.append("| " + " | ".join([*cells, f"{predicted / measured - 1:+.1%}"]) + " |")
    return [*page, ""]


def uneven(line: dict) -> list[str]:
    """Returns the section on a worker that slows down, joins or leaves."""
    page = ["## A worker slows to half its speed, joins, or leaves", ""]
    page += [
        "How soon are iterations as fast as the workers allow? Single-threaded processes share 24 partitions. Times are milliseconds per iteration, as means"
    ]
    page += ["before the event, over the ten iterations after it, and over the next twenty. *Ideal* is the time at the speed after the event."]
    page += ["`cargo run --release -p pellucid-iterate --example uneven`", ""]
    page += ["| event | before | first ten after | next twenty | ideal | over ideal | partitions moved | rollbacks |"]
    page += ["|---|---|---|---|---|---|---|---|"]
    for run in sorted(line["lines"], key=lambda run: run["case"]):
        over = run["after_ms"] / run["ideal_ms"] - 1
        cells = [run["case"], *(f"{run[key]:.1f}" for key in ("before_ms", "first_ten_ms", "after_ms", "ideal_ms"))]
        page.append("| " + " | ".join([*cells, f"{over:+.0%}", str(run["migrations"]), str(run["recoveries"])]) + " |")
    return [*page, ""]


def scaling(line: dict) -> list[str]:
    """Returns the section on simulated workers."""
    page = ["## 1 to 1,000 workers, simulated", ""]
    if "error" in line:
        return [*page, f"Not measured: {line['error']}", ""]
    first = line["lines"][0]
    page += [
        f"Does the controller limit the number of workers? {first['partitions']:,} partitions of {first['task_ns'] / 1e6:g} ms each, 10 µs per message. The last column has the",
        "controller's messages of a job and of one with ten times the iterations, without progress reports: they do not grow with iterations.",
        "`cargo run --release -p pellucid-iterate --example scaling`",
        "",
        *narrow_header("workers", "ms per iteration", "speedup", "worker messages per iteration", "controller messages"),
    ]
    for row in line["lines"]:
        few, many = row["controller_messages"]
        page.append(
            f"| {row['workers']:,} | {row['iteration_ns'] / 1e6:.3f} | {first['iteration_ns'] / row['iteration_ns']:.1f} "
            f"| {row['worker_messages_an_iteration']:,} | {few:,}, {many:,} |"
        )
    return [*page, ""]


def floors(line: dict) -> list[str]:
    """Returns the section on the cost of scheduling."""
    page = ["## Cost of scheduling", ""]
    if "error" in line:
        return [*page, f"Not measured: {line['error']}", ""]
    page += ["The time of a task, and of a round (a broadcast, a gather and a signal), by threads or processes."]
    page += ["`cargo bench -p pellucid-iterate --bench floors`", ""]
    page += narrow_header("operation", "median", "95 % interval")
    for name, (median, low, high) in line["ns"].items():
        page.append(f"| {name} | {median:,.1f} ns | {low:,.1f} to {high:,.1f} ns |")
    ns = {name: median for name, (median, *_) in line["ns"].items()}
    totals = []
    if "empty task/threads/1" in ns:
        totals.append(f"- {1e3 / ns['empty task/threads/1']:,.0f} million empty tasks per second on one core.")
    if {"task with work/threads/1", "the work alone"} <= set(ns):
        whole, alone = ns["task with work/threads/1"], ns["the work alone"]
        totals.append(f"- {1e3 / whole:.1f} million useful tasks per second on one core; overhead is {1 - alone / whole:.1%} of their time.")
    return [*page, "", *totals, ""]


def page(lines: list[dict]) -> str:
    """Returns the whole page."""
    out = ["# Iterative jobs compared with other systems", ""]
    out += ["How fast is a pass of an iterative job over its data, compared with other systems and with the memory bandwidth?"]
    out += ['`make bench-iterate ITERATE="--rows 10000000 --scale 21"` measures this; [README.md](README.md#iterative-jobs) says how.']
    out += ["`python -m bench.iterate.table` generates this page from `bench/results/iterate.jsonl`; do not edit it.", ""]
    if not lines:
        out += ["Nothing is measured yet. Run `make bench-iterate`, which you can interrupt and continue.", ""]
        return "\n".join(out)
    out += targets.answer(lines, limit_s)
    out += pages.machines(lines)
    out += [
        f"- Freed memory (kept by the machine, or returned to its host): {', '.join(sorted({str(line['memory']) for line in lines}))} (`lab/memory.py`)"
    ]
    out += [""]
    out += [*targets.section(lines, limit_s), *COMPARED]
    for application in TITLES:
        found = [line for line in lines if line["case"].get("application") == application and "turn" in line["case"]]
        sizes = {tuple((key, value) for key, value in line["case"].items() if key in ("rows", "scale")) for line in found}
        for size in sorted(sizes):
            out += section(application, [line for line in found if size[0] in line["case"].items()])
    experiments = defaultdict(list)
    for line in lines:
        experiments[line["case"].get("experiment")].append(line)
    if experiments["micropartitions"]:
        out += micropartitions(experiments["micropartitions"])
    if experiments["workers"]:
        out += workers(experiments["workers"])
    if experiments["whatif"]:
        out += whatif(experiments["whatif"])
    for name, make in (("uneven", uneven), ("scaling", scaling), ("floors", floors)):
        if experiments[name]:
            out += make(experiments[name][-1])
    return "\n".join(out)


def main() -> int:
    """Writes the page."""
    return pages.write("ITERATE.md", page(newest(results.load("iterate"))))


if __name__ == "__main__":
    sys.exit(main())
