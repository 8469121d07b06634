"""Measures the missing runs of the adaptive matrix: `python -m bench.adaptive.run` (root, Java, some hours in all).

One executor with 32 slots runs on emulated spinning disks (`lab/hdd.py`), which hold input, shuffle files and
output. Stock Spark with 2, 4, 8, 16 and 32 tasks at once and the plugin's policies take turns. Each finished run is
a line in `bench/results/adaptive.jsonl`, so a stopped run resumes. The command ends by writing `bench/ADAPTIVE.md`.

    python -m bench.adaptive.run --list
    python -m bench.adaptive.run --only H150R/sort,H150/sort --time-limit 600
    python -m bench.adaptive.run --only sort/index --repeats 1 --bytes 48MiB --try-out
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import duckdb

from bench.adaptive import log, table
from bench.adaptive.matrix import POLICIES, REMEMBERED, SLOTS, WITHOUT_INPUT, Case, cases
from bench.common import results, runner
from bench.common.runner import TimeLimit, carry_out, say
from harness import spark
from harness.binary import ROOT
from lab import guard, hdd
from lab.disks import LabError
from lab.memory import kept
from lab.rates import parse_bytes

SUITE = "adaptive"
FILES = 64
JAR = ROOT / "spark-plugin" / "target" / "pellucid-spark.jar"
PLUGIN = "org.pellucid.spark.PellucidPlugin"
HEAP = "2g"
TIMEOUT_S = 900
# Memory for disks and JVMs; touching all of a large machine's memory would take minutes.
MEMORY_BYTES = 6 << 30


def policy(case: Case) -> str:
    """Returns the plugin's policy in a case that runs one."""
    return POLICIES[0] if case.setting == REMEMBERED else case.setting


