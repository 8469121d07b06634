"""Makes `bench/RESULTS.md` from the lines of `bench/results/`: `python -m bench.table`.

Only `main` reads and writes files. A figure missing from a line is "–"; one that was measured
while other processes used the machine is marked. A goal is met only if all of its cases were
measured, Pellucid failed in none of them, and the whole interval, if any, is within the limit.
"""

import statistics
import sys
from collections import Counter
from dataclasses import replace

from bench.adaptive import table as adaptive
from bench.common import pages, results
from bench.common.goals import Goal, at_most, of_all
from bench.common.pages import header, machines, newest, row
from bench.common.stats import geometric_mean, median_ratio, ratio_interval
from bench.engine import cold, recording, sparklog, warm
from bench.engine.sessions import ENGINES

# Goals. Warm: geometric mean, worst query, memory. Cold: time over ideal, bytes, two disks over one. Recording.
WARM_MEAN, WARM_WORST, WARM_MEMORY = 0.85, 1.2, 1.5
COLD_TIME, COLD_BYTES, TWO_DISKS = 1.05, 1.05, 0.55
RECORDING, EVENT_BYTES = 0.01, 40
# Maximum size of a trace relative to one without operators: of TPC-H, and of a job with a million monotasks.
GROWTH, MILLION_GROWTH = 2, 1.05
# Event logs: core seconds of the faster peer over ours, by codec; memory for a million tasks; the reader's rate.
FEWER_CORE_S, MILLION_BYTES, READER_MB_A_CORE_S = {"plain": 15, "zstd": 10}, 300e6, 500
# A million monotasks: an answer, the page's size, the time to draw its timeline.
ANSWER_MS, PAGE_BYTES, PICTURE_MS = 2000, 30e6, 3000
# Limits of single operations, by prefix of their names. A registration is not an event, so it has no limit.
MICRO = {
    "record/monotask": 100,
    "complete_and_start_with_10000_queued/": 1000,
    "trace of ": EVENT_BYTES,
}
SCALES, QUERIES = (1, 5), 22
# Introductions, printed below the headings.
WARM = {
    "fresh process": "TPC-H on Parquet files in the page cache. Each query runs in a new process, from text to last row. Times are medians.",
    "one process": "TPC-H on Parquet files in the page cache. One process runs all queries, after a warm-up run of each. Times are medians.",
}
COLD = [
    "Queries on tables that are not in the page cache, on one disk that the kernel limits to 50 MB/s. *Needed* bytes are those of the",
    "columns that the query must read, and *ideal* is the time in which the disk can read them. `read_ahead_kb` is the kernel's read-ahead.",
    "The last column is the bottleneck that Pellucid's traces name: of these runs, and of one with the tables in the page cache.",
]
TWO = ["The same cold queries with the tables on one throttled disk, and spread over two."]
RECORDED = [
    "The share of core time that recording a trace takes: the number of records times the cost of one, plus two reads of the wall",
    "clock for each call of an operator, plus as many reads of the thread's clock as there can be, plus the time of the thread that",
    "writes the file, over the core time of all TPC-H queries. The last line compares times with and without `--trace`.",
]
LOGS = [
    "How long reading one Spark event log takes. `pellucid analyze` is the whole command; `reader` only reads the log. The others are",
    "Spark's History Server, until it lists the log's jobs, and NVIDIA's profiling tool. The log is a real one, copied until it is large enough.",
]
MILLION = ["How long `pellucid whatif` takes to answer from a trace of a million monotasks, and how large and fast the report's page is."]
ADAPTIVE = "[ADAPTIVE.md](ADAPTIVE.md) has the tables, and [the causes of the misses](ADAPTIVE.md#why-a-policy-can-miss)."
NAMES = {"pellucid": "Pellucid", "datafusion": "plain DataFusion", "duckdb": "DuckDB", "polars": "Polars"}


def mark(line: dict) -> str:
    """Returns a star if other processes used the machine during the measurement."""
    return "*" if line["others_cores"] > results.NOISE_CORES else ""


def title(text: str, lines: list[dict]) -> str:
    """Returns a heading, marked if any of its lines is; the table of goals repeats it."""
    return f"## {text}{'*' if any(map(mark, lines)) else ''}"


