"""Iterative jobs side by side with what installs: `python -m bench.iterate.run`, or `make bench-iterate`.

Each finished case is a line in `bench/results/iterate.jsonl`; a run that was stopped goes on where it was.
`bench/ITERATE.md` is made from the lines. What keeps it fair: all read the same files and keep their data in
memory as they like best; reading is not timed; every one has both cores; the same steps from the same start,
and the loss, inertia or ranks after the last one stand beside the time. scikit-learn's and MLlib's regressions
have solvers of their own, and MLlib's k-means starts elsewhere: there a step's time is compared, not the answer.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import results
from bench.iterate import table
from lab import memory
from tests import binary

SUITE = "iterate"
COLUMNS, CENTERS, EDGES_PER_VERTEX, SEED = 20, 10, 16, 1
# Options of ours by application; what follows `--iterations` is the number.
OURS = {
    "regression": ["logistic-regression", "{data}", "--label", "y", "--solver", "gd", "--step", "0.5"],
    "kmeans": ["kmeans", "{data}", "--features", ",".join(f"f{c}" for c in range(COLUMNS)), "--init", "{centers}"],
    "pagerank": ["pagerank", "{data}"],
}
PYTHON = {
    "regression": ["numba", "Ray with numpy", "numpy, blocked", "scikit-learn"],
    "kmeans": ["scikit-learn", "numpy, blocked"],
    "pagerank": ["scipy"],
}
SPARK = {
    "regression": ["Spark, hand-tuned", "Spark MLlib"],
    "kmeans": ["Spark MLlib"],
    "pagerank": ["GraphX"],
}
ITERATIONS = {"Pellucid": 20, "Spark MLlib": 5, "GraphX": 3}


def points(folder: Path, rows: int) -> Path:
    """Rows of 20 normally distributed columns f0… and labels of a model with noise; centers beside them."""
    path = folder / f"points-{rows}.parquet"
    if path.exists():
        return path
    random = np.random.default_rng(SEED)
    weights = random.normal(size=COLUMNS)
    np.savetxt(
        folder / f"centers-{rows}.csv",
        random.normal(size=(CENTERS, COLUMNS)),
        delimiter=",",
        header=",".join(f"f{c}" for c in range(COLUMNS)),
        comments="",
    )
    schema = pa.schema([(f"f{c}", pa.float64()) for c in range(COLUMNS)] + [("y", pa.int8())])
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(partial, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, 1 << 18):
            x = random.normal(size=(min(1 << 18, rows - start), COLUMNS))
            y = (x @ weights + random.logistic(size=len(x)) > 0).astype(np.int8)
            writer.write_table(pa.table([*x.T.copy(), y], schema=schema))
    partial.rename(path)
    return path


def graph(folder: Path, scale: int) -> Path:
    """R-MAT with GAP's and Graph500's parameters: 16 edges a vertex, names shuffled."""
    path = folder / f"rmat-{scale}.parquet"
    if path.exists():
        return path
    random = np.random.default_rng(SEED)
    schema = pa.schema([("src", pa.int32()), ("dst", pa.int32())])
    names = random.permutation(1 << scale).astype(np.int32)
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(partial, schema, compression="none", use_dictionary=False) as writer:
        for _ in range(EDGES_PER_VERTEX):
            ends = np.zeros((2, 1 << scale), dtype=np.int64)
            for _ in range(scale):
                corner = np.searchsorted([0.57, 0.76, 0.95], random.random(1 << scale))
                ends = 2 * ends + np.array([corner >> 1, corner & 1])
            writer.write_table(pa.table([names[ends[0]], names[ends[1]]], schema=schema))
    partial.rename(path)
    return path


def ours(application: str, data: Path, iterations: int, precision: str) -> dict:
    """One run of the command, with the memory's bandwidth measured in the same process."""
    centers = data.with_name(data.name.replace("points", "centers")).with_suffix(".csv")
    words = [word.format(data=data, centers=centers) for word in OURS[application]]
    words += ["--iterations", iterations, "--tolerance", 0, "--precision", precision, "--bandwidth", "--json"]
    document = json.loads(binary.run("iterate", *words, timeout=3600).check().out)
    result = document["result"]
    top = sum(entry["rank"] for entry in result.get("top", []))
    return {
        "command": shlex.join(["pellucid", "iterate", *map(str, words)]),
        "iteration_s": [document["iteration_ms"]["median"] / 1e3],
        "p99_s": document["iteration_ms"]["p99"] / 1e3,
        "tasks_per_s": document["tasks_per_s"],
        "outside_tasks": document["scheduler_share"],
        "memory_bytes_per_s": document["memory_bandwidth"]["bytes_per_s"],
        "check": result.get("loss", result.get("inertia", top)),
    }


