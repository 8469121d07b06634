"""Measures the missing runs of the storage matrix: `python -m bench.storage.run`, or `make bench-storage`.

Every composition runs all the time. Rounds go through workloads, compositions and engines, so compared runs take turns.
The page cache is emptied before each run, and a run ends when its output is on the disk. Each finished run is appended to
`bench/results/storage.jsonl`, so a stopped run resumes. Its traces, or its part of Spark's log, go to
`bench/results/storage`, where those of the median of five runs stay. The command ends by writing `bench/STORAGE.md`.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import zstandard

from bench.common import results, runner
from bench.common.runner import TimeLimit, say, scratch
from bench.storage import data, measured, table, workloads
from bench.storage.rig import ALL, Place, Rig, percentiles, rig
from bench.storage.spark import MAGIC, RENAME, Session, keep, log_of, session
from bench.storage.spark import task_times as spark_task_times
from bench.storage.workloads import NO_WRITES_BY_SPARK, TPCDS, WORKLOADS, Workload
from harness import binary
from harness.event_logs import lines_of
from harness.stores import services
from lab.disks import LabError
from lab.memory import kept

SUITE = "storage"
REPEATS = 5
# Writes by each of the sessions with and without renames, by their size over the matrix's. Small outputs save less, so
# measuring their saving takes more writes.
COMMITS = {1: 12, 4: 4}
COMMITTERS = {"rename": RENAME, "magic": MAGIC}
CALIBRATIONS = 4
# The maximum number of failed sessions.
SESSIONS = 3
PROBE = ("--seconds", "30", "--bytes", "640MiB")
# For stored data that is not in memory.
PROBE_THERE = ("--seconds", "20", "--bytes", "512MiB")


def runs(workload: str, place: str, engine: str) -> bool:
    """Returns whether a composition can run a workload by an engine."""
    return not (engine == "Spark" and workload == "DFSIO" and place in NO_WRITES_BY_SPARK)


def missing(engines: tuple[str, ...], places: list[str]) -> list[tuple[int, str, str, str]]:
    """Returns the round, workload, composition and engine of every run that this build lacks."""
    have = {tuple(line["case"].values()) for line in results.made(SUITE, results.build()) if line.get("s")}
    wanted = [(r, w.name, p, e) for r in range(REPEATS) for w in WORKLOADS for p in places for e in engines]
    return [case for case in wanted if case not in have and runs(*case[1:])]


def watched(hardware: Rig, place: Place, commands: list[list[str]], cores: set[int] | None = None) -> dict:
    """Runs commands in sequence until their output is on the disk, on `cores` if given; returns the time and the layers' use."""
    within = {"preexec_fn": lambda: os.sched_setaffinity(0, cores)} if cores else {}
    pids: list[int] = []
    begun = time.monotonic()
    with hardware.watched(place, pids) as use:
        for command in commands:
            process = binary.start(*command, env=os.environ | place.environment, **within)
            pids.append(process.pid)
            try:
                out, err = process.communicate(timeout=binary.TIMEOUT_S)
            finally:
                # Only an interrupt or a timeout leaves the process running.
                process.kill()
            if process.returncode:
                return {"error": (err or out).strip().splitlines()[0][:300]}
        hardware.flush(place)
        took = time.monotonic() - begun
    return {"s": round(took, 3), "use": use}


def keep_trace(trace: Path, target: Path, disk: Path) -> None:
    """Copies a trace, with the emulated disk's mount point replaced by `/disk`."""
    text = b"".join(lines_of(trace))
    target.write_bytes(zstandard.compress(text.replace(str(disk).encode(), b"/disk")))


def pellucid(hardware: Rig, place: Place, workload: Workload, number: int, folder: Path) -> dict:
    """Measures a run of a workload, and keeps its traces if the workload depends on storage.

    A trace covers only the last of several statements, so each query of TPC-DS has its own command and trace.
    """
    traces = [folder / f"{n}.trace" for n in range(len(TPCDS) if workload.name == "TPC-DS" else 1)]
    found = watched(hardware, place, [workloads.command(workload, place, str(trace), number=n) for n, trace in enumerate(traces)])
    if "error" in found:
        return found
    tasks = [seconds for trace in traces for seconds in trace_task_times(trace)]
    found |= {"task_s": spread(tasks), "bottleneck": bottleneck(traces)}
    if not workload.way:
        return found
    of_run = measured.stem(workload.name, place.name, number)
    names = [f"{of_run}{f'-{n}' if len(traces) > 1 else ''}.trace" for n in range(1, len(traces) + 1)]
    for trace, name in zip(traces, names, strict=True):
        keep_trace(trace, measured.TRACES / name, hardware.folder)
    return found | {"files": names}