def origin(lines: list[dict], command: str | None = None) -> list[str]:
    """Returns the build, dates, noise and number of runs of the lines, and the command that repeats them."""
    builds = Counter(line["build"] for line in lines)
    named = ", ".join(f"{build} ({count} cases)" if len(builds) > 1 else build for build, count in builds.items())
    dates = sorted({line["at"][:10] for line in lines})
    others = [line["others_cores"] for line in lines]
    again = f" Repeat: `{command}`." if command else ""
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    busy = f"Other processes used {statistics.median(others):.2f} cores (median; at most {max(others):.2f})"
    counts = sorted({line["runs"] for line in lines if "runs" in line})
    runs = f" Runs per case: {' to '.join(map(str, counts))}, in turns." if counts else ""
    memory = "".join(f" Freed memory: {state}." for state in sorted({line["memory"] for line in lines if line.get("memory")}))
    return [f"Build {named}, {when}. {busy}.{memory}{runs}{again}", ""]


def milliseconds(values: list[float]) -> str:
    """Formats the median, or a dash without measurements."""
    return f"{statistics.median(values):.0f}" if values else "–"


def micro_section(lines: list[dict]) -> list:
    """Returns the section of single operations: each figure with its limit and its command."""
    lines = newest(lines)
    out = ["## Single operations", "", "Costs of operations that happen once per monotask or record.", "", *origin(lines)]
    out += header("operation", "median", "interval", "limit", "verdict", "other processes (cores)", "repeat")
    for line in lines:
        name, unit = line["case"]["name"], f" {line['unit']}"
        limit = next((limit for begins, limit in MICRO.items() if name.startswith(begins)), None)
        interval = line["interval"]
        percent = f"({line['confidence'] * 100:g} %)" if interval else ""
        shown = f"{interval[0]:.1f} to {interval[1]:.1f}{unit} {percent}" if interval else "counted"
        what, measured = name + mark(line), f"{line['median']:.1f}{unit}"
        rest = f"{line['others_cores']:.2f}", f"`{line['command']}`"
        if limit is None:
            out.append(row(what, measured, shown, "none", "", *rest))
            continue
        goal = at_most(what, line["median"], limit, interval=interval, unit=unit)
        out.append(replace(goal, shown=row(what, measured, shown, goal.limit, goal.verdict, *rest)))
    lacking = [
        at_most(f"{begins}…", None, limit) for begins, limit in MICRO.items() if not any(line["case"]["name"].startswith(begins) for line in lines)
    ]
    return [
        *out,
        "",
        "- `record/…`: core time of the thread that records an event. `record/multitask` has no limit, since a multitask is registered only once.",
        "- `complete_and_start_with_10000_queued/…`: the scheduler completes a monotask and starts another while 10,000 are queued. "
        "That takes at least two decisions, so the time is an upper bound for one.",
        '- `trace of …`: the file\'s bytes per record. "Cost of recording" has the same figure for real queries.',
        *lacking,
        "",
    ]


def warm_ratios(lines: list[dict]) -> tuple[dict[str, list[float]], list[float]]:
    """Returns each engine's medians over plain DataFusion's, and Pellucid's peak memory over its."""
    ratios: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    memory = []
    for line in lines:
        found = line["engines"]
        plain, ours = found["datafusion"], found["pellucid"]
        for engine in ENGINES:
            if found[engine]["ms"] and plain["ms"]:
                ratios[engine].append(median_ratio(found[engine]["ms"], plain["ms"]))
        if ours["peak_bytes"] and plain["peak_bytes"]:
            memory.append(median_ratio(ours["peak_bytes"], plain["peak_bytes"]))
    return ratios, memory


def answered(engines: dict) -> bool:
    """Returns whether Pellucid answered, with as many rows as plain DataFusion if that answered too."""
    plain, ours = engines["datafusion"], engines["pellucid"]
    return ours["error"] is None and (plain["error"] is not None or ours["rows"] == plain["rows"])


