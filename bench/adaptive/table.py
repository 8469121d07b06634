"""`bench/ADAPTIVE.md` from `bench/results/adaptive.jsonl`: `python -m bench.adaptive.table`. Measures nothing."""

import math
import statistics
import sys
from collections import defaultdict

from bench import results
from bench.adaptive.matrix import BESIDE, CHANGE_PLACES, DEFAULT, EMPTY_TASKS, GROUPS, POLICIES, REMEMBERED, SWEEP, settings_of
from bench.goals import Goal, at_most, of_all
from bench.stats import ratio_interval, resolved

SUITE = "adaptive"
PAGE = results.ROOT / "bench" / "ADAPTIVE.md"
# The goals: against the best fixed setting of each stage, and, for the sort on spinning disks, against the default.
OVER_BEST, UNDER_DEFAULT = 1.10, 0.85
SPINNING = (("H150R", "sort"), ("H150", "sort"))
# Queues per disk: stock's time over theirs.
FASTER = 1.15
REPEATS = 5
# Of a stage.
NUMBERS = ("tasks", "ms", "wait_ms", "bytes", "concurrency")
# Enough pairs to say that something costs nothing.
PAIRS = 15
COSTS_NOTHING = 1.02

WHY = [
    "Why a policy misses the best fixed setting: it knows a number of tasks by trying it. A stage of 64 tasks is over after a few",
    "intervals, each judged by four tasks or some more, which differ among themselves; where the least is best, as on H150,",
    "each trial is slower, and chance makes some of them look as if they paid. `remembered` begins with what was found: what it takes",
    "less is what trying costs. Where settings differ by a few percent it chooses among them by chance, at that cost. A doubling that gains",
    "less than 7 % is not to be taken at all: where two of them gain a tenth together, as on H150R, the policies stop before the best.",
    "From the jar dbacb211901f on, `throughput` tries no number that so short a stage leaves no time to judge: of 64 tasks, none above 8,",
    "unless each doubling doubled. Tables by jars before have it end at 16 and more that nobody had judged.",
]


def newest(lines: list[dict]) -> dict[tuple, dict[str, dict[int, dict]]]:
    """By disk, job and size: setting, repeat, its newest line of the newest build."""
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
    """Of a setting's repeats: its time, and each stage with the medians of its numbers."""
    lines = list(runs.values())
    count = min(len(line["stages"]) for line in lines)
    stages = []
    for place in range(count):
        of = [line["stages"][place] for line in lines]
        known = {key: [stage[key] for stage in of if stage[key] is not None] for key in NUMBERS}
        stages.append({key: statistics.median(values) if values else None for key, values in known.items()})
    return statistics.median(line["ms"] for line in lines), stages


def swept(settings: dict) -> dict[str, tuple[float, list[dict]]]:
    """The medians of what stock Spark took, by setting."""
    return {name: medians(runs) for name, runs in settings.items() if name.startswith("stock-")}


def job_of(settings: dict) -> str:
    """What all of these runs ran."""
    return next(line["case"]["job"] for runs in settings.values() for line in runs.values())


def has_choice(stage: dict) -> bool:
    """Whether it has more tasks than run at once in any setting."""
    return stage["tasks"] > SWEEP[0]


def best_fixed(settings: dict) -> tuple[float, list[str]] | None:
    """The sweep's best setting of each stage, and what the job would take with those (the paper's BestFit, §4).

    What is not within a stage is taken from the setting that is best as a whole: where one is best in every stage, the
    job takes what it takes with that one. Of a job whose stages run beside each other one setting is best, as a whole.
    A stage that has nothing to choose, too, takes what it takes with that.
    """
    sweep = swept(settings)
    if len(sweep) < 2:
        return None
    whole = min(sweep, key=lambda name: sweep[name][0])
    ms, stages = sweep[whole]
    if job_of(settings) in BESIDE:
        return ms, [whole.removeprefix("stock-")]
    count = min(len(stages) for _, stages in sweep.values())
    names = [
        min(sweep, key=lambda name: sweep[name][1][place]["ms"]) if has_choice(stages[place]) else whole for place in range(count)
    ]
    gained = sum(stages[place]["ms"] - sweep[name][1][place]["ms"] for place, name in enumerate(names))
    return ms - gained, [name.removeprefix("stock-") for name in names]


