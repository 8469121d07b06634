"""Measures what is missing of the storage matrix: `python -m bench.storage.run`, or `make bench-storage`.

Every composition runs all the time; rounds go through workloads, compositions and engines, so that those that are
compared take turns. Before each run what is on the disk leaves the page cache; a run ends when what it wrote is on
the disk. Each run that has ended is appended to `bench/results/storage.jsonl`, so that what was stopped (or reached
`--time-limit`) goes on where it was; its traces, or its part of Spark's log, lie in `bench/results/storage`, and of five
runs those of the one that took the median time stay. Then `bench/STORAGE.md` is made anew.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import zstandard

from bench import results
from bench.event_logs import lines_of
from bench.storage import data, table, workloads
from bench.storage.rig import ALL, Place, Rig, percentiles, rig
from bench.storage.spark import MAGIC, RENAME, Session, keep, log_of, session
from bench.storage.spark import task_times as spark_task_times
from bench.storage.workloads import NO_WRITES_BY_SPARK, TPCDS, WORKLOADS, Workload
from lab.disks import LabError
from lab.memory import kept
from tests import binary, services

SUITE = "storage"
REPEATS = 5
# Writes of the session whose output is committed by rename, and of the one that does without, in turns, by how many times as
# large as the matrix's each is: of small output less is saved, so that it takes more of them to say how much.
COMMITS = {1: 12, 4: 4}
COMMITTERS = {"rename": RENAME, "magic": MAGIC}
CALIBRATIONS = 4
# So often a session that died is begun anew.
SESSIONS = 3
PROBE = ("--seconds", "30", "--bytes", "640MiB")
# Of what is there, in no memory.
PROBE_THERE = ("--seconds", "20", "--bytes", "512MiB")


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def runs(workload: str, place: str, engine: str) -> bool:
    """Whether a composition can host it at all."""
    return not (engine == "Spark" and workload == "DFSIO" and place in NO_WRITES_BY_SPARK)


def missing(engines: tuple[str, ...], places: list[str]) -> list[tuple[int, str, str, str]]:
    """Round, workload, composition and engine of every run that this build lacks."""
    have = {tuple(line["case"].values()) for line in results.made(SUITE, results.build()) if line.get("s")}
    wanted = [(r, w.name, p, e) for r in range(REPEATS) for w in WORKLOADS for p in places for e in engines]
    return [case for case in wanted if case not in have and runs(*case[1:])]


def watched(hardware: Rig, place: Place, commands: list[list[str]], cores: set[int] | None = None) -> dict:
    """Commands one after another, start to exit and to the disk, with what the layers used; on these cores, where some are named."""
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
                # Where the bench is told to stop, or waited long enough.
                process.kill()
            if process.returncode:
                return {"error": (err or out).strip().splitlines()[0][:300]}
        hardware.flush(place)
        took = time.monotonic() - begun
    return {"s": round(took, 3), "use": use}


def keep_trace(trace: Path, target: Path, disk: Path) -> None:
    """A copy of a trace that names the emulated disk by what it is, not by where it was mounted."""
    text = b"".join(lines_of(trace))
    target.write_bytes(zstandard.compress(text.replace(str(disk).encode(), b"/disk")))


def pellucid(hardware: Rig, place: Place, workload: Workload, number: int, folder: Path) -> dict:
    """One run of a workload, with what its traces say of it; where storage bears on it they are kept, under the run's number.

    Of several statements a trace is of the last, so each query of TPC-DS has a command and a trace of its own.
    """
    traces = [folder / f"{n}.trace" for n in range(len(TPCDS) if workload.name == "TPC-DS" else 1)]
    found = watched(hardware, place, [workloads.command(workload, place, str(trace), number=n) for n, trace in enumerate(traces)])
    if "error" in found:
        return found
    tasks = [seconds for trace in traces for seconds in trace_task_times(trace)]
    found |= {"task_s": spread(tasks), "bottleneck": bottleneck(traces)}
    if not workload.way:
        return found
    of_run = table.stem(workload.name, place.name, number)
    names = [f"{of_run}{f'-{n}' if len(traces) > 1 else ''}.trace" for n in range(1, len(traces) + 1)]
    for trace, name in zip(traces, names, strict=True):
        keep_trace(trace, table.TRACES / name, hardware.folder)
    return found | {"files": names}


def keep_medians() -> None:
    """Of the runs whose traces or logs were kept, those of each composition's median stay, once there are all."""
    stay = table.files_to_keep(table.lines(), REPEATS)
    for path in table.TRACES.glob("*-r[0-9]*"):
        if path.name not in stay:
            path.unlink()


def findings(path: Path, options: list[str | Path]) -> list[dict]:
    """What the doctor finds in a trace or an event log."""
    return json.loads(binary.run("storage", "doctor", path, *options, "--json").check().out)["findings"]


def analysis(path: Path) -> dict:
    """What `pellucid analyze` says."""
    return json.loads(binary.run("analyze", "--json", path).check().out)


