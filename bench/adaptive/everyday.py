"""Measures the plugin's cost for ordinary jobs: `python -m bench.adaptive.everyday` (Java, ten minutes; no root, no disk).

The jobs use no disk (`shapes.py`), so tuning the number of tasks at once cannot help them. Stock Spark, `measure` and
`adaptive` take turns on one executor with 16 slots. Each application is a line in `bench/results/everyday.jsonl`. Prints
the table of docs/spark-plugin.md: medians of the newest measured jar.

    python -m bench.adaptive.everyday --repeats 3
    python -m bench.adaptive.everyday --table       # only prints the table
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.adaptive.run import JAR, PLUGIN, run_spark, version
from bench.adaptive.shapes import SHAPES
from bench.common import results, runner
from bench.common.runner import TimeLimit, carry_out, say
from harness import spark

SUITE = "everyday"
SETTINGS = ("stock", "measure", "adaptive")


def spark_settings(setting: str, folder: Path) -> dict[str, str]:
    """Returns the settings of an application with its files in `folder`."""
    found = {
        "spark.master": "local-cluster[1,16,1024]",
        "spark.app.name": f"everyday {setting}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}",
    }
    if setting != "stock":
        found |= {"spark.jars": str(JAR), "spark.plugins": PLUGIN, "spark.pellucid.mode": setting}
    return found


def measure(setting: str) -> dict:
    """Runs one application, and returns the times of its jobs and the cores that other processes used just before."""
    with results.quiet() as others:
        time.sleep(2)
    with tempfile.TemporaryDirectory() as name:
        request = {"settings": spark_settings(setting, Path(name))}
        return run_spark(setting, ["-m", "bench.adaptive.shapes"], request, Path(name)) | {"others_cores": others()}


def newest(lines: list[dict]) -> list[dict]:
    """Returns the lines of the newest build with all settings."""
    by_build = {line["build"]: [other for other in lines if other["build"] == line["build"]] for line in reversed(lines)}
    return next((group for group in by_build.values() if {line["case"]["setting"] for line in group} == set(SETTINGS)), [])


def table(lines: list[dict]) -> list[str]:
    """Returns the table of median seconds of one build, with ratios to stock Spark."""
    by_setting = {setting: [line["ms"] for line in lines if line["case"]["setting"] == setting] for setting in SETTINGS}
    out = ["| job | " + " | ".join(SETTINGS) + " |", "|---|" + "---|" * len(SETTINGS)]
    for shape in SHAPES:
        medians = [statistics.median(ms[shape] for ms in by_setting[setting]) for setting in SETTINGS]
        cells = [f"{medians[0] / 1000:.2f} s", *(f"{ms / 1000:.2f} s (×{ms / medians[0]:.2f})" for ms in medians[1:])]
        out.append(f"| {shape} | " + " | ".join(cells) + " |")
    return out


def about(lines: list[dict]) -> str:
    """Describes the jar and machine of the table, and the noise."""
    busy = max(line["others_cores"] for line in lines)
    runs = len(lines) // len(SETTINGS)
    return f"jar {lines[-1]['build']}, {lines[-1]['machine']}, {runs} runs of each; before them others used up to {busy:.1f} cores"


def main() -> int:
    """Runs the command."""
    parser = runner.options("adaptive.everyday", __doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="print the table; measure nothing")
    chosen = parser.parse_args()
    if chosen.table:
        return show()
    if why_not := spark.missing() or (None if JAR.exists() else f"{JAR} does not exist; run make plugin"):
        say(f"{SUITE}: {why_not}")
        return 1
    return carry_out(SUITE, lambda: run(chosen.repeats, chosen.time_limit), show)


def run(repeats: int, limit_s: float) -> None:
    """Measures the missing runs until another might exceed the time limit."""
    done, limit = [line["case"] for line in results.made(SUITE, version())], TimeLimit(limit_s)
    wanted = [{"setting": setting, "repeat": repeat} for repeat in range(repeats) for setting in SETTINGS]
    for case in (case for case in wanted if case not in done):
        if not limit.admits():
            return
        with limit.case():
            found = measure(case["setting"])
        results.append(SUITE, case, found, by=version())
        say(f"{case['setting']} {case['repeat']}: " + ", ".join(f"{ms / 1000:.2f}" for ms in found["ms"].values()))


def show() -> int:
    """Prints the table."""
    lines = newest(results.load(SUITE))
    if not lines:
        say(f"{SUITE}: nothing is measured yet; run without --table")
        return 1
    print("\n".join([*table(lines), "", about(lines)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