def side_by_side(settings: dict) -> dict:
    """The repeats that every setting has: of what was measured at other times a noisy machine makes another comparison."""
    common = set.intersection(*(set(runs) for runs in settings.values()))
    return {name: {repeat: runs[repeat] for repeat in common} for name, runs in settings.items()} if common else settings


def seconds(ms: float | None) -> str:
    """A time in a table."""
    return "–" if ms is None else f"{ms / 1000:.1f}"


def pairs(settings: dict, name: str, other: str = DEFAULT, place: int | None = None) -> list[tuple[float, float]]:
    """Times of a setting and of another, of the same repeat; of the stage at a place, where one is told."""

    def ms(line: dict) -> float:
        return (line if place is None else line["stages"][place])["ms"]

    ours, theirs = settings.get(name, {}), settings.get(other, {})
    return [(ms(ours[r]), ms(theirs[r])) for r in sorted(ours.keys() & theirs.keys())]


def against_default(settings: dict, name: str) -> str:
    """Ratio to the default with its interval, or that it is not resolved."""
    both = pairs(settings, name)
    if not both or name == DEFAULT:
        return "–"
    if len(both) < 2:
        return f"{both[0][0] / both[0][1]:.2f} (one pair)"
    mean, low, high = ratio_interval(both)
    said = f"{mean:.2f} ({low:.2f} to {high:.2f})"
    return said if resolved(low, high) else f"{said}, not resolved"


def group_page(group: tuple, settings: dict) -> list[str]:
    """One disk and job."""
    disk, job, size = group
    lines = [f"## {job} on {disk}, {size / 2**20:.0f} MiB", ""]
    measured = [line for runs in settings.values() for line in runs.values()]
    lines += [f"- {label}" for label in sorted({line["label"] for line in measured})]
    # Never of several: the newest jar's lines alone count.
    lines += [f"- by the jar {measured[0]['build']}", ""]
    order = sorted(settings, key=lambda name: (not name.startswith("stock-"), int(name[6:]) if name.startswith("stock-") else name))
    queues = "monotasks" in settings
    columns = ["setting", "runs", "seconds", "over stock-32 (95 %)", "drive busy, s", "of it positioning, s", "queue depth"]
    columns += ["in gated I/O at most, by disk (ever more than permits by)"] if queues else []
    columns += ["stages, s (tasks at once in the end)"]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name in order:
        ms, stages = medians(settings[name])
        drives = [line["drives"] for line in settings[name].values()]
        counters = ("busy_ns", "positioning_ns", "in_flight_ns")
        busy, positioning, flight = (statistics.median(sum(drive[key] for drive in each) for each in drives) / 1e9 for key in counters)
        shown = ", ".join(seconds(s["ms"]) + (f" ({s['concurrency']:.0f})" if s["concurrency"] else "") for s in stages)
        shown = "they change places" if job in CHANGE_PLACES else shown
        depth = f"{flight / busy:.1f}" if busy else "–"
        cells = [name, len(settings[name]), seconds(ms), against_default(settings, name), f"{busy:.1f}", f"{positioning:.1f}", depth]
        cells += [in_queues(settings[name]) if name == "monotasks" else "–"] if queues else []
        lines.append(f"| {' | '.join(map(str, [*cells, shown]))} |")
    return [*lines, "", *signals(settings, order), *map(str, verdict(group, settings)), ""]


def in_queues(runs: dict[int, dict]) -> str:
    """The most threads that the plugin had in gated I/O at once on each disk in any of these runs, and by how many more than permits."""
    told = [line.get("gated") for line in runs.values()]
    if not all(told):
        return "not measured"
    each = zip(*told, strict=True)
    return ", ".join(f"{max(d['peak'] for d in disk)} ({max(d['over'] for d in disk)})" for disk in each)