def warm_table(lines: list[dict]) -> list:
    """Returns one scale and mode: medians by query, then the geometric means of their ratios over plain DataFusion."""
    by_query = sorted(lines, key=lambda line: line["case"]["query"])
    out = header("query", *(f"{NAMES[e]} (ms)" for e in ENGINES), "Pellucid ÷ plain")
    ratios, memory = warm_ratios(by_query)
    for line in by_query:
        found = line["engines"]
        both = found["pellucid"]["ms"] and found["datafusion"]["ms"]
        ratio = f"{median_ratio(found['pellucid']['ms'], found['datafusion']['ms']):.2f}" if both else "–"
        note = "" if line["rows_agree"] else " (row counts differ)"
        out.append(row(f"Q{line['case']['query']}{mark(line)}", *(milliseconds(found[e]["ms"]) for e in ENGINES), ratio + note))
    part = {e: of_all(len(ratios[e]), len(lines), "queries") for e in ENGINES}
    means = [f"{geometric_mean(ratios[e]):.3f}{f' ({part[e]})' if part[e] else ''}" if ratios[e] else "–" for e in ENGINES]
    out += [row("geometric mean over plain", *means, ""), ""]
    errors = [(f"Q{line['case']['query']}", e, line["engines"][e]["error"]) for line in by_query for e in ENGINES]
    ours = [f"Q{line['case']['query']}" for line in by_query if not answered(line["engines"])]
    lacks = of_all(len(ratios["pellucid"]), QUERIES, "queries")
    mean = geometric_mean(ratios["pellucid"]) if ratios["pellucid"] else None
    out.append(at_most("Geometric mean over plain DataFusion", mean, WARM_MEAN, ours, lacks))
    worst = max(ratios["pellucid"], default=None)
    out.append(at_most("Worst query over plain DataFusion", worst, WARM_WORST, ours, lacks))
    if memory:
        lacks = of_all(len(memory), QUERIES, "queries")
        out.append(at_most("Peak memory over plain, geometric mean", geometric_mean(memory), WARM_MEMORY, ours, lacks))
        out.append(f"- Peak memory over plain, largest: {max(memory):.2f}")
    return out + [f"- Failed: {query} {NAMES[engine]}: {error}" for query, engine, error in errors if error]


def warm_section(lines: list[dict]) -> list:
    """Returns the sections of all scales and modes."""
    out = []
    groups: dict[tuple, list[dict]] = {(scale, mode): [] for scale in SCALES for mode in warm.RUNS}
    for line in newest(lines):
        groups.setdefault((line["case"]["scale"], line["case"]["mode"]), []).append(line)
    for (scale, mode), of_group in sorted(groups.items()):
        out += [title(f"Warm TPC-H, scale {scale:g}, {mode}", of_group), "", *([WARM[mode], ""] if mode in WARM else [])]
        if not of_group:
            out += [at_most("Geometric mean over plain DataFusion", None, WARM_MEAN), ""]
            continue
        out += origin(of_group, f"python -m bench.run --again warm --scales {scale:g}")
        out += [*warm_table(of_group), ""]
    return out


def cold_cell(line: dict, runs: list[dict]) -> tuple[float | None, float | None, str]:
    """Returns median time over ideal, median bytes over needed, and a cell with both and the failed runs."""
    good = [run for run in runs if run["ms"] is not None]
    if not good:
        return None, None, "failed"
    time = statistics.median(run["ms"] for run in good) / line["ideal_ms"]
    moved = statistics.median(run["moved_bytes"] for run in good) / line["needed_bytes"]
    failed = f" ({len(runs) - len(good)} of {len(runs)} failed)" if len(good) < len(runs) else ""
    return time, moved, f"{time:.3f}, {moved:.3f}{failed}"


