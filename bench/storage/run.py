"""Measures what is missing of the storage matrix: `python -m bench.storage.run`, or `make bench-storage`.

Every composition runs all the time; rounds go through workloads, compositions and engines, so that those that are
compared take turns. Before each run what is on the disk leaves the page cache; a run ends when what it wrote is on
the disk. Each run that has ended is appended to `bench/results/storage.jsonl`, so that what was stopped (or reached
`--time-limit`) goes on where it was; then `bench/STORAGE.md` is made anew.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench import results
from bench.storage import data, table, workloads
from bench.storage.rig import Place, Rig, percentiles, rig
from bench.storage.spark import MAGIC, RENAME, Session, log_of, session
from bench.storage.workloads import WORKLOADS, Workload
from lab.disks import LabError
from lab.memory import kept
from tests import binary, services

SUITE = "storage"
REPEATS = 5
# Of the session whose output is committed by rename, and of the one that does without: writes, the first left out.
COMMITS = 6
CALIBRATIONS = 4
ENGINES = ("Pellucid", "Spark")


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def missing(engines: tuple[str, ...], places: list[str]) -> list[tuple[int, str, str, str]]:
    """Round, workload, composition and engine of every run that this build lacks."""
    have = {tuple(line["case"].values()) for line in results.made(SUITE, results.build()) if line.get("s")}
    wanted = [(r, w.name, p, e) for r in range(REPEATS) for w in WORKLOADS for p in places for e in engines]
    return [case for case in wanted if case not in have]


def pellucid(hardware: Rig, place: Place, workload: Workload, number: int, folder: Path) -> dict:
    """One run of the command, start to exit and to the disk."""
    trace = folder / "run.trace"
    command = workloads.command(workload, place, str(trace))
    begun = time.monotonic()
    process = binary.start(*command, env=os.environ | place.environment)
    with hardware.watched(place, [process.pid]) as use:
        out, err = process.communicate(timeout=binary.TIMEOUT_S)
        hardware.flush()
        took = time.monotonic() - begun
    if process.returncode:
        return {"error": (err or out).strip().splitlines()[0][:300]}
    if place.name == table.BASIS:
        table.TRACES.mkdir(parents=True, exist_ok=True)
        shutil.copy(trace, table.TRACES / f"{workload.name.replace(' ', '-')}-{number}.trace")
    return {"s": round(took, 3), "use": use, "task_s": task_times(trace), "bottleneck": bottleneck(trace)}


def analysis(path: Path) -> dict:
    """What `pellucid analyze` says."""
    return json.loads(binary.run("analyze", "--json", path).check().out)


def bottleneck(trace: Path) -> str | None:
    """Of the job that took longest; an iterative job's trace has none."""
    jobs = analysis(trace)["jobs"]
    longest = max(jobs, key=lambda job: job["duration_ms"] or 0, default=None)
    return longest and (longest["bottleneck"] or {}).get("kind")


def task_times(path: Path) -> list[float]:
    """Percentiles of the seconds that multitasks, or Spark's tasks, took: from first to last byte or instruction."""
    out = path.with_suffix(".parquet-export")
    shutil.rmtree(out, ignore_errors=True)
    if binary.run("export", path, "--to", "parquet", "-o", out).code:
        return []
    import pyarrow.parquet as pq

    try:
        if (out / "pipelined_tasks.parquet").exists() and pq.read_metadata(out / "pipelined_tasks.parquet").num_rows:
            return percentiles([ns / 1e9 for ns in pq.read_table(out / "pipelined_tasks.parquet")["duration_ns"].to_pylist()])
        rows = pq.read_table(out / "monotasks.parquet", columns=["multitask", "service_ns"]).to_pylist()
    finally:
        shutil.rmtree(out, ignore_errors=True)
    total: dict[int, int] = {}
    for row in rows:
        total[row["multitask"]] = total.get(row["multitask"], 0) + row["service_ns"]
    return percentiles([ns / 1e9 for ns in total.values()])


def spark(hardware: Rig, running: Session, place: Place, workload: Workload) -> dict:
    """One action in the session, and to the disk."""
    pids = running.pids()
    begun = time.monotonic()
    with hardware.watched(place, pids) as use:
        answer = running.ask(workloads.asked(workload, place))
        hardware.flush()
        took = time.monotonic() - begun
    return answer if "error" in answer else {"s": round(took, 3), "use": use}


