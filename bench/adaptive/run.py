"""Measures what is missing of the matrix: `python -m bench.adaptive.run` (root, Java, some hours in all).

One executor with 32 slots on an emulated spinning disk (`lab/hdd.py`), which holds input, shuffle files and output.
Stock Spark with 2, 4, 8, 16 and 32 tasks at once, and the plugin with both policies, take turns; each
finished run is a line in `bench/results/adaptive.jsonl`, so that what was stopped goes on where it
was. At the end `bench/ADAPTIVE.md` is made anew.

    python -m bench.adaptive.run --list
    python -m bench.adaptive.run --only H150R/sort --repeats 1 --bytes 96MiB      # a short form
    python -m bench.adaptive.run --only sort/index --repeats 1 --bytes 48MiB --try-out
    python -m bench.adaptive.run --time-limit 600
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import results
from bench.adaptive import log, table
from lab import guard, hdd
from lab.disks import LabError
from lab.memory import kept
from lab.rates import parse_bytes
from tests import spark
from tests.binary import ROOT

SUITE = "adaptive"
SWEEP = (2, 4, 8, 16, 32)
SLOTS = 32
# Which jobs on which disks (issue: sort on all, the others on the main model).
GROUPS = [
    ("H150R", "sort"),
    ("H150", "sort"),
    ("SSD50", "sort"),
    ("H150R", "pagerank"),
    ("H150R", "join"),
    ("H150R", "aggregation"),
    ("memory", "cpu"),
]
FILES = 192
JAR = ROOT / "spark-plugin" / "target" / "pellucid-spark.jar"
PLUGIN = "org.pellucid.spark.PellucidPlugin"
HEAP = "2g"


@dataclass(frozen=True)
class Case:
    """One application on one disk."""

    disk: str
    job: str
    setting: str
    bytes: int
    repeat: int

    @property
    def name(self) -> str:
        """For people and `--only`."""
        return f"{self.disk}/{self.job}/{self.setting}/{self.repeat}"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def settings_of(group: tuple[str, str]) -> list[str]:
    """What takes turns: the sweep, and the policies. Where nothing can be gained, only what it costs."""
    policies = ["throughput", "index"]
    return [f"stock-{SLOTS}", *policies] if group[1] == "cpu" else [*(f"stock-{n}" for n in SWEEP), *policies]


def cases(size_bytes: int, repeats: int) -> list[Case]:
    """All, in the order in which they run: a group's settings in turns."""
    return [
        Case(*group, setting, size_bytes, repeat)
        for group in GROUPS
        for repeat in range(repeats)
        for setting in settings_of(group)
    ]