def bottleneck(traces: list[Path]) -> str | None:
    """Of the job that took longest; an iterative job's trace has none."""
    jobs = [job for trace in traces for job in analysis(trace)["jobs"]]
    longest = max(jobs, key=lambda job: job["duration_ms"] or 0, default=None)
    return longest and (longest["bottleneck"] or {}).get("kind")


def spread(seconds: list[float]) -> list[float]:
    """Percentiles of what there is."""
    return percentiles(seconds) if seconds else []


def exported(path: Path, **columns: list[str]) -> dict[str, list[dict]]:
    """Columns of a trace's records, by their kind; no records where it cannot be exported."""
    out = path.with_suffix(".parquet-export")
    shutil.rmtree(out, ignore_errors=True)
    if binary.run("export", path, "--to", "parquet", "-o", out).code:
        return {kind: [] for kind in columns}
    import pyarrow.parquet as pq

    rows = {kind: pq.read_table(out / f"{kind}.parquet", columns=wanted).to_pylist() for kind, wanted in columns.items()}
    shutil.rmtree(out, ignore_errors=True)
    return rows


def trace_task_times(path: Path) -> list[float]:
    """Seconds that each multitask took, its monotasks' services; of a job that iterates, that the sampled tasks took."""
    rows = exported(path, monotasks=["multitask", "service_ns"], sampled_tasks=["service_ns", "weight"])
    total: dict[int, int] = {}
    for row in rows["monotasks"]:
        total[row["multitask"]] = total.get(row["multitask"], 0) + row["service_ns"]
    # One that stands for several is there as often.
    sampled = [row for row in rows["sampled_tasks"] for _ in range(round(row["weight"]))]
    return [ns / 1e9 for ns in total.values()] + [row["service_ns"] / 1e9 for row in sampled]


class Spark:
    """The session of the matrix: begun when it is first asked, and anew when it has died."""

    def __init__(self, hardware: Rig, folder: Path):
        self.hardware, self.folder = hardware, folder
        self.stack = contextlib.ExitStack()
        self.running: Session | None = None
        self.failures = 0
        # Cases of the session that runs, with when they began and ended.
        self.asked: list[tuple[dict, tuple[float, float]]] = []

    def __enter__(self) -> "Spark":
        return self

    def __exit__(self, *raised) -> None:
        self.stack.__exit__(*raised)
        if self.running and not raised[0]:
            self._note_tasks(self.running)

    def pids(self) -> list[int]:
        """The program and its JVM."""
        return self.running.pids()[:2] if self.running else []

    def begin(self) -> bool:
        """Starts the session, and runs every workload once, so that the JVM has compiled what it needs."""
        if self.running or self.failures >= SESSIONS:
            return self.running is not None
        try:
            self.asked.clear()
            self.running = self.stack.enter_context(session("matrix", self.hardware.places, RENAME, self.folder))
            for workload in WORKLOADS:
                answer = self.running.ask(workloads.asked(workload, self.hardware.places[0]))
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
        """One action in the session, and to the disk."""
        begun, at = time.monotonic(), time.time()
        try:
            with self.hardware.watched(place, self.running.pids()) as use:
                answer = self.running.ask(workloads.asked(workload, place))
                self.hardware.flush(place)
                took = time.monotonic() - begun
        except services.Missing as why:
            self._gave_up(why)
            return {"error": str(why)}
        self.asked.append((case, (at, time.time())))
        return answer if "error" in answer else {"s": round(took, 3), "use": use}

    def _note_tasks(self, ended: Session) -> None:
        """How long tasks took stands in the session's log, once it has ended; each run's part of it is kept."""
        log, bears = log_of(ended.events), {workload.name for workload in WORKLOADS if workload.way}
        spans = [span for _, span in self.asked]
        names = [f"{table.stem(case['workload'], case['composition'], case['round'])}-spark.zstd" for case, _ in self.asked]
        files = [[name] if case["workload"] in bears else [] for (case, _), name in zip(self.asked, names, strict=True)]
        keep(log, {table.TRACES / name: span for some, span in zip(files, spans, strict=True) for name in some}, self.hardware.folder)
        for (case, _), some, seconds in zip(self.asked, files, spark_task_times(log, spans), strict=True):
            results.append(SUITE, {"tasks": case}, {"task_s": spread(seconds), "files": some})


def measure(hardware: Rig, spark: Spark, wanted: list, until: float, folder: Path) -> None:
    """Runs what is wanted, in rounds, until time is up."""
    places = {place.name: place for place in hardware.places}
    by_name = {workload.name: workload for workload in WORKLOADS}
    for number, workload, name, engine in wanted:
        if time.monotonic() > until:
            say("time is up; the same command goes on from here")
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
    """The store as a client meets it alone, that reads what is there, or else what it has just written: a report, or an error."""
    hardware.forget()
    read = ["--read", f"{place.url}/large"] if there else []
    ran = binary.run("storage", "probe", place.url, *read, *limits, "--json", env=os.environ | place.environment)
    return {"error": ran.err.strip()[:300]} if ran.code else {"report": json.loads(ran.out)}


