"""Makes `bench/ADAPTIVE.md` from `bench/results/adaptive.jsonl`: `python -m bench.adaptive.table`. Measures nothing."""

import math
import statistics
import sys
from collections import defaultdict

from bench.adaptive.matrix import CONCURRENT_STAGES, DEFAULT, EMPTY_TASKS, GROUPS, POLICIES, REMEMBERED, SLOTS, SWEEP, VARYING_ORDER, settings_of
from bench.common import pages, results
from bench.common.goals import Goal, at_most, of_all
from bench.common.pages import joined
from bench.common.stats import ratio_interval, resolved

SUITE = "adaptive"
# Goals: time over the best fixed setting of each stage; for the sort on spinning disks also over the default setting.
OVER_BEST, UNDER_DEFAULT = 1.10, 0.85
SPINNING = (("H150R", "sort"), ("H150", "sort"))
# Goal of the queues per disk: stock Spark's time over theirs.
FASTER = 1.15
REPEATS = 5
# The fields of a stage that `medians` summarises.
NUMBERS = ("tasks", "ms", "wait_ms", "bytes", "concurrency")
# Pairs of runs that suffice to resolve an overhead of `COSTS_NOTHING`.
PAIRS = 15
COSTS_NOTHING = 1.02

READING = [
    "## How to read the tables",
    "",
    "Each section has one job on one disk. The [jobs](adaptive/jobs.py) are `sort` (Terasort), `pagerank`, `join` and `aggregation`, and two",
    "without I/O: `cpu`, which computes, and `tasks`, which are empty. The [disks](../lab/README.md#emulated-spinning-disks) `H150R` and",
    "`H150` seek; `SSD50` and `memory` do not.",
    "",
    "| setting | meaning |",
    "|---|---|",
    "| `stock-N` | stock Spark with N slots: the fixed settings |",
    "| `measure` | the plugin's default mode, which changes nothing |",
    "| `throughput`, `index` | the policies of the mode `adaptive` with 32 slots, without knowledge of earlier runs |",
    "| `remembered` | `throughput`, starting from the numbers that its previous run found (`spark.pellucid.memory`) |",
    "| `monotasks` | the mode `monotasks`: a queue per disk, with as many slots as the machine has cores |",
    "",
    "| column | meaning |",
    "|---|---|",
    "| seconds | the job's median time |",
    "| over stock-32 | time divided by that of `stock-32`: geometric mean over pairs of the same repeat |",
    "| drive busy, positioning | time that the emulated drive worked, and the part of it that it spent on seeks and rotation |",
    "| queue depth | requests at the drive, on average while it was busy |",
    "| peak gated I/O | most threads in I/O at once on each disk, and by how many they exceeded the permits |",
    "| stages | median time of each stage, and the number of tasks at once with which it ended |",
    "",
    "- One executor (`local-cluster[1,32,…]`) keeps input, shuffle files and output on the disk. On `H150x2`, two disks, the input is on",
    "  one, the output on the other, and shuffle files are on both.",
    "- Settings take turns. Each stage starts with the disk's files evicted from the page cache, as if they exceeded the memory. No core",
    "  sleeps during a run (`awake` in `run.py`).",
    "- Each table belongs to one build of the plugin's jar, the newest measured. Compare numbers within a table only.",
    '- Below each table are the goals. "Over stock-32" is there the ratio of medians. `0: 4 (16)` means that in stage 0 the policy ended at 4',
    "  tasks at once, and that 16 was the best fixed setting.",
    "- *The best fixed setting* combines the best time of each stage; time outside of stages is that of the setting that is best for the job.",
    '- A policy should end within one doubling of each stage\'s best setting. A miss is "not resolved" if the policy ended within one doubling',
    "  of a setting that five repeats cannot tell from the best (95 %). Stages of one or two tasks offer no choice and are left out.",
]

