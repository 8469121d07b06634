"""Measures the missing cases of the backtest: `python -m bench.backtest.run`.

A baseline and its targets take turns, for at least five rounds, until each median is certain to 2 %. Void cases are
reported and measured again, up to `--attempts` times. Each finished case is appended to `bench/results/backtest.jsonl`,
with traces in `bench/results/backtest/`, so a stopped run resumes. The command ends by writing the manifest and
`bench/BACKTEST.md`.
"""

import shutil
import statistics
import sys
import time
from pathlib import Path

from bench.backtest import cases, judge, manifest, table
from bench.backtest.cases import RUN_S, Case, Config, Query
from bench.backtest.rig import Rig, rig
from bench.common import results, runner
from bench.common.runner import TimeLimit, carry_out, say, scratch
from harness import binary
from lab.disks import LabError
from lab.memory import kept

SUITE = "backtest"
TRACES = results.FOLDER / SUITE
# The harness's time per run: eviction, canary and analysis.
OVERHEAD_S = 1.0
CALIBRATION_S = 4.0
CALIBRATIONS = 4


def missing(wanted: list[Case], lines: list[dict]) -> list[Case]:
    """Returns the cases without a valid measurement."""
    done = {line["case"]["name"] for line in lines if not line["void"]}
    return [case for case in wanted if case.name not in done]


def expected_s(wanted: list[Case], lines: list[dict]) -> float:
    """Estimates the time for these cases: one calibration and five runs of each configuration."""
    known = {}
    for line in lines:
        for end in ("baseline", "target"):
            if line[f"{end}_ms"]:
                known[line["query"], line["configs"][end]] = statistics.median(line[f"{end}_ms"]) / 1e3
    total = 0.0
    for query, base, several in cases.groups(wanted):
        for config in (base, *(case.target for case in several)):
            run_s = known.get((query.name, config.name), RUN_S)
            total += CALIBRATION_S + judge.REPEATS * (run_s + OVERHEAD_S)
    return total


def measure(hardware: Rig, query: Query, base: Config, several: list[Case], folder: Path) -> list[dict]:
    """Measures one group, and returns the line of each case, void or not."""
    configs = list(dict.fromkeys([base, *(case.target for case in several)]))
    hardware.place(query)
    if base.drive != "throttled":
        hardware.place_on_drives(query, max(config.disks for config in configs))
    calibration, refused = {}, {}
    for config in configs:
        # Retries, since another process's work may pass, while a wrong rate does not.
        for attempt in range(CALIBRATIONS):
            try:
                calibration[config] = hardware.calibrate(config)
                refused.pop(config, None)
                break
            except LabError as error:
                refused[config] = str(error)
                time.sleep(attempt)
    runs: dict[Config, list[dict]] = {config: [] for config in calibration}
    if base in calibration and len(calibration) > 1:
        _rounds(hardware, query, runs, folder)
    found = []
    for case in several:
        void = refused.get(base) or refused.get(case.target)
        for config in (base, case.target):
            void = void or (why := judge.void(runs[config])) and f"{config.name}: {why}"
        found.append(line(case, runs, calibration, void))
    return found


def _rounds(hardware: Rig, query: Query, runs: dict[Config, list[dict]], folder: Path) -> None:
    """Runs all configurations in turns, until each median is certain or the maximum of repeats is reached."""
    base = next(iter(runs))
    # A warm-up loads the binary's pages and touches memory.
    hardware.run(query, base, folder / "first.trace")
    stamp = time.strftime("%Y%m%dT%H%M%S")
    (folder / "first.trace").unlink()
    while wanted := [config for config, of in runs.items() if not judge.ended(of)]:
        for config in wanted:
            trace = folder / f"{query.name}_{config.name}_{stamp}_{len(runs[config])}.trace"
            runs[config].append(hardware.run(query, config, trace) | {"trace": trace.name})