def spark_settings(case: Case, folders: list[Path], logs: Path, memory: Path) -> dict[str, str]:
    """Returns the application's settings, on disks with these folders; the plugin keeps its findings in `memory`."""
    stock = case.setting.removeprefix("stock-")
    cores = int(stock) if stock != case.setting else SLOTS
    found = {
        "spark.master": f"local-cluster[1,{cores},3072]",
        "spark.app.name": case.name,
        "spark.executor.memory": HEAP,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": ",".join(str(folder / "local") for folder in folders),
        "spark.sql.shuffle.partitions": str(FILES),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "1g",
        "spark.sql.files.openCostInBytes": "1g",
        # Otherwise map tasks with few reducers open a file for each.
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{logs}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    if stock == case.setting:
        found |= {"spark.jars": str(JAR), "spark.plugins": PLUGIN}
        if case.setting == "monotasks":
            # The machine's number of cores, to which this mode adds its own slots.
            found |= {"spark.pellucid.mode": "monotasks", "spark.pellucid.disks": ",".join(map(str, folders))}
            found["spark.master"] = f"local-cluster[1,{os.cpu_count()},3072]"
        elif case.setting == "measure":
            found["spark.pellucid.mode"] = "measure"
        else:
            found |= {"spark.pellucid.mode": "adaptive", "spark.pellucid.policy": policy(case), "spark.pellucid.memory": str(memory)}
    return found


class Rig:
    """The emulated disks: input is on the first, output on the last, shuffle files on all that a case uses."""

    def __init__(self, disks: list[hdd.Disk], idlers: list[int], learnt: Path):
        self.disks = disks
        self.idlers = idlers
        self.learnt = learnt
        self.rates: dict[str, list[float | None]] = {}

    def of(self, case: Case) -> list[hdd.Disk]:
        """Returns a case's disks."""
        return self.disks[: case.disks]

    def folders(self, case: Case) -> list[Path]:
        """Returns the folders of a case's disks."""
        return [disk.path for disk in self.of(case)]

    def source(self, case: Case) -> Path:
        """Returns the folder of a job's input, which join and aggregation share."""
        kind = "visits" if case.job in ("join", "aggregation") else case.job
        return self.disks[0].path / f"{kind}-{case.bytes}"

    def target(self, case: Case) -> Path:
        """Returns the folder of a job's output."""
        return self.of(case)[-1].path / "out"

    def memory(self, case: Case) -> Path:
        """Returns the file with the findings of the policy's last run without earlier knowledge."""
        return self.learnt / f"{case.disk}-{case.job}-{case.bytes}-{policy(case)}"

    def set_kind(self, case: Case, kind: str) -> None:
        """Switches a case's disks to a kind."""
        for disk in self.of(case):
            disk.set_kind(kind)

    def clear(self, case: Case) -> None:
        """Deletes a run's files, at memory speed, and evicts all others from the page cache."""
        self.set_kind(case, "memory")
        for disk in self.of(case):
            for name in ("out", "local"):
                shutil.rmtree(disk.path / name, ignore_errors=True)
            (disk.path / "local").mkdir()
            disk.evict(path for path in disk.path.rglob("*") if path.is_file())

    def calibrate(self, case: Case) -> None:
        """Calibrates each kind once. Retries, since another process's work may pass, while a wrong rate does not."""
        for attempt in range(8):
            if case.kind in self.rates and len(self.rates[case.kind]) >= case.disks:
                return
            try:
                self.set_kind(case, case.kind)
                self.rates[case.kind] = [disk.calibrate() for disk in self.of(case)]
                return
            except LabError as error:
                say(str(error))
                time.sleep(attempt)
                refused = error
        raise refused

    def calibration(self, case: Case) -> dict:
        """Returns the disks' label and measured rates."""
        for disk, rate in zip(self.of(case), self.rates[case.kind], strict=False):
            disk.kind, disk.measured = case.kind, rate  # `clear` may have switched the kind since calibration
        return {"label": self.disks[0].label(), "calibration": self.rates[case.kind]}

    def application(self, case: Case, make: bool, settings: dict[str, str]) -> dict:
        """Runs an application, and returns its answer."""
        request = {
            "job": case.job,
            "make": make,
            "bytes": case.bytes,
            "files": FILES,
            "source": f"file:{self.source(case)}",
            "target": f"file:{self.target(case)}",
            "disks": [] if case.job in WITHOUT_INPUT else [str(folder) for folder in self.folders(case)],
            "settings": settings,
        }
        with tempfile.TemporaryDirectory() as folder:
            return run_spark(case.name, [str(Path(__file__).with_name("jobs.py"))], request, Path(folder))

    def place(self, case: Case) -> None:
        """Makes the job's input once, at memory speed."""
        if self.source(case).exists():
            return
        self.clear(case)
        with tempfile.TemporaryDirectory() as logs:
            plain = Case(case.disk, case.job, "stock-4", case.bytes, 0)
            self.application(case, True, spark_settings(plain, self.folders(case), Path(logs), self.memory(plain)))
        self.source(case).mkdir(exist_ok=True)

    def measure(self, case: Case) -> dict:
        """Measures a run: its time, stages, answer, and the counters of the drives and the plugin's queues."""
        memory = self.memory(case)
        if case.setting != REMEMBERED:
            memory.unlink(missing_ok=True)
        elif not memory.exists():
            self.measure(replace(case, setting=POLICIES[0]))
        self.clear(case)
        self.set_kind(case, case.kind)
        with tempfile.TemporaryDirectory() as logs, tempfile.TemporaryDirectory() as metrics:
            settings = spark_settings(case, self.folders(case), Path(logs), memory)
            if case.setting == "monotasks":
                settings |= log.sink(Path(metrics))
            before = [disk.stats() for disk in self.of(case)]
            with results.quiet([disk.server for disk in self.of(case)] + self.idlers) as others:
                said = self.application(case, False, settings)
            counted = [asdict(disk.stats().since(was)) for disk, was in zip(self.of(case), before, strict=True)]
            (events,) = [path for path in Path(logs).iterdir() if not path.name.startswith(".")]
            stages = log.stages(events)
            if case.setting == "monotasks":
                said["gated"] = log.gated(Path(metrics), self.folders(case))
        self.set_kind(case, "memory")
        return {
            **said,
            "answer": answer(case, self.target(case)),
            "stages": stages,
            "drives": counted,
            "others_cores": others(),
        }


def run_spark(name: str, program: list[str], request: dict, folder: Path) -> dict:
    """Runs a PySpark program (a script, or `-m` and a module of this checkout) in a folder, and returns its answer."""
    file = folder / "request.json"
    file.write_text(json.dumps(request))
    plain = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    command, environment = [str(spark.python()), "-B", *program, str(file)], plain | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder, env=environment)
    said = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not said:
        last = "\n".join(ran.stderr.strip().splitlines()[-20:])
        raise RuntimeError(f"{name}: Spark exited with {ran.returncode}: {last}")
    return json.loads(said[-1])


def answer(case: Case, folder: Path) -> str:
    """Returns a check of the output that all settings must share: a digest of a sort's bytes, or the number of rows."""
    if case.job == "sort":
        digest = hashlib.sha256()
        for path in sorted(folder.glob("part-*")):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]
    return str(duckdb.sql(f"SELECT count(*) FROM '{folder}/*.parquet'").fetchone()[0])