WHY = [
    "## Why a policy can miss",
    "",
    "- It learns how fast a number of tasks is only by trying it. A stage of 64 tasks lasts only a few intervals, and each interval is judged",
    "  by about four tasks, whose times vary. Where the smallest number is fastest, as on H150, every trial costs time, and some trials seem",
    "  to pay off by chance. `remembered` starts from the numbers that its previous run found, so the time that it saves is the cost of trials.",
    "- Where settings differ by only a few percent, the choice between them is chance.",
    "- The policies reject a doubling that gains less than 7 %. Where two doublings together gain 10 %, as on H150R, they stop too early.",
    "",
    "Since jar dbacb211901f, `throughput` does not try a number of tasks if the stage is too short to judge it. With 64 tasks it tries at most",
    "8, unless each doubling so far doubled the throughput. Tables of older jars contain settings of 16 and more that were never judged.",
]


def newest(lines: list[dict]) -> dict[tuple, dict[str, dict[int, dict]]]:
    """Returns, by disk, job and size, the newest line of each setting and repeat; only the newest build counts."""
    found: dict = defaultdict(lambda: defaultdict(dict))
    builds = {}
    for line in lines:
        case = line["case"]
        group = (case["disk"], case["job"], case["bytes"])
        if builds.setdefault(group, line["build"]) != line["build"]:
            builds[group] = line["build"]
            found[group].clear()
        found[group][case["setting"]][case["repeat"]] = line
    return found


def medians(runs: dict[int, dict]) -> tuple[float, list[dict]]:
    """Returns the median time of a setting's repeats, and its stages with the median of each number."""
    lines = list(runs.values())
    count = min(len(line["stages"]) for line in lines)
    stages = []
    for place in range(count):
        of = [line["stages"][place] for line in lines]
        known = {key: [stage[key] for stage in of if stage[key] is not None] for key in NUMBERS}
        stages.append({key: statistics.median(values) if values else None for key, values in known.items()})
    return statistics.median(line["ms"] for line in lines), stages


def swept(settings: dict) -> dict[str, tuple[float, list[dict]]]:
    """Returns stock Spark's medians, by setting."""
    return {name: medians(runs) for name, runs in settings.items() if name.startswith("stock-")}


def job_of(settings: dict) -> str:
    """Returns the job that all of these runs execute."""
    return next(line["case"]["job"] for runs in settings.values() for line in runs.values())


def has_choice(stage: dict) -> bool:
    """Returns whether a stage has more tasks than the smallest setting runs at once."""
    return stage["tasks"] > SWEEP[0]


def best_fixed(settings: dict) -> tuple[float, list[str]] | None:
    """Returns the job's time with the sweep's best setting of each stage (the paper's BestFit, §4), and those settings.

    Time outside of stages, and stages without a choice, are those of the setting that is best for the whole job. If one
    setting is best in every stage, the result is therefore its time. A job whose stages run concurrently has one best
    setting, for the whole job.
    """
    sweep = swept(settings)
    if len(sweep) < 2:
        return None
    whole = min(sweep, key=lambda name: sweep[name][0])
    ms, stages = sweep[whole]
    if job_of(settings) in CONCURRENT_STAGES:
        return ms, [whole.removeprefix("stock-")]
    count = min(len(stages) for _, stages in sweep.values())
    names = [min(sweep, key=lambda name: sweep[name][1][place]["ms"]) if has_choice(stages[place]) else whole for place in range(count)]
    gained = sum(stages[place]["ms"] - sweep[name][1][place]["ms"] for place, name in enumerate(names))
    return ms - gained, [name.removeprefix("stock-") for name in names]


def common_repeats(settings: dict) -> dict:
    """Returns the repeats that every setting has, since the machine's noise differs between repeats."""
    common = set.intersection(*(set(runs) for runs in settings.values()))
    return {name: {repeat: runs[repeat] for repeat in common} for name, runs in settings.items()} if common else settings


def seconds(ms: float | None) -> str:
    """Formats a time for a table."""
    return "–" if ms is None else f"{ms / 1000:.1f}"