def signals(settings: dict, order: list[str]) -> list[str]:
    """ε, µ and ζ of each stage over the sweep (the paper's figure 7): wait, bytes read and written a second, and ε ÷ µ (§5.1).

    µ is of the bytes that the plugin counts in the same stage, since stock Spark leaves out most of what it reads of Parquet.
    """
    sweep = [name for name in order if name.startswith("stock-")]
    plugged = [medians(settings[name])[1] for name in order if name in POLICIES]
    if len(sweep) < 2 or not plugged or job_of(settings) in CHANGE_PLACES:
        return []
    found = {name: medians(settings[name])[1] for name in sweep}
    count = min(len(stages) for stages in (*found.values(), *plugged))
    moved = [statistics.median(stages[place]["bytes"] for stages in plugged) for place in range(count)]
    lines = [
        "ε (wait of all threads, s) / µ (MB/s, by the plugin's count of bytes) / ζ (ms of wait a MB/s):",
        "",
        f"| stage | {' | '.join(name.removeprefix('stock-') for name in sweep)} |",
        f"|---|{'---|' * len(sweep)}",
    ]
    for place in range(count):
        cells = []
        for name in sweep:
            stage = found[name][place]
            mb_s = moved[place] / 1e6 / (stage["ms"] / 1000)
            index = f"{stage['wait_ms'] / mb_s:.0f}" if mb_s else "–"
            cells.append(f"{stage['wait_ms'] / 1000:.1f} / {mb_s:.1f} / {index}")
        lines.append(f"| {place} | {' | '.join(cells)} |")
    return [*lines, ""]


def verdict(group: tuple, settings: dict) -> list[Goal | str]:
    """The goals, where what they need was measured; fewer repeats than they ask for decide nothing."""
    found: list[Goal | str] = []
    fewest = min(len(runs) for runs in settings.values())
    absent = [name for name in settings_of(group[:2]) if name not in settings]
    if absent:
        found.append(f"- Not measured: {', '.join(absent)}.")
    lacks = of_all(fewest, REPEATS, "repeats")
    beside = side_by_side(settings)
    best = best_fixed(beside)
    default = medians(beside[DEFAULT])[0] if DEFAULT in settings else None
    of = "" if beside == settings else f" (of the {len(next(iter(beside.values())))} repeats that every setting has)"
    by_stage = job_of(settings) not in BESIDE
    if best and by_stage:
        found.append(f"- Best fixed setting of each stage: {', '.join(best[1])}; together {seconds(best[0])} s{of}.")
    elif best:
        found.append(f"- Stages run beside each other, so that they have no best of their own. Best fixed setting of the job: {best[1][0]}, {seconds(best[0])} s{of}.")
    for policy in (*POLICIES, REMEMBERED):
        if policy not in settings:
            continue
        ms, stages = medians(beside[policy])
        if best:
            found.append(at_most(f"{policy} over the best fixed setting", ms / best[0], OVER_BEST, lacks=lacks))
            found += [chosen(policy, stages, best[1], beside, lacks)] if by_stage else []
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
        gain = default / medians(beside["monotasks"])[0]
        word = f"not decided: {lacks}" if lacks else "met" if gain >= FASTER else "not met"
        found.append(Goal(f"throughput of monotasks over that of {DEFAULT}", f"{gain:.2f}", f"at least {FASTER}", word))
    return found


def a_task(settings: dict, name: str) -> str:
    """What each task takes longer than on stock Spark, with its interval."""
    both = pairs(settings, name)
    if len(both) < 2:
        return f"- {name}: what it costs a task takes two pairs at least."
    each_us = statistics.median(theirs for _, theirs in both) * 1000 / EMPTY_TASKS
    mean, low, high = ((ratio - 1) * each_us for ratio in ratio_interval(both))
    return f"- {name}: {mean:.0f} µs a task more (95 %: {low:.0f} to {high:.0f}) than {each_us:.0f} µs on stock Spark; {EMPTY_TASKS} tasks that do nothing."


def alike(settings: dict, place: int, best: str) -> list[str]:
    """Settings of the sweep whose time for a stage is not told from the best one's (95 %, runs of the same repeat)."""
    others = {str(n): pairs(settings, f"stock-{n}", f"stock-{best}", place) for n in SWEEP if str(n) != best}
    return [name for name, both in others.items() if len(both) > 1 and ratio_interval(both)[1] <= 1]


def near(chosen: float, name: str) -> bool:
    """Within one doubling."""
    return 0.5 <= chosen / int(name) <= 2


