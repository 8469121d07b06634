"""The paper's experiments (canary §5.4, figs. 7–9): many partitions per core, and more workers.

Micropartitioning runs each application with 1, 2, 4, 8 and 16 partitions per core, with Pellucid and Spark, on less
data than the comparison with peers, so that the cost of tasks shows. Workers are threads here: one core, and all.
Up to a thousand workers are simulated (`crates/iterate/examples/scaling.rs`), with a count of messages.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.common import results
from bench.iterate import runs
from bench.iterate.data import graph, points
from harness import binary, traces

PARTITIONS_A_CORE = (1, 2, 4, 8, 16)
ROWS, SCALE = 2_000_000, 20
# Scale for micropartitions: 4 million edges, with passes of a few milliseconds.
SMALL_SCALE = 18
# The fastest peer on Spark for each application.
SPARK = {"regression": "Spark, hand-tuned", "kmeans": "Spark MLlib", "pagerank": "GraphX"}


def data(folder: Path, scale: int = SCALE) -> dict[str, Path]:
    """Returns the data of each application."""
    rows = points(folder, ROWS)
    return {"regression": rows, "kmeans": rows, "pagerank": graph(folder, scale)}


def distribution(trace: Path) -> dict:
    """Returns percentiles of task durations in the stage that takes the most time, weighted by sampled tasks."""
    names, tasks = {}, defaultdict(list)
    for record in traces.lines(trace):
        if record["t"] == "stage":
            names[len(names)] = record["name"]
        elif record["t"] == "sampled_task":
            tasks[record["stage"]].append((record["service_ns"], record["weight"]))
    stage, found = max(tasks.items(), key=lambda item: sum(ns * weight for ns, weight in item[1]))
    found.sort()
    total = sum(weight for _, weight in found)

    def at(share: float) -> float:
        reached = itertools.accumulate(weight for _, weight in found)
        return next(ns for (ns, _), weight in zip(found, reached, strict=True) if weight >= share * total) / 1e6

    return {"stage": names[stage], "task_ms": {"p10": at(0.1), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99)}}


def micropartitions(folder: Path, chosen: argparse.Namespace) -> Iterator[runs.Case]:
    """Yields the cases with 1 to 16 partitions per core."""
    build, cores = results.build(), os.cpu_count()
    peers = results.fingerprint([runs.HERE / "spark.scala", binary.ROOT / "requirements" / "bench-iterate.in"])
    for application, path in data(folder, SMALL_SCALE).items():
        for each in PARTITIONS_A_CORE:
            case = {"experiment": "micropartitions", "application": application, "partitions a core": each}

            def own():
                with tempfile.TemporaryDirectory() as place:
                    trace = Path(place) / "job.trace"
                    found = runs.ours(application, path, 30, "--partitions", cores * each, "--trace", trace)
                    return found | distribution(trace)

            yield runs.Case(case | {"peer": "Pellucid f64"}, build, own)
            if "spark" not in chosen.without:
                peer = SPARK[application]
                limit = chosen.limit
                yield runs.Case(case | {"peer": peer}, peers, lambda: runs.spark(application, peer, path, 3, limit, cores * each))


def workers(folder: Path, chosen: argparse.Namespace) -> Iterator[runs.Case]:
    """Yields the cases with the same partitions on one core and on all."""
    build = results.build()
    for application, path in data(folder).items():
        for threads in (1, os.cpu_count()):
            case = {"experiment": "workers", "application": application, "workers": threads}
            options = ["--workers", threads, "--partitions", 4 * os.cpu_count()]
            yield runs.Case(case, build, lambda: runs.ours(application, path, 30, *options))


def job_ms(trace: Path) -> float:
    """Returns the time of a trace's job in ms."""
    return json.loads(binary.run("analyze", trace, "--json").check().out)["jobs"][0]["duration_ms"]


def whatif(folder: Path) -> Iterator[runs.Case]:
    """Yields the cases that predict all cores from a trace of one core and measure them, three times in turn."""
    build, cores = results.build(), os.cpu_count()
    for application, path in data(folder).items():

        def predicted():
            predictions, measured = [], []
            with tempfile.TemporaryDirectory() as place:
                one, all_ = Path(place) / "one.trace", Path(place) / "all.trace"
                options = ["--partitions", 4 * cores, "--bandwidth"]
                for _ in range(3):
                    runs.ours(application, path, 30, *options, "--workers", 1, "--trace", one)
                    runs.ours(application, path, 30, *options, "--workers", cores, "--trace", all_)
                    asked = binary.run("whatif", one, "--set", f"workers={cores}", "--json").check()
                    answer = json.loads(asked.out)["prediction"]
                    predictions.append({key: answer[key] for key in ("duration_ms", "low_ms", "high_ms")})
                    measured.append({"one_ms": job_ms(one), "all_ms": job_ms(all_)})
            return {"predictions": predictions, "measured": measured}

        yield runs.Case({"experiment": "whatif", "application": application, "workers": cores}, build, predicted)


def example(name: str) -> list[dict]:
    """Returns the JSON lines that an example of the crate prints."""
    ran = subprocess.run([runs.built(name)], cwd=binary.ROOT, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError((ran.stderr.strip().splitlines() or [f"{name} exits with {ran.returncode}"])[-1])
    return [json.loads(line) for line in ran.stdout.splitlines()]


def scaling() -> Iterator[runs.Case]:
    """Yields the case of up to a thousand simulated workers."""

    def simulated():
        lines = example("scaling")
        return {"lines": lines, "iteration_s": [statistics.fmean(line["iteration_ns"] for line in lines) / 1e9]}

    yield runs.Case({"experiment": "scaling"}, results.fingerprint([runs.built("scaling")]), simulated)


def uneven() -> Iterator[runs.Case]:
    """Yields the case of a worker that slows to half its speed, joins or leaves, three times each."""
    by = results.fingerprint([runs.built("uneven")])
    yield runs.Case({"experiment": "uneven"}, by, lambda: {"lines": [line for _ in range(3) for line in example("uneven")]})