def pairs(settings: dict, name: str, other: str = DEFAULT, place: int | None = None) -> list[tuple[float, float]]:
    """Returns the times of two settings in the same repeat, of the whole job or of the stage at `place`."""

    def ms(line: dict) -> float:
        return (line if place is None else line["stages"][place])["ms"]

    ours, theirs = settings.get(name, {}), settings.get(other, {})
    return [(ms(ours[r]), ms(theirs[r])) for r in sorted(ours.keys() & theirs.keys())]


def against_default(settings: dict, name: str) -> str:
    """Formats the ratio to the default setting with its interval, and "not resolved" where that contains 1."""
    both = pairs(settings, name)
    if not both or name == DEFAULT:
        return "–"
    if len(both) < 2:
        return f"{both[0][0] / both[0][1]:.2f} (one pair)"
    mean, low, high = ratio_interval(both)
    said = f"{mean:.2f} ({low:.2f} to {high:.2f})"
    return said if resolved(low, high) else f"{said}, not resolved"


def answer(groups: dict[tuple, dict]) -> list[str]:
    """Returns the answer: the default policy's time over that of the default setting and of the best fixed one, and the missed goals."""
    over_default, over_best, unmet = {}, {}, []
    for group, settings in groups.items():
        disk, job, _ = group
        name, common = f"{job} on {disk}", common_repeats(settings)
        goals = [part for part in verdict(group, settings) if isinstance(part, Goal)]
        unmet += [f"{name}, {goal.what}: {goal.measured}" for goal in goals if goal.verdict.startswith("not met")]
        if POLICIES[0] not in settings or not disk.startswith("H150"):
            continue
        ms = medians(common[POLICIES[0]])[0]
        if DEFAULT in settings:
            over_default[name] = ms / medians(common[DEFAULT])[0]
        if best := best_fixed(common):
            over_best[name] = ms / best[0]
    out = []
    if over_default:
        low, high = min(over_default.values()), max(over_default.values())
        out.append(
            f"- On spinning disks, the default policy, `{POLICIES[0]}`, takes {low:.2f} to {high:.2f} of the time of stock Spark with {SLOTS} tasks at once."
        )
    if over_best:
        low, high = min(over_best.values()), max(over_best.values())
        out.append(f"- It takes {low:.2f} to {high:.2f} of the time of the best fixed setting of each stage.")
    if unmet:
        out += ["- Goals that are not met; [the causes](#why-a-policy-can-miss) are below:", *(f"  - {text}" for text in unmet)]
    return [*out, ""] if out else []


def group_page(group: tuple, settings: dict) -> list[str]:
    """Returns the section of one disk and job."""
    disk, job, size = group
    lines = [f"## {job} on {disk}, {f'{size / 2**20:.0f} MiB' if size else 'no input'}", ""]
    measured = [line for runs in settings.values() for line in runs.values()]
    lines += [f"- {label}" for label in sorted({line["label"] for line in measured})]
    # `newest` keeps the lines of one jar only.
    lines += [f"- plugin jar {measured[0]['build']}", ""]
    order = sorted(settings, key=lambda name: (not name.startswith("stock-"), int(name[6:]) if name.startswith("stock-") else name))
    queues = "monotasks" in settings
    columns = ["setting", "runs", "seconds", "over stock-32 (95 %)", "drive busy, s", "positioning, s", "queue depth"]
    columns += ["peak gated I/O, by disk (over permits)"] if queues else []
    columns += ["stages, s (final tasks at once)"]
    lines += pages.narrow_header(*columns)
    for name in order:
        ms, stages = medians(settings[name])
        drives = [line["drives"] for line in settings[name].values()]
        counters = ("busy_ns", "positioning_ns", "in_flight_ns")
        busy, positioning, flight = (statistics.median(sum(drive[key] for drive in each) for each in drives) / 1e9 for key in counters)
        shown = ", ".join(seconds(s["ms"]) + (f" ({s['concurrency']:.0f})" if s["concurrency"] else "") for s in stages)
        shown = "order varies" if job in VARYING_ORDER else shown
        depth = f"{flight / busy:.1f}" if busy else "–"
        cells = [name, len(settings[name]), seconds(ms), against_default(settings, name), f"{busy:.1f}", f"{positioning:.1f}", depth]
        cells += [in_queues(settings[name]) if name == "monotasks" else "–"] if queues else []
        lines.append(f"| {' | '.join(map(str, [*cells, shown]))} |")
    return [*lines, "", *signals(settings, order), *map(str, verdict(group, settings)), ""]