def keep_medians() -> None:
    """Deletes kept traces and logs, except those of each composition's median run once all repeats exist."""
    stay = measured.files_to_keep(measured.lines(), REPEATS)
    for path in measured.TRACES.glob("*-r[0-9]*"):
        if path.name not in stay:
            path.unlink()


def findings(path: Path, options: list[str | Path]) -> list[dict]:
    """Returns the doctor's findings in a trace or event log."""
    return json.loads(binary.run("storage", "doctor", path, *options, "--json").check().out)["findings"]


def analysis(path: Path) -> dict:
    """Returns the document of `pellucid analyze`."""
    return json.loads(binary.run("analyze", "--json", path).check().out)


def bottleneck(traces: list[Path]) -> str | None:
    """Returns the bottleneck of the longest job; the trace of an iterative job has none."""
    jobs = [job for trace in traces for job in analysis(trace)["jobs"]]
    longest = max(jobs, key=lambda job: job["duration_ms"] or 0, default=None)
    return longest and (longest["bottleneck"] or {}).get("kind")


def spread(seconds: list[float]) -> list[float]:
    """Returns percentiles, or nothing without values."""
    return percentiles(seconds) if seconds else []


def exported(path: Path, **columns: list[str]) -> dict[str, list[dict]]:
    """Returns columns of a trace's records, by kind; no records if the export fails."""
    out = path.with_suffix(".parquet-export")
    shutil.rmtree(out, ignore_errors=True)
    if binary.run("export", path, "--to", "parquet", "-o", out).code:
        return {kind: [] for kind in columns}
    import pyarrow.parquet as pq

    rows = {kind: pq.read_table(out / f"{kind}.parquet", columns=wanted).to_pylist() for kind, wanted in columns.items()}
    shutil.rmtree(out, ignore_errors=True)
    return rows


def trace_task_times(path: Path) -> list[float]:
    """Returns the seconds of each multitask (its monotasks' service times), or of an iterative job's sampled tasks."""
    rows = exported(path, monotasks=["multitask", "service_ns"], sampled_tasks=["service_ns", "weight"])
    total: dict[int, int] = {}
    for row in rows["monotasks"]:
        total[row["multitask"]] = total.get(row["multitask"], 0) + row["service_ns"]
    # A sample that represents several tasks is repeated.
    sampled = [row for row in rows["sampled_tasks"] for _ in range(round(row["weight"]))]
    return [ns / 1e9 for ns in total.values()] + [row["service_ns"] / 1e9 for row in sampled]