def cold_section(lines: list[dict]) -> list:
    """Returns the section of cold queries: time over ideal and bytes over needed, by engine and read-ahead."""
    lines = sorted(newest(lines), key=lambda line: (line["case"]["read_ahead_kb"], line["case"]["query"]))
    out = [title("Cold, one throttled disk", lines), "", *COLD, "", *origin(lines, "python -m bench.run --again cold")]
    out += header(
        "query",
        "read_ahead_kb",
        "needed (MB)",
        "ideal (s)",
        *(f"{NAMES[e]}: time ÷ ideal, bytes ÷ needed" for e in lines[0]["engines"]),
        "limited by (cold; warm)",
    )
    times, moves, failed, named = [], [], [], Counter()
    for line in lines:
        case = line["case"]
        cells = {engine: cold_cell(line, runs) for engine, runs in line["engines"].items()}
        times.append(cells["pellucid"][0])
        moves.append(cells["pellucid"][1])
        if any(run["ms"] is None for run in line["engines"]["pellucid"]):
            failed.append(f"Q{case['query']} at {case['read_ahead_kb']}")
        cold_names, warm_name = [_bottleneck(run) for run in line["engines"]["pellucid"]], _bottleneck(line["warm"])
        named.update([("cold", name == "disk") for name in cold_names] + [("warm", warm_name == "cpu")])
        out.append(
            row(
                f"Q{case['query']}{mark(line)} (scale {case['scale']:g})",
                case["read_ahead_kb"],
                f"{line['needed_bytes'] / 1e6:.0f}",
                f"{line['ideal_ms'] / 1e3:.2f}",
                *(text for _, _, text in cells.values()),
                f"{'/'.join(sorted(set(cold_names)))}; {warm_name}",
            )
        )
    lacks = of_all(len(lines), len(cold.COLUMNS) * len(cold.READ_AHEAD_KB), "cases")
    if not lacks and min(line["ideal_ms"] for line in lines) < cold.IDEAL_S * 1e3:
        lacks = f"an ideal time below {cold.IDEAL_S:g} s"
    right, all_named = named["cold", True] + named["warm", True], sum(named.values())
    verdict = "not met" if right < all_named else f"not decided: {lacks}" if lacks else "met"
    return [
        *out,
        "",
        at_most("Pellucid's time over ideal, worst", max(filter(None, times), default=None), COLD_TIME, failed, lacks),
        at_most("Bytes moved over needed, worst", max(filter(None, moves), default=None), COLD_BYTES, failed, lacks),
        Goal("Runs with the right bottleneck", f"{right} of {all_named}", "disk when cold, cores when warm", verdict),
        *(f"- Disk: {label}" for label in sorted({line["disk"].split(", read_ahead")[0] for line in lines})),
        "",
    ]


def _bottleneck(found: dict) -> str:
    """Returns the kind of bottleneck that a run named, or "none named"."""
    return found["bottleneck"]["kind"] if found["bottleneck"] else "none named"


def two_disks_section(lines: list[dict]) -> list:
    """Returns the section that compares two disks with one."""
    lines = sorted(newest(lines), key=lambda line: line["case"]["query"])
    out = [title("Cold, two throttled disks", lines), "", *TWO, "", *origin(lines, "python -m bench.run --again cold")]
    out += header("query", "one disk (s)", "two disks (s)", "two ÷ one")
    ratios, failed = [], []
    for line in lines:
        query = f"Q{line['case']['query']}"
        runs = [line["took"][where] for where in ("one disk", "two disks")]
        if any(run["ms"] is None for of_folder in runs for run in of_folder):
            failed.append(query)
        took = [[run["ms"] for run in of_folder if run["ms"] is not None] for of_folder in runs]
        ratio = median_ratio(took[1], took[0]) if all(took) else None
        ratios += [ratio] if ratio else []
        shown = [f"{statistics.median(ms) / 1e3:.2f}" if ms else "failed" for ms in took]
        out.append(row(query + mark(line), *shown, f"{ratio:.3f}" if ratio else "–"))
    lacks = of_all(len(lines), len(cold.COLUMNS), "queries")
    disks = sorted({label for line in lines for label in line["disks"]})
    worst = at_most("Two disks over one, worst", max(ratios, default=None), TWO_DISKS, failed, lacks)
    return [*out, "", worst, *(f"- Disk: {label}" for label in disks), ""]