def missing(wanted: list[Case]) -> list[Case]:
    """Returns the cases without a line of this jar."""
    done = [line["case"] for line in results.made(SUITE, version())]
    return [case for case in wanted if asdict(case) not in done]


def version() -> str:
    """Returns the fingerprint of the jar."""
    return results.fingerprint([JAR])


@contextlib.contextmanager
def awake() -> Iterator[list[int]]:
    """Keeps each core awake by a process with idle priority; yields the processes' ids.

    A sleeping core of a virtual machine wakes up late. On an idle machine that adds a twelfth to each random read,
    whose time should be the drive's alone.
    """
    command = ["chrt", "--idle", "0", sys.executable, "-c", "while True: pass"]
    idlers = [subprocess.Popen(command) for _ in range(os.cpu_count())]
    try:
        yield [idler.pid for idler in idlers]
    finally:
        for idler in idlers:
            idler.kill()
            idler.wait()


@contextlib.contextmanager
def rig(wanted: list[Case]) -> Iterator[Rig]:
    """Sets up as many disks as the cases need, large enough for all of them."""
    size = 12 * max(case.bytes for case in wanted) + (1 << 30)
    with contextlib.ExitStack() as stack:
        stack.enter_context(guard.watch())
        results.memory = stack.enter_context(kept(MEMORY_BYTES))
        names = [f"adaptive-{os.getpid()}-{n}" for n in range(max(case.disks for case in wanted))]
        options = {"size": f"{size}B", "calibrated": False}
        disks = [stack.enter_context(hdd.spinning("memory", name=name, **options)) for name in names]
        learnt = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield Rig(disks, stack.enter_context(awake()), learnt)


def run(wanted: list[Case], limit_s: float, trying_out: bool) -> None:
    """Runs cases until another might exceed the time limit. With `trying_out`, calibrates and keeps nothing."""
    limit = TimeLimit(limit_s)
    with rig(wanted) as disks:
        for case in wanted:
            if not limit.admits():
                return
            disks.place(case)
            if not trying_out:
                disks.calibrate(case)
            with limit.case() as seconds:
                found = disks.measure(case)
                if not trying_out:
                    results.append(SUITE, asdict(case), found | disks.calibration(case), by=version())
            stages = ", ".join(f"{s['ms'] / 1000:.1f}" + (f" ({s['concurrency']})" if s["concurrency"] else "") for s in found["stages"])
            busy = " and ".join(f"{drive['busy_ns'] / 1e9:.1f}" for drive in found["drives"])
            took = f"{found['ms'] / 1000:.1f} s of {seconds():.0f}"
            say(f"{case.name}: {took} (stages {stages}; busy {busy} s; others {found['others_cores']}; {found['answer']})")


def options(name: str, doc: str) -> argparse.ArgumentParser:
    """Returns the options of every matrix on these disks; `doc` is its module's docstring."""
    parser = runner.options(f"{name}.run", doc)
    parser.add_argument("--only", default="", metavar="TEXT,…", help="only runs whose DISK/JOB/SETTING/REPEAT contains one of these")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--try-out", action="store_true", help="check that it runs; calibrate and keep nothing")
    parser.add_argument("--list", action="store_true", help="list the runs and exit")
    return parser


def run_matrix(
    name: str,
    chosen: argparse.Namespace,
    all_cases: list[Case],
    missing: Callable[[list[Case]], list[Case]],
    run: Callable[[list[Case], float, bool], None],
    page: Callable[[], int],
) -> int:
    """Runs the chosen missing cases of a matrix, then makes its page."""
    wanted = [case for case in all_cases if any(text in case.name for text in chosen.only.split(","))]
    if not JAR.exists():
        say(f"{name}: {JAR} does not exist; run make plugin")
        return 1
    if why_not := hdd.missing() or spark.missing():
        say(f"{name}: {why_not}")
        return 1
    todo = wanted if chosen.try_out else missing(wanted)
    say(f"{len(wanted)} runs, {len(todo)} to measure")
    if chosen.list:
        for case in wanted:
            print(case.name, "" if case in todo else "measured", sep="\t")
        return 0
    return carry_out(
        name,
        lambda: run(todo, chosen.time_limit, chosen.try_out) if todo else None,
        (lambda: 0) if chosen.try_out else page,
    )


def main() -> int:
    """Runs the command."""
    parser = options(SUITE, __doc__)
    parser.add_argument("--bytes", type=parse_bytes, metavar="SIZE", help="size of each job's input (default: by job)")
    chosen = parser.parse_args()
    return run_matrix(SUITE, chosen, cases(chosen.bytes, chosen.repeats), missing, run, table.main)


if __name__ == "__main__":
    sys.exit(main())