class Spark:
    """The Spark session of the matrix, started on first use and restarted after it has died."""

    def __init__(self, hardware: Rig, folder: Path):
        self.hardware, self.folder = hardware, folder
        self.stack = contextlib.ExitStack()
        self.running: Session | None = None
        self.failures = 0
        # Cases of the running session, with their start and end.
        self.asked: list[tuple[dict, tuple[float, float]]] = []

    def __enter__(self) -> "Spark":
        return self

    def __exit__(self, *raised) -> None:
        self.stack.__exit__(*raised)
        if self.running and not raised[0]:
            self._note_tasks(self.running)

    def pids(self) -> list[int]:
        """Returns the processes of the program and its JVM."""
        return self.running.pids()[:2] if self.running else []

    def begin(self) -> bool:
        """Starts the session, and runs every workload once to warm up the JVM."""
        if self.running or self.failures >= SESSIONS:
            return self.running is not None
        try:
            self.asked.clear()
            self.running = self.stack.enter_context(session("matrix", self.hardware.places, RENAME, self.folder))
            for workload in WORKLOADS:
                answer = self.running.ask(workloads.spark_request(workload, self.hardware.places[0]))
                if "error" in answer:
                    say(f"Spark, {workload.name}: {answer['error']}")
        except services.Missing as why:
            self._gave_up(why)
        return self.running is not None

    def _gave_up(self, why: Exception) -> None:
        say(f"Spark: {why}")
        self.failures += 1
        self.running = None
        self.stack.close()

    def run(self, case: dict, place: Place, workload: Workload) -> dict:
        """Measures one action in the session, until its output is on the disk."""
        begun, at = time.monotonic(), time.time()
        try:
            with self.hardware.watched(place, self.running.pids()) as use:
                answer = self.running.ask(workloads.spark_request(workload, place))
                self.hardware.flush(place)
                took = time.monotonic() - begun
        except services.Missing as why:
            self._gave_up(why)
            return {"error": str(why)}
        self.asked.append((case, (at, time.time())))
        return answer if "error" in answer else {"s": round(took, 3), "use": use}

    def _note_tasks(self, ended: Session) -> None:
        """Appends the task times from the session's log after its end, and keeps each run's part of the log."""
        log, bears = log_of(ended.events), {workload.name for workload in WORKLOADS if workload.way}
        spans = [span for _, span in self.asked]
        names = [f"{measured.stem(case['workload'], case['composition'], case['round'])}-spark.zstd" for case, _ in self.asked]
        files = [[name] if case["workload"] in bears else [] for (case, _), name in zip(self.asked, names, strict=True)]
        keep(log, {measured.TRACES / name: span for some, span in zip(files, spans, strict=True) for name in some}, self.hardware.folder)
        for (case, _), some, seconds in zip(self.asked, files, spark_task_times(log, spans), strict=True):
            results.append(SUITE, {"tasks": case}, {"task_s": spread(seconds), "files": some})


def measure(hardware: Rig, spark: Spark, wanted: list, limit: TimeLimit, folder: Path) -> None:
    """Measures the wanted runs, in rounds, until the time limit."""
    places = {place.name: place for place in hardware.places}
    by_name = {workload.name: workload for workload in WORKLOADS}
    for number, workload, name, engine in wanted:
        if not limit.admits(0.0):
            return
        case = {"round": number, "workload": workload, "composition": name, "engine": engine}
        if engine == "Spark" and not spark.begin():
            continue
        hardware.forget()
        with results.quiet([*places[name].pids, *spark.pids()]) as others:
            if engine == "Spark":
                found = spark.run(case, places[name], by_name[workload])
            else:
                found = pellucid(hardware, places[name], by_name[workload], number, folder)
        results.append(SUITE, case, found | {"hardware": hardware.said, "others_cores": others()})
        say(f"{', '.join(map(str, case.values()))}: {found.get('s') or found.get('error')}")


def probed(hardware: Rig, place: Place, limits: tuple[str, ...], there: bool = True) -> dict:
    """Probes an otherwise idle store, which reads stored data if `there`, else its own writes; returns a report or an error."""
    hardware.forget()
    read = ["--read", f"{place.url}/large"] if there else []
    ran = binary.run("storage", "probe", place.url, *read, *limits, "--json", env=os.environ | place.environment)
    return {"error": ran.err.strip()[:300]} if ran.code else {"report": json.loads(ran.out)}


def probes(hardware: Rig) -> None:
    """Probes each composition in both ways."""
    for place in hardware.places:
        for kind, limits in (("probe", PROBE), ("probed", PROBE_THERE)):
            if results.done(SUITE, {kind: place.name}):
                continue
            found = probed(hardware, place, limits, kind == "probed")
            if "report" in found:
                results.append(SUITE, {kind: place.name}, found)
            say(f"{kind}, {place.name}: {found.get('error', 'done')}")