def recording_section(lines: list[dict]) -> list:
    """Returns the section on tracing: its share of core time, and the ratio of times with and without it."""
    lines = newest(lines)
    out = [title("Cost of recording", lines), "", *RECORDED, "", *origin(lines, "python -m bench.run --again recording")]
    parts = ("recording_ns", "writer_ns", "core_ns", "clock_ns", "wall_ns", "clock_reads")
    shares = [line for line in lines if line["case"]["what"] == "share" and all(line.get(part) is not None for part in parts)]
    if shares:
        lacks = of_all(len(shares), QUERIES, "queries")
        total = {key: sum(line[key] for line in shares) for key in (*parts, "events", "operators", "operator_calls")}
        timing = lambda line: 2 * line["operator_calls"] * line["wall_ns"] + line["clock_reads"] * line["clock_ns"]
        timings = sum(map(timing, shares))
        middle = lambda key: statistics.median(line[key] for line in shares)
        cost = (total["recording_ns"] + total["writer_ns"] + timings) / total["core_ns"]
        sizes = [line["bytes_with_and_without_operators"] for line in shares]
        records = [line["events"] - line["operators"] for line in shares]
        each = sum(less for _, less in sizes) / sum(records)
        # A stage's operators are recorded once, however many monotasks it has.
        larger = max((whole - less) / (less / count * 1e6) for (whole, less), count in zip(sizes, records))
        worst = max(shares, key=lambda line: (line["recording_ns"] + timing(line)) / line["core_ns"])
        out += [
            at_most("Share of core time, recording and writing together", cost, RECORDING, lacks=lacks),
            at_most("Bytes per record on disk, all traces without operators", each, EVENT_BYTES, lacks=lacks),
            at_most(
                "Bytes of a trace with operators over those without, worst query", max(whole / less for whole, less in sizes), GROWTH, lacks=lacks
            ),
            at_most("The same with a million monotasks, from each query's bytes per record", 1 + larger, MILLION_GROWTH, lacks=lacks),
            f"- Largest share on worker threads: Q{worst['case']['query']}, {(worst['recording_ns'] + timing(worst)) / worst['core_ns']:.4%}",
            f"- {len(shares)} TPC-H queries, {total['events']} records, of which {total['operators']} of operators",
            f"- Calls of operators: {total['operator_calls']:,}, {timings / total['core_ns']:.4%} of core time at"
            f" {middle('wall_ns'):.0f} ns a read of the wall clock and {middle('clock_ns'):.0f} ns one of the thread's clock",
        ]
    for line in lines:
        if line["case"]["what"] == "pairs":
            ratio, low, high = ratio_interval([tuple(pair) for pair in line["pairs_ms"]])
            lacks = of_all(len(line["pairs_ms"]), recording.PAIRS, "pairs")
            verdict = "not met" if low > 1 else f"not decided: {lacks}" if lacks else "met"
            measured = f"{ratio:.4f}, {low:.4f} to {high:.4f}"
            out.append(
                Goal(f"Time with `--trace` over time without, pairs in turns{mark(line)}", measured, "a 95 % interval that reaches 1", verdict)
            )
    return [*out, ""]


def sparklog_table(line: dict) -> list:
    """Returns the table of one log: each program's core time, time and memory."""
    case, programs = line["case"], line["programs"]
    size = f"{line['bytes'] / 1e6:.0f} MB"
    kept = f", {line['log_bytes'] / 1e6:.0f} MB as {case['codec']}" if case["codec"] != "plain" else ""
    out = [f"{line['tasks']:,} tasks, {size}{kept}{mark(line)} ({case['copies']} copies of `{case['base']}`):", ""]
    out += header("program", "core time (s)", "time (s)", "peak memory (MB)", "MB per core second")
    for name, found in programs.items():
        if found["error"]:
            out.append(row(name, found["error"].splitlines()[-1][:80], "", "", ""))
            continue
        core = statistics.median(found["core_s"])
        peak = statistics.median(found["peak_bytes"]) / 1e6
        out.append(row(name, f"{core:.2f}", f"{statistics.median(found['wall_s']):.2f}", f"{peak:.0f}", f"{line['bytes'] / 1e6 / core:.0f}"))
    return [*out, ""]


def core_s(found: dict) -> float | None:
    """Returns the median core seconds of a program that answered."""
    return statistics.median(found["core_s"]) if found["core_s"] and not found["error"] else None