def spark_settings(case: Case, folder: Path, logs: Path) -> dict[str, str]:
    """Of the application."""
    stock = case.setting.removeprefix("stock-")
    cores = int(stock) if stock != case.setting else SLOTS
    found = {
        "spark.master": f"local-cluster[1,{cores},3072]",
        "spark.app.name": case.name,
        "spark.executor.memory": HEAP,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": str(FILES),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "1g",
        "spark.sql.files.openCostInBytes": "1g",
        # Else each map task of so few reducers opens a file for each of them.
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{logs}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    if stock == case.setting:
        found |= {
            "spark.jars": str(JAR),
            "spark.plugins": PLUGIN,
            "spark.pellucid.mode": "adaptive",
            "spark.pellucid.policy": case.setting,
        }
    return found


def application(job: str, make: bool, size_bytes: int, disk: hdd.Disk, settings: dict[str, str]) -> dict:
    """Runs one, and says what it said."""
    request = {
        "job": job,
        "make": make,
        "bytes": size_bytes,
        "files": FILES,
        "source": f"file:{source_of(disk, job, size_bytes)}",
        "target": f"file:{disk.path / 'out'}",
        "settings": settings,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(request, file)
        file.flush()
        command = [str(spark.python()), "-B", str(Path(__file__).with_name("jobs.py")), file.name]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    said = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not said:
        raise RuntimeError(f"{job}: Spark ended with {ran.returncode}: {ran.stderr.strip().splitlines()[-1:]}")
    return json.loads(said[-1])


def source_of(disk: hdd.Disk, job: str, size_bytes: int) -> Path:
    """A job's input; joins and aggregations share theirs."""
    return disk.path / f"{'visits' if job in ('join', 'aggregation') else job}-{size_bytes}"


def files_below(folder: Path) -> list[Path]:
    """All files, for eviction."""
    return [path for path in folder.rglob("*") if path.is_file()]


def clear(disk: hdd.Disk) -> None:
    """What a run left on the disk."""
    for name in ("out", "local"):
        shutil.rmtree(disk.path / name, ignore_errors=True)
    (disk.path / "local").mkdir()


def place(disk: hdd.Disk, case: Case) -> None:
    """Makes the job's input, at memory's speed, once."""
    source = source_of(disk, case.job, case.bytes)
    if source.exists():
        return
    disk.set_kind("memory")
    clear(disk)
    with tempfile.TemporaryDirectory() as logs:
        settings = spark_settings(Case(case.disk, case.job, "stock-4", case.bytes, 0), disk.path, Path(logs))
        application(case.job, True, case.bytes, disk, settings)
    source.mkdir(exist_ok=True)


def measure(disk: hdd.Disk, case: Case) -> dict:
    """One run: its times, its stages, what the drive counted."""
    disk.set_kind("memory")
    clear(disk)
    disk.evict(files_below(source_of(disk, case.job, case.bytes)))
    disk.set_kind(case.disk)
    with tempfile.TemporaryDirectory() as logs:
        before = disk.stats()
        with results.quiet([disk.server]) as others:
            said = application(case.job, False, case.bytes, disk, spark_settings(case, disk.path, Path(logs)))
        counted = disk.stats().since(before)
        (events,) = [path for path in Path(logs).iterdir() if not path.name.startswith(".")]
        stages = log.stages(events)
    return {**said, "stages": stages, "drive": asdict(counted), "others_cores": others()}


def calibrated(disk: hdd.Disk, kind: str) -> float | None:
    """Measured; somebody else's second of work is over a second later, a wrong rate is not."""
    for attempt in range(4):
        try:
            disk.set_kind(kind)
            return disk.calibrate()
        except LabError as error:
            say(str(error))
            time.sleep(attempt)
            refused = error
    raise refused


def missing(wanted: list[Case]) -> list[Case]:
    """Those without a line of this jar."""
    by = version()
    done = [line["case"] for line in results.load(SUITE) if line["build"] == by]
    return [case for case in wanted if asdict(case) not in done]


def version() -> str:
    """Of what is measured: the jar."""
    return results.fingerprint([JAR])


def run(wanted: list[Case], limit_s: float, trying_out: bool) -> None:
    """Runs those that are missing until time is up. Trying out, nothing is calibrated, and nothing kept."""
    until = time.monotonic() + limit_s
    size = 12 * max(case.bytes for case in wanted) + (1 << 30)
    with guard.watch(), kept() as memory, hdd.spinning("memory", size=f"{size}B", calibrated=False) as disk:
        results.memory = memory
        group = None
        for case in wanted:
            if time.monotonic() > until:
                say("time is up; the same command goes on from here")
                return
            place(disk, case)
            if group != (case.disk, case.job):
                group = (case.disk, case.job)
                measured = None if trying_out else calibrated(disk, case.disk)
            found = measure(disk, case)
            disk.measured = measured  # of this kind; that it was another meanwhile, to clear up, changes nothing
            if not trying_out:
                found |= {"calibration": measured, "label": disk.label()}
                results.append(SUITE, asdict(case), found, by=version())
            stages = ", ".join(f"{stage['ms'] / 1000:.1f}" for stage in found["stages"])
            say(f"{case.name}: {found['ms'] / 1000:.1f} s (stages {stages}; busy {found['drive']['busy_ns'] / 1e9:.1f} s)")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.adaptive.run", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="only runs whose DISK/JOB/SETTING holds this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--bytes", type=parse_bytes, default=384 << 20, metavar="SIZE", help="of each job's input")
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--try-out", action="store_true", help="calibrates nothing and keeps nothing: does it run?")
    parser.add_argument("--list", action="store_true", help="says what there is, and ends")
    chosen = parser.parse_args()
    wanted = [case for case in cases(chosen.bytes, chosen.repeats) if chosen.only in case.name]
    if not JAR.exists():
        say(f"adaptive: the plugin is not built: {JAR} (make spark-plugin/target/pellucid-spark.jar)")
        return 1
    if why_not := hdd.missing() or spark.missing():
        say(f"adaptive: {why_not}")
        return 1
    todo = missing(wanted)
    say(f"{len(wanted)} runs, {len(todo)} to be measured")
    if chosen.list:
        for case in wanted:
            print(case.name, "" if case in todo else "measured", sep="\t")
        return 0
    try:
        if todo:
            run(todo, chosen.time_limit, chosen.try_out)
    except (LabError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        say(f"adaptive: {error}")
        return 1
    return table.main()


if __name__ == "__main__":
    sys.exit(main())