def probes(hardware: Rig) -> None:
    """Each composition, probed both ways; the writing is the store written alone."""
    for place in hardware.places:
        for kind, limits in (("probe", PROBE), ("probed", PROBE_THERE)):
            if results.done(SUITE, {kind: place.name}):
                continue
            found = probed(hardware, place, limits, kind == "probed")
            if "report" in found:
                results.append(SUITE, {kind: place.name}, found)
            say(f"{kind}, {place.name}: {found.get('error', 'done')}")


def commits(hardware: Rig, place: Place, times_as_large: int, folder: Path) -> None:
    """The same writes with and without renames, in turns, after a probe over the same interface; and what the doctor made of each log."""
    case = {"commits": place.name, "times": times_as_large}
    if results.done(SUITE, case):
        return
    found = probed(hardware, place.as_s3(), PROBE, there=False)
    if "error" in found:
        return say(f"{place.name}, with and without renames: {found['error']}")
    write = workloads.asked(next(w for w in WORKLOADS if w.name == "DFSIO"), place)
    write["records"] *= times_as_large
    found |= {f"{name}_s": [] for name in COMMITTERS}
    with contextlib.ExitStack() as stack:
        sessions = {
            name: stack.enter_context(session(f"{place.name}-{name}", [place], committer, folder)) for name, committer in COMMITTERS.items()
        }
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
        kept = table.TRACES / table.log_name(place.name, times_as_large, name)
        keep(log, {kept: (0.0, math.inf)})
        found[f"{name}_findings"] = findings(kept, ["--probe", probe])
        (times,) = spark_task_times(log, [(0.0, math.inf)])
        found[f"{name}_task_s"] = spread(times)
    results.append(SUITE, case, found)
    say(f"{place.name}: rename {sum(found['rename_s']):.1f} s, magic {sum(found['magic_s']):.1f} s")


def calibrated(hardware: Rig) -> str:
    """What disk and link are; where others compute so much that it cannot be measured, that."""
    why = ""
    for attempt in range(CALIBRATIONS):
        try:
            return hardware.slow()
        except LabError as error:
            why = str(error)
            time.sleep(attempt)
    return f"limits are set, but not calibrated on a busy machine ({why})"


def put(place: Place) -> None:
    """What the workloads read, and what the probe does."""
    data.put(place)
    data.put_copies(place)


def ready(hardware: Rig, put: Callable[[Place], None] = data.put) -> None:
    """Says what does not run here, and has data on the rest, whose limits are calibrated."""
    for name, why in hardware.missing.items():
        say(f"{name} does not run here: {why}")
    for place in hardware.places:
        put(place)
    hardware.said = calibrated(hardware)
    say(hardware.said)


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Everything that is missing, until time is up: one round of all, the commits, the other rounds."""
    until = time.monotonic() + chosen.time_limit
    table.TRACES.mkdir(parents=True, exist_ok=True)
    with rig(set(chosen.only)) as hardware, kept() as results.memory, Spark(hardware, folder) as spark:
        ready(hardware, put)
        if not chosen.no_probes:
            probes(hardware)
        wanted = [] if chosen.no_matrix else missing(tuple(chosen.engines), [place.name for place in hardware.places])
        measure(hardware, spark, [case for case in wanted if case[0] == 0], until, folder)
        for place in hardware.places:
            has_writes = place.spark_url.startswith("s3a://") and place.name not in NO_WRITES_BY_SPARK
            for times_as_large in COMMITS if has_writes and "Spark" in chosen.engines and not chosen.no_commits else ():
                try:
                    if time.monotonic() < until:
                        commits(hardware, place, times_as_large, folder)
                except services.Missing as why:
                    say(f"{place.name}, with and without renames: {why}")
        measure(hardware, spark, [case for case in wanted if case[0] > 0], until, folder)
    keep_medians()


def carry_out(run: Callable[[argparse.Namespace, Path], None], chosen: argparse.Namespace) -> int:
    """Runs it with a folder that is gone afterwards, then makes the page."""
    folder = results.FOLDER / ".storage"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(chosen, folder)
    except (LabError, OSError, services.Missing, subprocess.TimeoutExpired) as error:
        say(f"storage: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return table.main()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.storage.run", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="COMPOSITION", help=f"{', '.join(ALL)} (default: all)")
    parser.add_argument("--engines", nargs="*", default=table.ENGINES, choices=table.ENGINES)
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--no-matrix", action="store_true", help="leaves the four workloads out")
    parser.add_argument("--no-probes", action="store_true", help="leaves the probes out")
    parser.add_argument("--no-commits", action="store_true", help="leaves out what is written with and without renames")
    parser.add_argument("--list", action="store_true", help="says what is missing, and ends")
    chosen = parser.parse_args()
    results.build = lambda by=results.fingerprint([binary.binary()]): by
    if chosen.list:
        for case in missing(tuple(chosen.engines), chosen.only or list(ALL)):
            print(*case, sep="\t")
        return 0
    return carry_out(run, chosen)


if __name__ == "__main__":
    sys.exit(main())