def sparklog_section(lines: list[dict]) -> list:
    """Returns the section on reading Spark event logs, compared with other tools that read them."""
    lines = newest(lines)
    out = [title("Spark event logs", lines), "", *LOGS, "", *origin(lines, "python -m bench.run --again sparklog")]
    for line in lines:
        out += sparklog_table(line)
        ours = core_s(line["programs"]["pellucid analyze"])
        peers = [core_s(found) for name, found in line["programs"].items() if name not in sparklog.OURS]
        if peers:
            lacks = of_all(sum(peer is not None for peer in peers), 2, "peers")
            fewer = min(filter(None, peers), default=None)
            ratio = fewer / ours if fewer and ours else None
            limit = FEWER_CORE_S[line["case"]["codec"]]
            verdict = "not measured" if ratio is None else "not met" if ratio < limit else f"not decided: {lacks}" if lacks else "met"
            measured = "–" if ratio is None else f"{ratio:.1f} times fewer"
            what = f"Core seconds compared with the faster peer, {line['case']['codec']}"
            out.append(Goal(what, measured, f"at least {limit} times fewer", verdict))
            alone = core_s(line["programs"]["reader"])
            if alone and line["case"]["codec"] == "plain":
                rate, least = line["bytes"] / 1e6 / alone, READER_MB_A_CORE_S
                verdict = "met" if rate >= least else "not met"
                out.append(Goal("MB per core second of the reader, plain", f"{rate:.0f}", f"at least {least}", verdict))
        elif line["tasks"] >= 1e6:
            peak = statistics.median(line["programs"]["pellucid analyze"]["peak_bytes"] or [0]) or None
            failed = [error for error in [line["programs"]["pellucid analyze"]["error"]] if error]
            out.append(at_most("Peak memory for a million tasks", peak and peak / 1e6, MILLION_BYTES / 1e6, failed, unit=" MB"))
        out.append("")
    return out


def million_section(lines: list[dict]) -> list:
    """Returns the section on a trace of a million monotasks: what-if questions, and the report's page."""
    lines = newest(lines)
    out = [title("A million monotasks", lines), "", *MILLION, "", *origin(lines, "python -m bench.run --again million")]
    out += header("question", "time (ms)", "core time (ms)", "peak memory (MB)")
    asked = [line for line in lines if "wall_ms" in line]
    for line in asked:
        cells = f"{milliseconds(line['wall_ms'])} (at most {max(line['wall_ms']):.0f})", milliseconds(line["core_ms"])
        out.append(row(f"`{line['case']['ask']}`{mark(line)}", *cells, f"{line['peak_bytes'] / 1e6:.0f}"))
    # Only `--set` asks one question; a sweep and the bare command ask many.
    single = [statistics.median(line["wall_ms"]) for line in asked if "--set" in line["case"]["ask"]]
    out += ["", at_most("`whatif --set`, median of the slowest question", max(single, default=None), ANSWER_MS, unit=" ms")]
    for line in lines:
        if "page_bytes" in line:
            out.append(at_most("Size of the report's page", line["page_bytes"] / 1e6, PAGE_BYTES / 1e6, unit=" MB"))
            shown = [statistics.median(line[f"{scheme}_ms"]) for scheme in ("light", "dark")]
            out.append(at_most("Time to draw its timeline, the slower of light and dark", max(shown), PICTURE_MS, unit=" ms"))
    return [*out, ""]


def adaptive_section(lines: list[dict]) -> list:
    """Returns the goals of the adaptive suite; its tables and the causes of its misses are on another page."""
    out = [title("Self-adaptive executors", newest(lines)), ""]
    out += [
        "The Spark plugin's policies for the number of tasks at once, compared with fixed numbers. This section has the goals only;",
        ADAPTIVE,
        "",
    ]
    for group, settings in adaptive.newest(lines).items():
        disk, job, _ = group
        goals = (part for part in adaptive.verdict(group, settings) if isinstance(part, Goal))
        out += [replace(goal, what=f"{job} on {disk}, {goal.what}") for goal in goals]
    return [*out, ""]