def commits(hardware: Rig, place: Place, times_as_large: int, folder: Path) -> None:
    """Measures writes with and without renames, in turns, after a probe over the same interface; adds the doctor's findings."""
    case = {"commits": place.name, "times": times_as_large}
    if results.done(SUITE, case):
        return
    found = probed(hardware, place.as_s3(), PROBE, there=False)
    if "error" in found:
        return say(f"{place.name}, with and without renames: {found['error']}")
    write = workloads.spark_request(next(w for w in WORKLOADS if w.name == "DFSIO"), place)
    write["records"] *= times_as_large
    found |= {f"{name}_s": [] for name in COMMITTERS}
    with contextlib.ExitStack() as stack:
        sessions = {name: stack.enter_context(session(f"{place.name}-{name}", [place], committer, folder)) for name, committer in COMMITTERS.items()}
        for _ in range(COMMITS[times_as_large]):
            for name, running in sessions.items():
                hardware.forget()
                answer = running.ask(write)
                if "error" in answer:
                    return say(f"{place.name}, {name}: {answer['error']}")
                found[f"{name}_s"].append(round(answer["s"], 3))
    logs = {name: log_of(running.events) for name, running in sessions.items()}
    probe = folder / "probe.json"
    probe.write_text(json.dumps(found["report"]))
    for name, log in logs.items():
        kept = measured.TRACES / measured.log_name(place.name, times_as_large, name)
        keep(log, {kept: (0.0, math.inf)})
        found[f"{name}_findings"] = findings(kept, ["--probe", probe])
        (times,) = spark_task_times(log, [(0.0, math.inf)])
        found[f"{name}_task_s"] = spread(times)
    results.append(SUITE, case, found)
    say(f"{place.name}: rename {sum(found['rename_s']):.1f} s, magic {sum(found['magic_s']):.1f} s")


def calibrated(hardware: Rig) -> str:
    """Calibrates and describes disk and link, or says that the machine is too busy to calibrate."""
    why = ""
    for attempt in range(CALIBRATIONS):
        try:
            return hardware.slow()
        except LabError as error:
            why = str(error)
            time.sleep(attempt)
    return f"limits are set, but not calibrated on a busy machine ({why})"


def put(place: Place) -> None:
    """Writes the input of the workloads and of the probe."""
    data.put(place)
    data.put_copies(place)


def ready(hardware: Rig, put: Callable[[Place], None] = data.put) -> None:
    """Reports the compositions that cannot run here, writes data to the others, and calibrates the limits."""
    for name, why in hardware.missing.items():
        say(f"{name} cannot run here: {why}")
    for place in hardware.places:
        put(place)
    hardware.said = calibrated(hardware)
    say(hardware.said)


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Measures everything that is missing, until the time limit: one round, the commits, the other rounds."""
    limit = TimeLimit(chosen.time_limit)
    measured.TRACES.mkdir(parents=True, exist_ok=True)
    with rig(set(chosen.only)) as hardware, kept() as results.memory, Spark(hardware, folder) as spark:
        ready(hardware, put)
        if not chosen.no_probes:
            probes(hardware)
        wanted = [] if chosen.no_matrix else missing(tuple(chosen.engines), [place.name for place in hardware.places])
        measure(hardware, spark, [case for case in wanted if case[0] == 0], limit, folder)
        for place in hardware.places:
            has_writes = place.spark_url.startswith("s3a://") and place.name not in NO_WRITES_BY_SPARK
            for times_as_large in COMMITS if has_writes and "Spark" in chosen.engines and not chosen.no_commits else ():
                try:
                    if limit.admits(0.0):
                        commits(hardware, place, times_as_large, folder)
                except services.Missing as why:
                    say(f"{place.name}, with and without renames: {why}")
        measure(hardware, spark, [case for case in wanted if case[0] > 0], limit, folder)
    keep_medians()


def carry_out(run: Callable[[argparse.Namespace, Path], None], chosen: argparse.Namespace) -> int:
    """Calls `run` with a temporary folder, then makes the page."""
    by = results.fingerprint([binary.binary()])
    results.build = lambda: by
    with scratch(SUITE) as folder:
        return runner.carry_out(SUITE, lambda: run(chosen, folder), table.main)


def main() -> int:
    """Runs the command."""
    parser = runner.options("storage.run", __doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="COMPOSITION", help=f"compositions, of {', '.join(ALL)} (default all)")
    parser.add_argument("--engines", nargs="*", default=measured.ENGINES, choices=measured.ENGINES)
    parser.add_argument("--no-matrix", action="store_true", help="skip the four workloads")
    parser.add_argument("--no-probes", action="store_true", help="skip the probes")
    parser.add_argument("--no-commits", action="store_true", help="skip the writes with and without renames")
    parser.add_argument("--list", action="store_true", help="list the missing runs and exit")
    chosen = parser.parse_args()
    by = results.fingerprint([binary.binary()])
    results.build = lambda: by
    if chosen.list:
        for case in missing(tuple(chosen.engines), chosen.only or list(ALL)):
            print(*case, sep="\t")
        return 0
    return carry_out(run, chosen)


if __name__ == "__main__":
    sys.exit(main())
