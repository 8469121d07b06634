"""Makes the manifest of pairs and `bench/SPARK.md` from lines and logs: `python -m bench.spark.table`. Measures nothing."""

import json
import statistics
import sys

from bench.common import pages, results
from bench.common.pages import row
from bench.spark.cases import CAUSES, ERROR, ROUNDS, Way, cause_of, pairs
from harness import binary
from lab.cores import CANARY

SUITE = "spark"
LOGS = results.FOLDER / SUITE
MANIFEST = LOGS / "manifest.json"
PREDICTIONS = LOGS / "predictions.json"


def newest(lines: list[dict]) -> dict[tuple, dict]:
    """Returns the last valid line of each run."""
    found = {}
    for line in lines:
        case = line["case"]
        if line["canary"] >= CANARY and (LOGS / line["log"]).exists():
            found[case["suite"], case["spark"], case["way"], case["round"]] = line
    return found


def logs_of(way: Way, version: str, lines: dict[tuple, dict]) -> list[str]:
    """Returns the logs of a configuration's rounds."""
    rounds = (lines.get(("pairs", version, way.name, turn)) for turn in range(ROUNDS))
    return [line["log"] for line in rounds if line]


def manifest(lines: dict[tuple, dict]) -> dict:
    """Returns the manifest for `pellucid backtest`: the cases of which both configurations were measured."""
    cases = []
    for version in sorted({version for suite, version, *_ in lines if suite == "pairs"}):
        for case in pairs():
            base, target = logs_of(case.base, version, lines), logs_of(case.target, version, lines)
            if base and target:
                kernel = case.base.rate or case.settings.get("cores")
                cases.append(
                    {
                        "name": f"{case.name}, Spark {version}",
                        "query": case.base.job,
                        "set": case.settings,
                        "baseline": base,
                        "measured": target,
                        "emulation": "kernel" if kernel else "none",
                        "note": f"{len(base)} and {len(target)} of {ROUNDS} rounds",
                    }
                )
    machines = "; ".join(sorted({line["machine"] for line in lines.values()}))
    return {"format": "pellucid.manifest/1", "machine": machines, "cases": cases}


def seconds(ms: float) -> str:
    """Formats a time in seconds, with two decimals."""
    return f"{ms / 1e3:.2f}"


def pairs_table(document: dict, found: dict) -> list[str]:
    """Returns the table that compares predictions with measurements."""
    out = ["## What-ifs from one log to another", ""]
    out += ["`pellucid whatif` predicts the second of two configurations from the log of the first. Times are medians of three rounds. The jobs:"]
    out += ["`disk` reads, `words` reads and computes, `cpu` computes; `even` and `skew` do the same work, evenly distributed and not. `2c` is two"]
    out += ["cores, `50MBs` the rate of the disk.", ""]
    out += [row("case", "what if", "baseline (s)", "predicted (s)", "90 % interval (s)", "measured (s)", "error", "inside")]
    out += [row(*["---"] * 8)]
    inside, errors = [], []
    for case in document["cases"]:
        within = case["low_ms"] <= case["measured_ms"] <= case["high_ms"]
        inside.append(within)
        errors.append(case["error"])
        asked = ", ".join(f"`{key}={value}`" for key, value in case["set"].items())
        interval = f"{seconds(case['low_ms'])} to {seconds(case['high_ms'])}"
        times = seconds(case["baseline_ms"]), seconds(case["predicted_ms"]), interval, seconds(case["measured_ms"])
        out.append(row(case["name"], asked, *times, f"{case['error']:.1%}", "yes" if within else "**no**"))
    short = [case["name"] for case in found["cases"] if min(len(case["baseline"]), len(case["measured"])) < ROUNDS]
    whole = len(errors) >= len(pairs()) and not short
    met = "not met" if not all(inside) or max(errors) > ERROR else "met" if whole else "not decided: rounds are missing"
    out += ["", f"- Goal of predictions (each inside its interval, error at most {ERROR:.0%}): {met}; "]
    out[-1] += f"{sum(inside)} of {len(inside)} inside, median error {statistics.median(errors):.1%}, worst {max(errors):.1%}"
    return [*out, ""]