def in_queues(runs: dict[int, dict]) -> str:
    """Formats each disk's largest number of threads in gated I/O, and by how many that exceeded the permits."""
    told = [line.get("gated") for line in runs.values()]
    if not all(told):
        return "not measured"
    each = zip(*told, strict=True)
    return ", ".join(f"{max(d['peak'] for d in disk)} ({max(d['over'] for d in disk)})" for disk in each)


def signals(settings: dict, order: list[str]) -> list[str]:
    """Returns the table of ε, µ and ζ over the sweep (the paper's figure 7)."""
    stages = congestion(settings)
    if not stages:
        return []
    sweep = [name for name in order if name.startswith("stock-")]
    lines = [
        "ε (wait of all threads, s) / µ (MB/s, by the plugin's byte count) / ζ (ms of wait per MB/s) of stock Spark, by tasks at once:",
        "",
        f"| stage | {' | '.join(name.removeprefix('stock-') for name in sweep)} |",
        f"|---|{'---|' * len(sweep)}",
    ]
    for place, stage in enumerate(stages):
        cells = []
        for wait_ms, mb_s in (stage[name] for name in sweep):
            index = f"{wait_ms / mb_s:.0f}" if mb_s else "–"
            cells.append(f"{wait_ms / 1000:.1f} / {mb_s:.1f} / {index}")
        lines.append(f"| {place} | {' | '.join(cells)} |")
    return [*lines, ""]


def congestion(settings: dict) -> list[dict[str, tuple[float, float]]]:
    """Returns, for each stage and setting of the sweep, ε in ms and µ in MB/s (§5.1).

    µ uses the plugin's byte count of the same stage, since stock Spark omits most of what it reads of Parquet.
    """
    sweep = swept(settings)
    plugged = [medians(settings[name])[1] for name in settings if name in POLICIES]
    if len(sweep) < 2 or not plugged or job_of(settings) in VARYING_ORDER:
        return []
    count = min(len(stages) for stages in (*(stages for _, stages in sweep.values()), *plugged))
    moved = [statistics.median(stages[place]["bytes"] for stages in plugged) for place in range(count)]
    return [
        {name: (stages[place]["wait_ms"], moved[place] / 1e6 / (stages[place]["ms"] / 1000)) for name, (_, stages) in sweep.items()}
        for place in range(count)
    ]


def index_and_best(groups: dict[tuple, dict]) -> list[str]:
    """Compares the number of tasks at which ζ is lowest with the best fixed setting, as figure 7 of the paper does."""
    lowest, differing, unresolved, have_best, waits, rates = [], 0, 0, 0, [], []
    for settings in groups.values():
        common = common_repeats(settings)
        best = None if job_of(settings) in CONCURRENT_STAGES else best_fixed(common)
        stages = next(iter(swept(settings).values()), (0, []))[1]
        for place, by_setting in enumerate(congestion(settings)):
            if not all(mb_s for _, mb_s in by_setting.values()):
                continue
            names = sorted(by_setting, key=lambda name: int(name.removeprefix("stock-")))
            lowest.append(min(names, key=lambda name: by_setting[name][0] / by_setting[name][1]).removeprefix("stock-"))
            waits.append(by_setting[names[-1]][0] / by_setting[names[0]][0])
            rates.append(max(mb_s for _, mb_s in by_setting.values()) / by_setting[names[0]][1])
            if best and has_choice(stages[place]):
                have_best += 1
                differing += best[1][place] != lowest[-1]
                unresolved += lowest[-1] in alike(common, place, best[1][place])
    if not lowest:
        return []
    counts = " and ".join(f"{lowest.count(name)} of {len(lowest)} at {name}" for name in sorted(set(lowest), key=int))
    where = f"at {lowest[0]} tasks in each of the {len(lowest)} measured stages" if len(set(lowest)) == 1 else f"in {counts} tasks at once"
    return [
        "## The congestion index",
        "",
        f"**The congestion index ζ = ε ÷ µ is lowest {where}.** Yet the best fixed setting is another",
        f"number in {differing} of the {have_best} stages that have one (in {unresolved} of them, five repeats cannot tell the two numbers apart). In figure 7 of",
        "the paper, the index is lowest at the best setting. The reason is ε, the I/O wait summed over all tasks: from",
        f"{SWEEP[0]} to {SWEEP[-1]} tasks at once it grows {min(waits):.0f} to {max(waits):.0f} times, roughly with their number or faster, while throughput µ never exceeds",
        f"{max(rates):.1f} times its value at {SWEEP[0]} tasks. The [glossary](../docs/glossary.md#resources-and-scheduling) defines ε, µ and ζ.",
        "",
    ]


