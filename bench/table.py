"""Makes `bench/RESULTS.md` from the lines of `bench/results/`: `python -m bench.table`.

Pure but for reading and writing those files. A figure that a line does not have is "–";
one that was measured while others used the machine is marked.
"""

import statistics
from collections.abc import Iterable

from bench import results
from bench.sessions import ENGINES
from bench.stats import geometric_mean, median_ratio, ratio_interval, resolved

# The goals: geometric mean, worst query, memory; cold over ideal, bytes, two disks over one; recording.
WARM_MEAN, WARM_WORST, WARM_MEMORY = 0.85, 1.2, 1.5
COLD_TIME, COLD_BYTES, TWO_DISKS = 1.05, 1.05, 0.55
RECORDING = 0.01
NAMES = {"pellucid": "Pellucid", "datafusion": "plain DataFusion", "duckdb": "DuckDB", "polars": "Polars"}


def newest(lines: Iterable[dict]) -> list[dict]:
    """The last line of each case, in the order in which cases first came."""
    last: dict[str, dict] = {}
    for line in lines:
        last[repr(line["case"])] = line
    return list(last.values())


def goal(value: float, limit: float, digits: int = 2) -> str:
    """A figure with its goal, and whether it was reached."""
    return f"**{value:.{digits}f}** (goal: at most {limit:g}; {'reached' if value <= limit else 'missed'})"


def mark(line: dict) -> str:
    """A star where others used the machine meanwhile."""
    return "*" if line["others_cores"] > results.NOISE_CORES else ""


def row(*cells) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(*cells) -> list[str]:
    return [row(*cells), row(*["---"] * len(cells))]


def milliseconds(values: list[float]) -> str:
    """Median, or a dash where nothing was measured."""
    return f"{statistics.median(values):.0f}" if values else "–"


def warm_table(lines: list[dict]) -> list[str]:
    """One scale and mode: medians by query, then means of the ratios over plain DataFusion."""
    by_query = sorted(lines, key=lambda line: line["case"]["query"])
    out = header("query", *(f"{NAMES[e]} (ms)" for e in ENGINES), "Pellucid ÷ plain")
    ratios: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    memory = []
    for line in by_query:
        found = line["engines"]
        plain = found["datafusion"]
        for engine in ENGINES:
            if found[engine]["ms"] and plain["ms"]:
                ratios[engine].append(median_ratio(found[engine]["ms"], plain["ms"]))
        if found["pellucid"]["peak_bytes"] and plain["peak_bytes"]:
            memory.append(median_ratio(found["pellucid"]["peak_bytes"], plain["peak_bytes"]))
        both = found["pellucid"]["ms"] and plain["ms"]
        ratio = f"{median_ratio(found['pellucid']['ms'], plain['ms']):.2f}" if both else "–"
        note = "" if line["rows_agree"] else " (row counts differ)"
        out.append(
            row(f"Q{line['case']['query']}{mark(line)}", *(milliseconds(found[e]["ms"]) for e in ENGINES), ratio + note)
        )
    means = [f"{geometric_mean(ratios[e]):.3f}" if ratios[e] else "–" for e in ENGINES]
    out.append(row("geometric mean over plain", *means, ""))
    out.append("")
    if ratios["pellucid"]:
        out.append(f"- Geometric mean over plain DataFusion: {goal(geometric_mean(ratios['pellucid']), WARM_MEAN, 3)}")
        out.append(f"- Worst query: {goal(max(ratios['pellucid']), WARM_WORST)}")
    if memory:
        out.append(
            f"- Peak memory over plain, geometric mean: {goal(geometric_mean(memory), WARM_MEMORY)}, "
            f"largest {max(memory):.2f}"
        )
    failed = [
        f"Q{line['case']['query']} {NAMES[e]}: {line['engines'][e]['error']}"
        for line in by_query
        for e in ENGINES
        if line["engines"][e]["error"]
    ]
    return out + [f"- Failed: {failure}" for failure in failed]


def warm_section(lines: list[dict]) -> list[str]:
    """All scales and modes."""
    out = ["## Warm TPC-H", ""]
    groups: dict[tuple, list[dict]] = {}
    for line in newest(lines):
        groups.setdefault((line["case"]["scale"], line["case"]["mode"]), []).append(line)
    for (scale, mode), of_group in sorted(groups.items()):
        runs = max(len(found["ms"]) for line in of_group for found in line["engines"].values())
        out += [f"### Scale {scale:g}, {mode}", "", f"Medians of {runs} runs in turns.", "", *warm_table(of_group), ""]
    return out