def measure(hardware: Rig, running: Session | None, wanted: list, until: float, folder: Path) -> None:
    """Runs what is wanted, in rounds, until time is up."""
    places = {place.name: place for place in hardware.places}
    by_name = {workload.name: workload for workload in WORKLOADS}
    for number, workload, name, engine in wanted:
        if time.monotonic() > until:
            say("time is up; the same command goes on from here")
            return
        hardware.forget()
        with results.quiet([*places[name].pids, *(running.pids()[:2] if running else [])]) as others:
            if engine == "Spark":
                found = spark(hardware, running, places[name], by_name[workload])
            else:
                found = pellucid(hardware, places[name], by_name[workload], number, folder)
        case = {"round": number, "workload": workload, "composition": name, "engine": engine}
        results.append(SUITE, case, found | {"hardware": hardware.said, "others_cores": others()})
        say(f"{', '.join(map(str, case.values()))}: {found.get('s') or found.get('error')}")


def warm(running: Session, places: list[Place]) -> None:
    """Every workload once on one composition, so that the JVM has compiled what it needs."""
    for workload in WORKLOADS:
        asked = workloads.asked(workload, places[0])
        answer = running.ask(asked)
        if "error" in answer:
            say(f"Spark, {workload.name}: {answer['error']}")


def probes(hardware: Rig) -> None:
    """Each composition's store as a client meets it alone; its writing is the store written by its own client."""
    for place in hardware.places:
        case = {"probe": place.name}
        if results.done(SUITE, case):
            continue
        hardware.forget()
        options = ["--seconds", "12", "--bytes", "768MiB", "--json"]
        ran = binary.run("storage", "probe", f"{place.url}", *options, env=os.environ | place.environment)
        found = {"report": json.loads(ran.out)} if ran.code == 0 else {"error": ran.err.strip()[:300]}
        results.append(SUITE, case, found)
        say(f"probe of {place.name}: {'done' if ran.code == 0 else found['error']}")


def commits(hardware: Rig, place: Place, folder: Path) -> None:
    """The same writes with and without renames, and what the doctor made of the first session's log alone."""
    case = {"commits": place.name}
    if results.done(SUITE, case):
        return
    write = next(w for w in WORKLOADS if w.name == "DFSIO")
    found: dict = {}
    logs: dict[str, Path] = {}
    for name, committer in (("rename", RENAME), ("magic", MAGIC)):
        with session(f"{place.name}-{name}", [place], committer, folder) as running:
            times = []
            for _ in range(COMMITS):
                hardware.forget()
                answer = running.ask(workloads.asked(write, place))
                if "error" in answer:
                    results.append(SUITE, case, {"error": f"{name}: {answer['error']}"})
                    return say(f"{place.name}, {name}: {answer['error']}")
                times.append(round(answer["s"], 3))
            events = running.events
        found[f"{name}_s"] = times
        logs[name] = log_of(events)
    options = []
    for line in results.made(SUITE, results.build()):
        if line["case"] == {"probe": place.name} and "report" in line:
            (folder / "probe.json").write_text(json.dumps(line["report"]))
            options = ["--probe", folder / "probe.json"]
    for name, log in logs.items():
        document = json.loads(binary.run("storage", "doctor", log, *options, "--json").check().out)
        found[f"{name}_findings"] = document["findings"]
        found[f"{name}_task_s"] = task_times(log)
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


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Everything that is missing, until time is up."""
    until = time.monotonic() + chosen.time_limit
    with rig(set(chosen.only)) as hardware, kept() as results.memory, contextlib.ExitStack() as stack:
        for name, why in hardware.missing.items():
            say(f"{name} does not run here: {why}")
        for place in hardware.places:
            data.put(place)
        hardware.said = calibrated(hardware)
        say(hardware.said)
        if not chosen.no_probes:
            probes(hardware)
        for place in hardware.places:
            if place.spark_url.startswith("s3a://") and "Spark" in chosen.engines and time.monotonic() < until:
                commits(hardware, place, folder)
        wanted = missing(tuple(chosen.engines), [place.name for place in hardware.places])
        running = None
        if any(engine == "Spark" for *_, engine in wanted) and time.monotonic() < until:
            running = stack.enter_context(session("matrix", hardware.places, RENAME, folder))
            warm(running, hardware.places)
        measure(hardware, running, wanted, until, folder)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.storage.run", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="COMPOSITION", help="GC, NC, SWI, S3, MINIO (default: all)")
    parser.add_argument("--engines", nargs="*", default=ENGINES, choices=ENGINES)
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--no-probes", action="store_true", help="leaves out what is not the matrix or the commits")
    parser.add_argument("--list", action="store_true", help="says what is missing, and ends")
    chosen = parser.parse_args()
    results.build = lambda by=results.fingerprint([binary.binary()]): by
    if chosen.list:
        for case in missing(tuple(chosen.engines), chosen.only or ["GC", "NC", "SWI", "S3", "MINIO"]):
            print(*case, sep="\t")
        return 0
    folder = results.FOLDER / ".storage"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(chosen, folder)
    except (LabError, OSError, services.Missing, subprocess.TimeoutExpired) as error:
        say(f"storage: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return table.main()


if __name__ == "__main__":
    sys.exit(main())