def verdict(group: tuple, settings: dict) -> list[Goal | str]:
    """Returns the goals whose data was measured; with fewer repeats than `REPEATS` they are not decided."""
    found: list[Goal | str] = []
    fewest = min(len(runs) for runs in settings.values())
    absent = [name for name in settings_of(group[:2]) if name not in settings]
    if absent:
        found.append(f"- Not measured: {', '.join(absent)}.")
    lacks = of_all(fewest, REPEATS, "repeats")
    common = common_repeats(settings)
    best = best_fixed(common)
    default = medians(common[DEFAULT])[0] if DEFAULT in settings else None
    of = "" if common == settings else f" (over the {len(next(iter(common.values())))} repeats that every setting has)"
    by_stage = job_of(settings) not in CONCURRENT_STAGES
    if best and by_stage:
        found.append(f"- Best fixed setting of each stage: {', '.join(best[1])}; together {seconds(best[0])} s{of}.")
    elif best:
        found.append(f"- Stages run concurrently, so only the whole job has a best fixed setting: {best[1][0]}, {seconds(best[0])} s{of}.")
    for policy in (*POLICIES, REMEMBERED):
        if policy not in settings:
            continue
        ms, stages = medians(common[policy])
        if best:
            found.append(at_most(f"{policy} over the best fixed setting", ms / best[0], OVER_BEST, lacks=lacks))
            found += chosen(policy, stages, best[1], common, lacks) if by_stage else []
        if default and group[:2] in SPINNING:
            found.append(at_most(f"{policy} over {DEFAULT}", ms / default, UNDER_DEFAULT, lacks=lacks))
        both = pairs(settings, policy)
        if len(both) >= PAIRS:
            mean, low, high = ratio_interval(both)
            what = f"{policy} over {DEFAULT}, {len(both)} pairs (95 %: {low:.3f} to {high:.3f})"
            found.append(at_most(what, mean, COSTS_NOTHING, interval=(low, high)))
    if group[1] == "tasks":
        found += [a_task(settings, name) for name in settings if name != DEFAULT]
    if default and "monotasks" in settings:
        gain = default / medians(common["monotasks"])[0]
        word = f"not decided: {lacks}" if lacks else "met" if gain >= FASTER else "not met"
        found.append(Goal(f"throughput of monotasks over {DEFAULT}", f"{gain:.2f}", f"at least {FASTER}", word))
    return found


def a_task(settings: dict, name: str) -> str:
    """Formats the plugin's cost per task compared with stock Spark, with its interval."""
    both = pairs(settings, name)
    if len(both) < 2:
        return f"- {name}: the cost per task needs at least two pairs."
    each_us = statistics.median(theirs for _, theirs in both) * 1000 / EMPTY_TASKS
    mean, low, high = ((ratio - 1) * each_us for ratio in ratio_interval(both))
    return f"- {name} adds {mean:.0f} µs per task (95 %: {low:.0f} to {high:.0f}) to stock Spark's {each_us:.0f} µs; {EMPTY_TASKS} empty tasks."


def alike(settings: dict, place: int, best: str) -> list[str]:
    """Returns the settings whose time for a stage is not resolved from the best one's (95 %, runs of the same repeat)."""
    others = {str(n): pairs(settings, f"stock-{n}", f"stock-{best}", place) for n in SWEEP if str(n) != best}
    return [name for name, both in others.items() if len(both) > 1 and ratio_interval(both)[1] <= 1]