def chosen(policy: str, stages: list[dict], best: list[str], settings: dict, lacks: str) -> Goal:
    """Whether a policy came within one doubling of each stage's best fixed setting; where not, what that costs in the sweep.

    Not resolved: it did not, but of a setting that the sweep does not tell from the best.
    """
    said, words = [], []
    for place, (stage, name) in enumerate(zip(stages, best, strict=False)):
        if stage["concurrency"] is None or not has_choice(stage):
            continue
        costs, word = "", "met"
        if not near(stage["concurrency"], name):
            like = min((n for n in SWEEP if f"stock-{n}" in settings), key=lambda n: abs(math.log(n / stage["concurrency"])))
            theirs, ours = (medians(settings[f"stock-{n}"])[1][place]["ms"] for n in (name, like))
            costs, word = f"{like} of the sweep takes {ours / theirs:.2f} of {name}'s time", "not met"
            others = [other for other in alike(settings, place, name) if near(stage["concurrency"], other)]
            if others:
                costs, word = f"{costs}, but {' and '.join(others)} cannot be told from {name}", "not resolved"
            costs = f" ({word}: {costs})"
        said.append(f"{place}: {stage['concurrency']:.0f} beside {name}{costs}")
        words.append(word)
    # The worst of them.
    word = next((word for word in ("not met", "not resolved") if word in words), f"not decided: {lacks}" if lacks else "met" if said else "not measured")
    return Goal(f"tasks at once by {policy}, by stage", "; ".join(said) or "–", "within one doubling of the best", word)


def page(lines: list[dict]) -> str:
    """The whole page."""
    out = [
        "# Self-adaptive executors on emulated spinning disks",
        "",
        "Made by `python -m bench.adaptive.run` from `bench/results/adaptive.jsonl`; never by hand. One executor with 32 slots",
        "(`local-cluster[1,32,…]`), input, shuffle files and output on one emulated disk (`lab/README.md`). `stock-N`: stock Spark with",
        "N slots; `throughput` and `index`: the plugin's policies with 32, each run from the start; `remembered`: the default policy with what",
        "its run before found, as a job that comes back has it (`spark.pellucid.memory`). Settings take turns. When a stage begins the page",
        "cache forgets the disk's files, as if they were more than the memory. `H150x2`: input on one disk, output on another, shuffle files",
        "on both; `monotasks`: queues per disk, with as many cores as there are. No core sleeps meanwhile (`run.py`, `awake`). Each table is",
        "of one build of the plugin's jar, the newest that measured it; what is compared is within a table. Numbers are medians of the runs;",
        "\"over stock-32\" in a table is the geometric mean of pairs of the same repeat, below it the ratio of medians. The best fixed setting",
        "of each stage, together: what the job takes with the setting that is best as a whole, but each stage with its own best. Tasks at",
        "once that are not within one doubling of the best, but of a setting that five repeats do not tell from it (95 %): not resolved. In a",
        "stage of one or two tasks there is nothing to choose.",
        "",
        "Not here: ordinary jobs, which `throughput` and `index` (the plugin's mode `adaptive`, not its default) slow, some more than six-fold:",
        "[docs/spark-plugin.md](../docs/spark-plugin.md#what-adaptive-costs-ordinary-jobs).",
        "",
        *WHY,
        "",
    ]
    if not lines:
        return "\n".join([*out, "Nothing is measured yet.", ""])
    machines = sorted({line["machine"] for line in lines})
    noisy = sum(line["others_cores"] > results.NOISE_CORES for line in lines)
    out += [f"- Machine: {machine}" for machine in machines]
    out += [f"- In {noisy} of {len(lines)} runs other processes used more than {results.NOISE_CORES} cores.", ""]
    answers = defaultdict(set)
    for line in lines:
        answers[line["case"]["job"], line["case"]["bytes"]].add(line["answer"])
    different = [job for (job, _), found in answers.items() if len(found) > 1]
    out += [f"**Answers differ: {', '.join(different)}.**" if different else "Every setting gave the same answer.", ""]
    found = newest(lines)
    for group, settings in found.items():
        out += group_page(group, settings)
    absent = [f"{job} on {disk}" for disk, job in GROUPS if (disk, job) not in {group[:2] for group in found}]
    if absent:
        out += ["## Not measured", "", *(f"- {name}" for name in absent), ""]
    return "\n".join(out)


def main() -> int:
    """Writes the page."""
    PAGE.write_text(page(results.load(SUITE)))
    print(f"wrote {PAGE.relative_to(results.ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