def line(case: Case, runs: dict, calibration: dict, void: str | None) -> dict:
    """Returns the line of a case."""
    ends = {"baseline": case.base, "target": case.target}
    found = {"query": case.query.name, "set": case.settings, "why": case.why, "void": void}
    found["configs"] = {end: config.name for end, config in ends.items()}
    found["calibration"] = {end: calibration.get(config) for end, config in ends.items()}
    for end, config in ends.items():
        of = judge.counted(runs.get(config) or [])
        found[f"{end}_ms"] = [run["ms"] for run in of]
        found[f"{end}_canary"] = min((run["canary"] for run in of), default=None)
        middle = sorted(of, key=lambda run: run["ms"])[(len(of) - 1) // 2] if of else {}
        found[f"{end}_bottleneck"] = middle.get("bottleneck")
        found[f"{end}_ideal_ms"] = middle.get("ideal_ms")
    if of:
        found |= {"target_middle": of.index(middle), "target_trace": middle["trace"]}
    found["baseline_traces"] = [run["trace"] for run in judge.counted(runs.get(case.base) or [])]
    serving = [run["server_cores"] for run in of if run["server_cores"] is not None]
    found["server_cores"] = statistics.median(serving) if serving else None
    return found


def keep(lines: list[dict], mode: str, folder: Path) -> None:
    """Appends the lines, and keeps the traces of valid cases next to the results."""
    TRACES.mkdir(parents=True, exist_ok=True)
    build = results.fingerprint([binary.binary()])
    for line in lines:
        case = {"name": f"{line['query']} {line['configs']['baseline']} to {line['configs']['target']}"}
        emulation = "kernel" if mode == "kernel" else "engine-paced"
        if not line["void"]:
            for name in (*line["baseline_traces"], line["target_trace"]):
                shutil.copy(folder / name, TRACES / name)
        results.append(SUITE, case, {"emulation": emulation, **line}, by=build)
        said = f"void: {line['void']}" if line["void"] else _times(line)
        say(f"{case['name']}: {said}")


def _times(line: dict) -> str:
    before, after = (statistics.median(line[f"{end}_ms"]) for end in ("baseline", "target"))
    return f"{before:.0f} to {after:.0f} ms ({len(line['target_ms'])} repeats)"


def run(wanted: list[Case], todo: list[Case], mode: str, small: bool, limit_s: float, attempts: int, folder: Path) -> None:
    """Measures whole groups, first those of `todo`, until none is missing or the time limit is reached."""
    limit = TimeLimit(limit_s)
    with rig(mode, small) as hardware, kept() as memory:
        say(f"memory: {memory}")
        for _ in range(attempts):
            for query, base, several in cases.groups(todo):
                lines = results.load(SUITE)
                if not limit.admits(expected_s(several, lines)):
                    return
                keep(measure(hardware, query, base, several, folder), mode, folder)
            todo = missing(wanted, results.load(SUITE))


def main() -> int:
    """Runs the command."""
    parser = runner.options("backtest.run", __doc__)
    parser.add_argument("--mode", choices=("kernel", "engine"), default="kernel")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name or purpose contains this")
    parser.add_argument("--again", action="store_true", help="also measure finished cases; the newest line counts")
    parser.add_argument("--small", action="store_true", help="use a tenth of the data, to try it out")
    parser.add_argument("--attempts", type=int, default=3, help="measure a void case up to this many times (default 3)")
    parser.add_argument("--list", action="store_true", help="list the cases and the estimated time, and exit")
    chosen = parser.parse_args()
    wanted = [case for case in cases.full() if chosen.only in f"{case.name} {case.why}"]
    lines = results.load(SUITE)
    todo = wanted if chosen.again else missing(wanted, lines)
    say(f"{len(wanted)} cases, {len(todo)} to measure: about {expected_s(todo, lines) / 60:.0f} minutes")
    if chosen.list:
        for case in wanted:
            print(case.name, case.settings, case.why, "" if case in todo else "measured", sep="\t")
        return 0
    with scratch(SUITE) as folder:
        return carry_out(
            SUITE,
            lambda: run(wanted, todo, chosen.mode, chosen.small, chosen.time_limit, chosen.attempts, folder),
            write_page,
        )


def write_page() -> int:
    """Writes the manifests of the valid cases, and the page."""
    if lines := [line for line in results.load(SUITE) if not line["void"]]:
        manifest.write(lines, TRACES)
    return table.main()


if __name__ == "__main__":
    sys.exit(main())