def near(chosen: float, name: str) -> bool:
    """Returns whether a choice is within one doubling of a setting."""
    return 0.5 <= chosen / int(name) <= 2


def chosen(policy: str, stages: list[dict], best: list[str], settings: dict, lacks: str) -> list[Goal | str]:
    """Returns the goal that a policy ends within one doubling of each stage's best fixed setting, and a line for each miss.

    A miss is "not resolved" if the policy is within one doubling of a setting that the sweep cannot tell from the best.
    """
    said, words, misses = [], [], []
    for place, (stage, name) in enumerate(zip(stages, best, strict=False)):
        if stage["concurrency"] is None or not has_choice(stage):
            continue
        word = "met"
        if not near(stage["concurrency"], name):
            like = min((n for n in SWEEP if f"stock-{n}" in settings), key=lambda n: abs(math.log(n / stage["concurrency"])))
            theirs, ours = (medians(settings[f"stock-{n}"])[1][place]["ms"] for n in (name, like))
            costs, word = f"stock-{like} takes {ours / theirs:.2f} times as long as stock-{name}", "not met"
            others = [other for other in alike(settings, place, name) if near(stage["concurrency"], other)]
            if others:
                costs, word = f"{costs}, but {joined(others)} cannot be told from {name}", "not resolved"
            misses.append(f"  - stage {place}: {word}: {costs}")
        said.append(f"{place}: {stage['concurrency']:.0f} ({name})")
        words.append(word)
    # The worst stage decides.
    word = next(
        (word for word in ("not met", "not resolved") if word in words), f"not decided: {lacks}" if lacks else "met" if said else "not measured"
    )
    return [Goal(f"tasks at once by {policy} (best), by stage", "; ".join(said) or "–", "within one doubling of the best", word), *misses]


def page(lines: list[dict]) -> str:
    """Returns the whole page."""
    out = [
        "# Self-adaptive executors on emulated spinning disks",
        "",
        "How fast is Spark if the plugin's mode `adaptive` chooses how many tasks run at once, compared with fixed numbers? This repeats figures 2",
        "and 7 of the paper on [self-adaptive executors](../docs/how/adaptive-executors.md). `make bench-adaptive` measures it;",
        "[README.md](README.md#the-spark-plugin-on-spinning-disks) says how. `python -m bench.adaptive.table` generates this page from",
        "`bench/results/adaptive.jsonl`; do not edit it.",
        "",
    ]
    found = newest(lines)
    out += answer(found)
    out += [
        "**Most jobs are not like these.** The mode `adaptive`, which is not the default, slows down jobs that do not wait for disks, some more",
        "than six-fold: [cost of `adaptive` for ordinary jobs](../docs/spark-plugin.md#cost-of-adaptive-for-ordinary-jobs).",
        "",
        *READING,
        "",
    ]
    if not lines:
        return "\n".join([*out, *WHY, "", "Nothing is measured yet.", ""])
    out[-1:] = [*pages.machines(lines), pages.noisy(lines)]
    answers = defaultdict(set)
    for line in lines:
        answers[line["case"]["job"], line["case"]["bytes"]].add(line["answer"])
    different = [job for (job, _), found_answers in answers.items() if len(found_answers) > 1]
    out += [f"- **Results of jobs differ: {', '.join(different)}.**" if different else "- All settings computed the same results.", ""]
    out += [*index_and_best(found), *WHY, ""]
    for group, settings in found.items():
        out += group_page(group, settings)
    absent = [f"{job} on {disk}" for disk, job in GROUPS if (disk, job) not in {group[:2] for group in found}]
    if absent:
        out += ["## Not measured", "", *(f"- {name}" for name in absent), ""]
    return "\n".join(out)


def main() -> int:
    """Writes the page."""
    return pages.write("ADAPTIVE.md", page(results.load(SUITE)))


if __name__ == "__main__":
    sys.exit(main())
