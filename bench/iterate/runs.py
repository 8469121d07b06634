"""Single runs of Pellucid, of a peer in Python, and of a peer in Spark's shell. Each returns a document or an error."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.iterate.data import COLUMNS
from harness import binary

HERE = Path(__file__).parent
# Arguments of `pellucid iterate`, by application.
OURS = {
    "regression": ["logistic-regression", "{data}", "--label", "y", "--solver", "gd", "--step", "0.5"],
    "kmeans": ["kmeans", "{data}", "--features", ",".join(f"f{c}" for c in range(COLUMNS)), "--init", "{centers}"],
    "pagerank": ["pagerank", "{data}"],
}


class Case(NamedTuple):
    """A case, the fingerprint of its programs, and the function that measures it."""

    case: dict
    by: str
    run: Callable[[], dict]


def ours(application: str, data: Path, iterations: int, *options: object) -> dict:
    """Runs the command once."""
    centers = data.with_name(data.name.replace("points", "centers")).with_suffix(".csv")
    words = [word.format(data=data, centers=centers) for word in OURS[application]]
    words += ["--iterations", iterations, "--tolerance", 0, *options, "--json"]
    document = json.loads(binary.run("iterate", *words, timeout=3600).check().out)
    result = document["result"]
    top = sum(entry["rank"] for entry in result.get("top", []))
    words = [word.name if isinstance(word, Path) else str(word) for word in words]
    return {
        "command": shlex.join(["pellucid", "iterate", *(word.rsplit("/", 1)[-1] for word in words)]),
        "iteration_s": [document["iteration_ms"]["median"] / 1e3],
        "p99_s": document["iteration_ms"]["p99"] / 1e3,
        "tasks_per_s": document["tasks_per_s"],
        "outside_tasks": document["scheduler_share"],
        "memory_bytes_per_s": document["memory_bandwidth"]["bytes_per_s"],
        "check": result.get("loss", result.get("inertia", top)),
    }


def python(application: str, peer: str, data: Path, iterations: int, limit_s: float) -> dict:
    """Runs a peer in Python once."""
    command = [sys.executable, "-m", "bench.iterate.peers", application, peer, str(data), str(iterations)]
    return _document(command, None, limit_s)


def spark(application: str, peer: str, data: Path, iterations: int, limit_s: float, partitions: int = 0) -> dict:
    """Runs a peer in Spark's shell once, by default with four partitions per core."""
    import pyspark

    home = Path(pyspark.__file__).parent
    heap = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 6 // 10 >> 20
    command = [home / "bin" / "spark-shell", "--master", f"local[{os.cpu_count()}]", "--driver-memory", f"{heap}m"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    # Without adaptive execution a pass is one job, even after a shuffle.
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.adaptive.enabled=false"]
    asked = f"{application}|{peer}|{data}|{iterations}|{partitions or 4 * os.cpu_count()}"
    with tempfile.TemporaryDirectory() as place:
        # A temporary folder, so that a killed process leaves no files.
        command += ["--conf", f"spark.local.dir={place}", "-i", HERE / "spark.scala"]
        given = {"BENCH_ITERATE": asked, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        return _document([str(word) for word in command], given, limit_s)


def built(name: str) -> Path:
    """Returns the path of a built example of `crates/iterate`."""
    path = binary.binary().parent / "examples" / name
    if not path.exists():
        sys.exit(f"{path} does not exist; run cargo build --release --locked --workspace --examples")
    return path


def _document(command: list[str], given: dict | None, limit_s: float) -> dict:
    """Runs a command, and returns the last document that it prints, or its error."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": binary.ROOT}
    process = subprocess.Popen(command, env=os.environ | (given or {}), stdin=subprocess.DEVNULL, start_new_session=True, **settings)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit_s:.0f} s", "limit_s": limit_s}
    finally:
        # Also ends the processes that Ray and Spark start.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
    # Spark names stages by files, and results must not contain this checkout's path.
    out, err = (said.replace(f"{binary.ROOT}/", "") for said in (out, err))
    lines = [line for line in out.splitlines() if '{"iteration_s"' in line]
    if lines:
        return json.loads(lines[-1][lines[-1].index("{") :])
    errors = [line.partition("FAILED ")[2] for line in out.splitlines() if "FAILED " in line]
    errors = errors or (err or out).strip().splitlines() or [f"exit {process.returncode}"]
    return {"error": errors[-1], "limit_s": limit_s}