def python(application: str, peer: str, data: Path, iterations: int, limit_s: float) -> dict:
    """One run of a peer in Python."""
    command = [sys.executable, "-m", "bench.iterate.peers", application, peer, str(data), str(iterations)]
    return _document(command, None, limit_s)


def spark(application: str, peer: str, data: Path, iterations: int, limit_s: float) -> dict:
    """One run of a peer in Spark's shell."""
    import pyspark

    home = Path(pyspark.__file__).parent
    heap = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 6 // 10 >> 20
    command = [home / "bin" / "spark-shell", "--master", f"local[{os.cpu_count()}]", "--driver-memory", f"{heap}m"]
    command += ["--conf", "spark.ui.enabled=false", "-i", Path(__file__).with_name("spark.scala")]
    given = {"BENCH_ITERATE": f"{application}|{peer}|{data}|{iterations}", "SPARK_HOME": str(home)}
    return _document([str(word) for word in command], given, limit_s)


def _document(command: list[str], given: dict | None, limit_s: float) -> dict:
    """The last line that is a document; or what went wrong."""
    settings = {"capture_output": True, "text": True, "cwd": binary.ROOT, "stdin": subprocess.DEVNULL}
    try:
        ran = subprocess.run(command, env=os.environ | (given or {}), timeout=limit_s, **settings)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit_s:.0f} s"}
    lines = [line.removeprefix("RESULT ") for line in ran.stdout.splitlines() if '{"iteration_s"' in line]
    if not lines:
        return {"error": (ran.stderr or ran.stdout).strip().splitlines()[-1:] or [f"exit {ran.returncode}"]}
    return json.loads(lines[-1])


def measure(case: dict, run) -> None:
    """One case, unless this build has it."""
    if results.done(SUITE, case):
        return
    with results.quiet() as others:
        found = run()
    results.append(SUITE, case, found | {"others_cores": others()})
    took = found.get("error") or f"{statistics.median(found['iteration_s']):.4f} s"
    print(f"{', '.join(map(str, case.values()))}: {took}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.iterate.run", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the table (default 20 million, 3.4 GB)")
    parser.add_argument("--scale", type=int, default=22, help="of the graph: 2^SCALE vertices (default 22)")
    parser.add_argument("--only", choices=list(OURS), action="append", help="an application (default all)")
    parser.add_argument("--without", action="append", default=[], help="a peer to leave out; `spark`: all on Spark")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that a peer may take (default 1800)")
    chosen = parser.parse_args()
    results.build = lambda: results.fingerprint([binary.binary()])
    folder = binary.data_home() / "iterate"
    folder.mkdir(parents=True, exist_ok=True)
    with memory.kept() as results.memory:
        for application in chosen.only or OURS:
            pagerank = application == "pagerank"
            data = graph(folder, chosen.scale) if pagerank else points(folder, chosen.rows)
            size = {"scale": chosen.scale} if pagerank else {"rows": chosen.rows}
            for precision in ("f64", "f32"):
                case = {"application": application, "peer": f"Pellucid {precision}", **size}
                measure(case, lambda: ours(application, data, ITERATIONS["Pellucid"], precision))
            for run, peers in ((python, PYTHON), (spark, SPARK)):
                for peer in peers[application]:
                    if peer in chosen.without or run is spark and "spark" in chosen.without:
                        continue
                    steps = ITERATIONS.get(peer, 5)
                    case = {"application": application, "peer": peer, **size}
                    measure(case, lambda: run(application, peer, data, steps, chosen.limit))
    table.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