def first_cause(document: dict, expected: str) -> tuple[str, bool]:
    """Returns the causes that `analyze` names, and whether the known cause is first."""
    causes = document["causes"]
    names = [cause["cause"] for cause in causes]
    if expected == "none":
        return ", ".join(names) or "none", set(names) <= {"cpu"}
    if expected == "disk input":
        others = [cause for cause in causes if cause["cause"] not in ("cpu", "unexplained")]
        reads = [cause for cause in others[:1] if cause["cause"] == expected and cause["at_most"]]
        return ", ".join(names), bool(reads)
    return ", ".join(names), names[:1] == [expected]


def causes_table(lines: dict[tuple, dict]) -> list[str]:
    """Returns the table of jobs with a known cause, and the causes that `analyze` names."""
    out = ["## Jobs with one known cause", ""]
    out += [
        "Each job (`lab/spark_logs.py`) is slow for one cause, and `pellucid analyze` should name it first. Two exceptions: the job without a cause,"
    ]
    out += [
        "`none`, may be said to compute (`cpu`); for `disk`, computing and unexplained time do not count, and an upper bound is enough, since Spark's"
    ]
    out += ["log does not record waits for disks.", ""]
    out += [row("job", "Spark", "time (s)", "known cause", "causes that `analyze` names", "first is right"), row(*["---"] * 6)]
    right, asked = 0, 0
    for (suite, version, way, _), line in sorted(lines.items()):
        if suite != "causes":
            continue
        job = next(job for job in CAUSES if cause_of(job).name == way)
        document = json.loads(binary.run("analyze", "--json", LOGS / line["log"]).check().out)
        named, is_right = first_cause(document, CAUSES[job])
        right, asked = right + is_right, asked + 1
        out.append(row(f"`{job}`", version, seconds(line["ms"]), CAUSES[job], named, "yes" if is_right else "**no**"))
    if not asked:
        return ["*No job with a known cause is measured yet.*", ""]
    met = "met" if right == len(CAUSES) else "not met" if right < asked else "not decided: jobs are missing"
    return [*out, "", f"- Goal of causes (each named first): {met}; {right} of {len(CAUSES)}", ""]


def page(lines: dict[tuple, dict], document: dict | None) -> str:
    """Returns the whole page."""
    out = ["# Predictions and causes from Spark event logs", ""]
    out += [
        "How well does a Spark event log predict the job's time on other hardware, and does `pellucid analyze` find the cause of a slow job in it?"
    ]
    out += [
        "`make bench-spark` measures this as root; [README.md](README.md#spark-event-logs) says how. `python -m bench.spark.table` generates this page"
    ]
    out += ["from the logs in `bench/results/spark/`, without measuring; do not edit it.", ""]
    scored, named = pairs_table(document, manifest(lines)) if document else [], causes_table(lines)
    out += [*(line for line in (*scored, *named) if line.startswith("- Goal")), ""] if scored else []
    out += pages.machines(lines.values())
    disks = sorted({line["disk"] for line in lines.values() if line["disk"]})
    out += [f"- Disk: {label}" for label in sorted({disk.split(" (measured")[0] for disk in disks})]
    noise = max((line["others_cores"] for line in lines.values()), default=0.0)
    out += [f"- Other processes used at most {noise:.2f} cores during a run", ""] if lines else []
    out += scored or ["*No pair is measured yet. Run `make bench-spark` as root on a quiet machine; it takes about 12 minutes.*", ""]
    return "\n".join(out + named)


def main() -> int:
    """Writes the manifest, runs its predictions, and writes the page."""
    lines = newest(results.load(SUITE))
    document = None
    found = manifest(lines)
    if found["cases"]:
        document = pages.backtested(MANIFEST, found)
        PREDICTIONS.write_text(json.dumps(document, indent=1) + "\n")
    return pages.write("SPARK.md", page(lines, document))


if __name__ == "__main__":
    sys.exit(main())