def cold_section(lines: list[dict]) -> list[str]:
    """Time over ideal and bytes over needed, by engine and read-ahead."""
    out = ["## Cold, one throttled disk", ""]
    lines = sorted(newest(lines), key=lambda line: (line["case"]["read_ahead_kb"], line["case"]["query"]))
    out += header(
        "query",
        "read_ahead_kb",
        "needed (MB)",
        "ideal (s)",
        *(f"{NAMES[e]}: time ÷ ideal, bytes ÷ needed" for e in lines[0]["engines"]),
        "limited by (cold; warm)",
    )
    worst_time = worst_bytes = 0.0
    for line in lines:
        cells = []
        for engine, runs in line["engines"].items():
            good = [run for run in runs if run["ms"] is not None]
            if not good:
                cells.append("failed")
                continue
            time = statistics.median(run["ms"] for run in good) / line["ideal_ms"]
            moved = statistics.median(run["moved_bytes"] for run in good) / line["needed_bytes"]
            cells.append(f"{time:.2f}, {moved:.2f}")
            if engine == "pellucid":
                worst_time, worst_bytes = max(worst_time, time), max(worst_bytes, moved)
        named = {_bottleneck(run) for run in line["engines"]["pellucid"]}
        case = line["case"]
        out.append(
            row(
                f"Q{case['query']}{mark(line)} (scale {case['scale']:g})",
                case["read_ahead_kb"],
                f"{line['needed_bytes'] / 1e6:.0f}",
                f"{line['ideal_ms'] / 1e3:.2f}",
                *cells,
                f"{'/'.join(sorted(named))}; {_bottleneck(line['warm'])}",
            )
        )
    labels = sorted({line["disk"].split(", read_ahead")[0] for line in lines})
    return [
        *out,
        "",
        f"- Pellucid's time over ideal, worst: {goal(worst_time, COLD_TIME)}",
        f"- Bytes moved over needed, worst: {goal(worst_bytes, COLD_BYTES)}",
        *(f"- Disk: {label}" for label in labels),
        "",
    ]


def _bottleneck(found: dict) -> str:
    """The kind that was named, or that none was."""
    return found["bottleneck"]["kind"] if found["bottleneck"] else "none named"


def two_disks_section(lines: list[dict]) -> list[str]:
    """Two disks over one."""
    out = ["## Cold, two throttled disks", "", *header("query", "one disk (s)", "two disks (s)", "two ÷ one")]
    ratios = []
    for line in sorted(newest(lines), key=lambda line: line["case"]["query"]):
        took = [
            [run["ms"] for run in line["runs"][where] if run["ms"] is not None] for where in ("one disk", "two disks")
        ]
        ratio = median_ratio(took[1], took[0]) if all(took) else None
        ratios += [ratio] if ratio else []
        shown = [f"{statistics.median(ms) / 1e3:.2f}" if ms else "failed" for ms in took]
        out.append(row(f"Q{line['case']['query']}{mark(line)}", *shown, f"{ratio:.2f}" if ratio else "–"))
    return [*out, "", *([f"- Worst: {goal(max(ratios), TWO_DISKS)}"] if ratios else []), ""]


def recording_section(lines: list[dict]) -> list[str]:
    """The share of core time, and the ratio that a user sees."""
    out = ["## What recording costs", ""]
    lines = newest(lines)
    shares = [line for line in lines if line["case"]["what"] == "share" and line["recording_ns"] is not None]
    if shares:
        cost = sum(line["recording_ns"] + (line["writer_ns"] or 0) for line in shares) / sum(
            line["core_ns"] for line in shares
        )
        worst = max(shares, key=lambda line: line["recording_ns"] / line["core_ns"])
        events, size = sum(line["events"] for line in shares), sum(line["trace_bytes"] for line in shares)
        out += [
            f"- Over {len(shares)} TPC-H queries, recording and writing together, share of core time: "
            f"{goal(cost, RECORDING, 5)}",
            f"- Most on workers' threads: Q{worst['case']['query']}, {worst['recording_ns'] / worst['core_ns']:.3%}",
            f"- {events} events, {size / events:.0f} bytes each",
        ]
    for line in lines:
        if line["case"]["what"] == "pairs":
            ratio, low, high = ratio_interval([tuple(pair) for pair in line["pairs_ms"]])
            verdict = "" if resolved(low, high) else ": not resolved"
            out.append(
                f"- Time with `--trace` over without, {len(line['pairs_ms'])} pairs in turns{mark(line)}: "
                f"{ratio:.4f} (90 % interval {low:.4f} to {high:.4f}){verdict}"
            )
    return [*out, ""]


SECTIONS = {
    "warm": warm_section,
    "cold": cold_section,
    "two-disks": two_disks_section,
    "recording": recording_section,
}


def page(of_suite: dict[str, list[dict]]) -> str:
    """The whole page; a suite without results is said to be missing."""
    every = [line for lines in of_suite.values() for line in newest(lines)]
    out = ["# Results", "", "Made by `make bench` from `bench/results/`; how and what: `bench/README.md`.", ""]
    out += [f"- Machine: {machine}" for machine in sorted({line["machine"] for line in every})]
    if every:
        builds, dates = sorted({line["build"] for line in every}), sorted(line["at"][:10] for line in every)
        out.append(f"- Builds: {', '.join(builds)}; {dates[0]} to {dates[-1]}")
    out += [f"- \\*: other processes used more than {results.NOISE_CORES} cores meanwhile", ""]
    for suite, section in SECTIONS.items():
        out += section(of_suite[suite]) if of_suite.get(suite) else [f"*No results of `{suite}` yet.*", ""]
    return "\n".join(out)


def main() -> None:
    """Reads, writes, and says where."""
    target = results.FOLDER.parent / "RESULTS.md"
    target.write_text(page({suite: results.load(suite) for suite in SECTIONS}))
    print(target)


if __name__ == "__main__":
    main()
