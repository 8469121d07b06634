"""Measures the cost of reading a Spark event log, compared with other tools.

All programs read the same log, a real one with multiplied tasks (`bench.engine.event_logs`), plain and as zstd. Each
program is a fresh process; core seconds and peak memory are the kernel's, including its children. A program is
measured until it can answer:

- `pellucid analyze --json`: the whole command, reading and analysing;
- `reader`: `crates/sparklog/examples/read.rs`, reading alone;
- Spark's History Server: from its start until its REST interface lists the log's jobs;
- NVIDIA's profiling tool for event logs: the whole command, with its defaults.

Peers are installed from PyPI on first use, outside the checkout: PySpark 4 for the History Server (`harness/spark/__init__.py`),
and the jar in `spark-rapids-user-tools`, which is built for Scala 2.12 and so needs the jars of PySpark 3.5. A peer
that cannot be installed is left out with the reason.
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

from bench.common import results
from bench.engine import event_logs
from harness import spark
from harness.binary import ROOT, binary, data_home

SUITE = "sparklog"
RUNS = 3
# Codec, copies of the base log's 13,504 tasks, and whether peers run. The last case measures Pellucid's memory for a million tasks.
CASES = (("plain", 15, True), ("zstd", 15, True), ("zstd", 75, False))
OURS = ("pellucid analyze", "reader")
BASE = "nvidia/nds_q72_dataproc_2_2.zstd"
WAIT_S = 600
RAPIDS = "spark-rapids-user-tools==26.8.4"


def logs_folder() -> Path:
    """Returns the folder of real logs, which are not part of the project."""
    return Path(os.environ.get("PELLUCID_EVENTLOGS") or ROOT.parent / "shared" / "eventlogs")


def made_log(base: Path, codec: str, copies: int) -> Path:
    """Returns the log of a case, made once, since it takes minutes and a gigabyte."""
    folder = data_home() / "event-logs"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{base.stem}-{copies}{'' if codec == 'plain' else '.' + codec}"
    if not log.exists():
        event_logs.write(base, copies, log, codec == "zstd")
    return log


def reader() -> Path:
    """Returns the path of the built example."""
    return binary().parent / "examples" / "read"


def rapids_jar() -> Path:
    """Returns the jar of NVIDIA's tools, from their Python package."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid" / RAPIDS
    if not cache.is_dir():
        part = cache.with_name(cache.name + ".part")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", part,
                   "--require-hashes", "-r", ROOT / "requirements" / "rapids.txt"]  # fmt: skip
        subprocess.run(command, check=True)
        part.replace(cache)
    return next(cache.rglob("rapids-4-spark-tools*.jar"))


def run(say, max_runs: int | None = None) -> None:
    """Measures the cases that this build lacks."""
    base = logs_folder() / BASE
    if not base.exists():
        print(f"sparklog: {base} does not exist; set PELLUCID_EVENTLOGS to a folder with event logs")
        return
    by = results.fingerprint([binary(), reader()])
    for codec, copies, with_peers in CASES:
        case = {"codec": codec, "base": BASE, "copies": copies}
        runs = min(RUNS, max_runs or RUNS)
        if any(line["case"] == case and line["runs"] >= runs for line in results.made(SUITE, by)):
            continue
        log = made_log(base, codec, copies)
        size = log.stat().st_size
        # This also reads the log into the page cache, for all programs.
        said = subprocess.run([reader(), log], capture_output=True, text=True, check=True).stdout
        shape = {key: json.loads(said)[key] for key in ("bytes", "tasks", "task_memory_bytes")}
        found: dict[str, dict] = {}
        with results.quiet() as others:
            for _ in range(runs):
                for name, program in programs().items():
                    if not with_peers and name not in OURS:
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
    """Returns the programs, in the order of the table."""
    return {
        "pellucid analyze": lambda log: timed([binary(), "analyze", "--json", log]),
        "reader": lambda log: timed([reader(), log]),
        "Spark History Server": history_server,
        "NVIDIA profiling": rapids,
    }


def timed(command: list, cwd: Path | None = None) -> dict | str:
    """Measures core seconds, wall seconds and peak memory of a process and its children; on failure returns its error."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=errors, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            errors.seek(0)
            return errors.read().decode(errors="replace").strip()[-300:] or "failed"
    return measured(usage, begin)


def measured(usage: resource.struct_rusage, begin: float) -> dict:
    """Converts a measurement into the fields of a line."""
    return {
        "core_s": round(usage.ru_utime + usage.ru_stime, 3),
        "wall_s": round(time.monotonic() - begin, 3),
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def history_server(log: Path) -> dict | str:
    """Measures Spark's History Server until its REST interface has replayed the log."""
    try:
        home = spark.home("4")
    except (OSError, subprocess.SubprocessError) as error:
        return f"not installed: {error}"
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
    """Polls for the jobs of the first application, up to `WAIT_S`."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is on this machine
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
            pass  # The server is starting, and may say so in a page that is not JSON.
        time.sleep(0.2)
    return False


def rapids(log: Path) -> dict | str:
    """Measures NVIDIA's profiling tool, with a temporary output folder."""
    try:
        jar, home = rapids_jar(), spark.home("3.5")
    except (OSError, subprocess.SubprocessError) as error:
        return f"not installed: {error}"
    with tempfile.TemporaryDirectory() as folder:
        main = "com.nvidia.spark.rapids.tool.profiling.ProfileMain"
        return timed(["java", "-Xmx4g", "-cp", f"{jar}:{home}/jars/*", main, "-o", folder, log])
