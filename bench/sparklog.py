"""What reading a Spark event log costs, beside the tools that people read them with.

One log for all, made of a real one whose tasks are multiplied (`bench.event_logs`) and kept with the
generated data, plain and as zstd. Each program is a fresh process; its core seconds and peak memory are the kernel's, its
children's included. What is compared is how long each takes until it can answer:

- `pellucid analyze --json`: the whole command, reading and analysing;
- `reader`: `crates/sparklog/examples/read.rs`, reading alone;
- Spark's History Server: from its start until its REST interface lists the log's jobs;
- NVIDIA's profiling tool for event logs: the whole command, with its defaults.

Peers come from PyPI on first use, and are kept outside of the checkout: PySpark 4 for the History Server
(`tests/spark.py`); NVIDIA's jar out of `spark-rapids-user-tools`, which is built for Scala 2.12 and so
needs the jars of PySpark 3.5. One that cannot be had is left out with the reason.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from bench import event_logs, results
from tests import spark
from tests.binary import ROOT, binary, data_home

SUITE = "sparklog"
RUNS = 3
# Tasks of the log: the base's 13,504, times this. The last case is of a million, for our memory alone.
CASES = (("plain", 15, True), ("zstd", 15, True), ("zstd", 75, False))
OURS = ("pellucid analyze", "reader")
BASE = "nvidia/nds_q72_dataproc_2_2.zstd"
WAIT_S = 600
RAPIDS = "spark-rapids-user-tools==26.8.4"


def logs_folder() -> Path:
    """Where real logs are: not a part of the project."""
    return Path(os.environ.get("PELLUCID_EVENTLOGS") or ROOT.parent / "shared" / "eventlogs")


def made_log(base: Path, codec: str, copies: int) -> Path:
    """The log of a case. It takes minutes and a gigabyte, so it is made once."""
    folder = data_home() / "event-logs"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{base.stem}-{copies}{'' if codec == 'plain' else '.' + codec}"
    if not log.exists():
        event_logs.write(base, copies, log, codec == "zstd")
    return log


def reader() -> Path:
    """The example, built beside the binary."""
    return binary().parent / "examples" / "read"


def rapids_jar() -> Path:
    """NVIDIA's tools, as their Python package brings them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid" / RAPIDS
    if not cache.is_dir():
        part = cache.with_name(cache.name + ".part")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", part, RAPIDS]
        subprocess.run(command, check=True)
        part.replace(cache)
    return next(cache.rglob("rapids-4-spark-tools*.jar"))


def run(say, most_runs: int | None = None) -> None:
    """Each case that this build lacks."""
    base = logs_folder() / BASE
    if not base.exists():
        print(f"sparklog: {base} is not there (PELLUCID_EVENTLOGS)")
        return
    by = results.fingerprint([binary(), reader()])
    for codec, copies, beside in CASES:
        case = {"codec": codec, "base": BASE, "copies": copies}
        runs = min(RUNS, most_runs or RUNS)
        if any(line["case"] == case and line["runs"] >= runs for line in results.made(SUITE, by)):
            continue
        log = made_log(base, codec, copies)
        size = log.stat().st_size
        # Also into the page cache, for all alike.
        said = subprocess.run([reader(), log], capture_output=True, text=True, check=True).stdout
        shape = {key: json.loads(said)[key] for key in ("bytes", "tasks", "task_memory_bytes")}
        found: dict[str, dict] = {}
        with results.quiet() as others:
            for _ in range(runs):
                for name, program in programs().items():
                    if not beside and name not in OURS:
                        continue
                    measured = program(log)
                    kept = found.setdefault(name, {"core_s": [], "wall_s": [], "peak_bytes": [], "error": None})
                    if isinstance(measured, str):
                        kept["error"] = measured
                        continue
                    for key, value in measured.items():
                        kept[key].append(value)
        line = {"runs": runs, "programs": found, "log_bytes": size, **shape, "others_cores": others()}
        results.append(SUITE, case, line, by)
        say(case, {name: {"ms": [s * 1e3 for s in of["core_s"]], "error": of["error"]} for name, of in found.items()})


def programs() -> dict:
    """What runs, in the order of the table."""
    return {
        "pellucid analyze": lambda log: timed([binary(), "analyze", "--json", log]),
        "reader": lambda log: timed([reader(), log]),
        "Spark History Server": history_server,
        "NVIDIA profiling": rapids,
    }


def timed(command: list, cwd: Path | None = None) -> dict | str:
    """Core seconds, wall seconds and peak memory of a process and those that it waited for."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=errors, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            errors.seek(0)
            return errors.read().decode(errors="replace").strip()[-300:] or "failed"
    return measured(usage, begin)


def measured(usage: resource.struct_rusage, begin: float) -> dict:
    """As a line holds it."""
    return {
        "core_s": round(usage.ru_utime + usage.ru_stime, 3),
        "wall_s": round(time.monotonic() - begin, 3),
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def history_server(log: Path) -> dict | str:
    """Until the REST interface has replayed the log."""
    try:
        home = spark.home("4")
    except (OSError, subprocess.SubprocessError) as error:
        return f"not there: {error}"
    with tempfile.TemporaryDirectory(dir=log.parent) as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        os.link(log, Path(folder) / log.name)
        options = {
            "spark.history.fs.logDirectory": Path(folder).as_uri(),
            "spark.history.ui.port": str(port),
            "spark.history.fs.update.interval": "1h",
        }
        java = ["java", "-Xmx4g", "-cp", f"{home}/jars/*", *(f"-D{k}={v}" for k, v in options.items())]
        begin = time.monotonic()
        opens = [f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in ("java.lang", "java.nio", "sun.nio.ch", "java.util")]
        server = [*java, *opens, "org.apache.spark.deploy.history.HistoryServer"]
        process = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            answered = _until_answered(f"http://127.0.0.1:{port}/api/v1/applications", process, begin)
        finally:
            if not (ended_itself := process.poll() is not None):
                process.terminate()
                _, _, usage = os.wait4(process.pid, 0)
        if ended_itself:
            return f"ended with {process.returncode}"
        return measured(usage, begin) if answered else "did not answer"


def _until_answered(url: str, process: subprocess.Popen, begin: float) -> bool:
    """Asks for the jobs of the first application until they are there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine
    while time.monotonic() - begin < WAIT_S and process.poll() is None:
        try:
            with opener.open(url, timeout=WAIT_S) as answer:
                applications = json.load(answer)
            if applications:
                first = applications[0]
                attempt = first["attempts"][0].get("attemptId")
                jobs = f"{url}/{first['id']}{f'/{attempt}' if attempt else ''}/jobs"
                with opener.open(jobs, timeout=WAIT_S) as answer:
                    return bool(json.load(answer))
        except (urllib.error.URLError, ConnectionError, ValueError):
            pass  # it starts, or says so in a page that is no JSON
        time.sleep(0.2)
    return False


def rapids(log: Path) -> dict | str:
    """NVIDIA's profiling tool, into a folder that goes."""
    try:
        jar, home = rapids_jar(), spark.home("3.5")
    except (OSError, subprocess.SubprocessError) as error:
        return f"not there: {error}"
    with tempfile.TemporaryDirectory() as folder:
        main = "com.nvidia.spark.rapids.tool.profiling.ProfileMain"
        return timed(["java", "-Xmx4g", "-cp", f"{jar}:{home}/jars/*", main, "-o", folder, log])