HEAD = [
    "# Results: SQL queries, tracing, Spark event logs",
    "",
    "How fast are SQL queries, compared with plain DataFusion (the library that Pellucid plans with, run by itself), DuckDB, Polars and the",
    "disk's own time? What do recording a trace, reading a Spark event log and answering a what-if cost? `make bench` measures this;",
    "[README.md](README.md#sql-queries-make-bench) says how. `python -m bench.table` generates this page from `bench/results/`; do not edit it.",
    "",
]
NOTES = [
    "- *Freed memory: kept* means that the machine did not return freed memory to its host, which would slow the next process down"
    " ([README.md](README.md#sql-queries-make-bench)).",
]
LEGEND = [
    '"A over B" is A\'s figure divided by B\'s: for times, below 1 means that A is faster. "Not resolved" means that the interval contains',
    "the limit. In the goals for tasks at once, `0: 4 (16)` means that in stage 0 the policy ended at 4 tasks, and 16 was the best fixed number.",
]
SECTIONS = {
    "warm": warm_section,
    "cold": cold_section,
    "two-disks": two_disks_section,
    "recording": recording_section,
    "micro": micro_section,
    "sparklog": sparklog_section,
    "million": million_section,
    "adaptive": adaptive_section,
}


def page(of_suite: dict[str, list[dict]]) -> str:
    """Returns the whole page; a suite without results is reported as not measured."""
    every = [line for lines in of_suite.values() for line in newest(lines)]
    measured_on = machines(every)
    body, goals, verdicts, heading = [], header("goal", "measured", "limit", "verdict"), Counter(), ""
    for suite, section in SECTIONS.items():
        if not of_suite.get(suite):
            goals.append(row(f"goals of `{suite}`", "–", "–", "not measured"))
            body += [f"*No results of `{suite}` yet.*", ""]
            continue
        for part in section(of_suite[suite]):
            if isinstance(part, Goal):
                goals.append(row(f"{heading}: {part.what}", part.measured, part.limit, part.verdict))
                verdicts[heading, part.verdict.partition(":")[0]] += 1
            elif part.startswith("## "):
                heading = part.removeprefix("## ")
            body.append(str(part))
    out = [*HEAD, *answer(of_suite.get("warm", []), verdicts), *measured_on]
    if len(measured_on) > 1:
        out.append("- The lines come from several machines. Do not compare times across machines.")
    others = [path.name for path in sorted(results.FOLDER.parent.glob("*.md")) if path.name not in ("RESULTS.md", "README.md")]
    out += [f"- \\*: other processes used more than {results.NOISE_CORES} cores during the measurement", *NOTES]
    out += ["- More pages: " + ", ".join(f"[{name}]({name})" for name in others), ""]
    return "\n".join([*out, "## Goals", "", *LEGEND, "", *goals, "", *body])


def answer(warm_lines: list[dict], verdicts: Counter) -> list[str]:
    """Returns Pellucid's warm times over the other engines', and the counts of goals by verdict, with the sections of the misses."""
    out = []
    for scale in SCALES:
        chosen = [line for line in newest(warm_lines) if line["case"]["scale"] == scale and line["case"]["mode"] == "fresh process"]
        ratios, _ = warm_ratios(chosen)
        if chosen and all(len(ratios[engine]) == len(chosen) for engine in ENGINES):
            means = {engine: geometric_mean(ratios[engine]) for engine in ENGINES}
            shown = ", ".join(f"{means['pellucid'] / means[engine]:.2f} of {NAMES[engine]}" for engine in ENGINES if engine != "pellucid")
            out.append(f"- TPC-H in memory, scale {scale:g}: Pellucid's time is {shown} (geometric means; below 1: faster).")
    counts, where = Counter(), {}
    for (heading, verdict), count in verdicts.items():
        counts[verdict] += count
        where.setdefault(verdict, []).append(f'"{heading.rstrip("*")}"')
    missed = [f"{counts[verdict]} {verdict} (in {', '.join(names)})" for verdict, names in where.items() if verdict != "met"]
    if counts:
        out.append(f"- Of {counts.total()} goals, {counts['met']} are met{''.join(f', {text}' for text in missed)}.")
    return [*out, ""] if out else []


def main() -> int:
    """Writes the page."""
    return pages.write("RESULTS.md", page({suite: results.load(suite) for suite in SECTIONS}))


if __name__ == "__main__":
    sys.exit(main())
