"""Tests of the iterative benchmarks' pure parts: limits, distributions, and the page."""

import json

import pytest
import zstandard

from bench.common import results
from bench.iterate import experiments, run, table


def line(case: dict, **found) -> dict:
    common = {"machine": "a machine", "memory": "kept", "others_cores": 0.0, "build": "b"}
    return {"case": case, **common, **found}


def test_limits_are_bytes_over_bandwidth():
    rows = {"application": "regression", "peer": "Pellucid f64", "rows": 1_000_000, "turn": 1}
    assert table.limit_s(line(rows, memory_bytes_per_s=16.8e9)) == pytest.approx(0.01)
    assert table.limit_s(line(rows | {"peer": "Pellucid f32"}, memory_bytes_per_s=16.8e9)) == pytest.approx(0.005)
    graph = {"application": "pagerank", "peer": "Pellucid f64", "scale": 10, "turn": 1}
    assert table.limit_s(line(graph, memory_bytes_per_s=8 * 16 * 1024 * 100.0)) == pytest.approx(0.01)
    assert table.limit_s(line(rows)) is None


def test_distribution_weighs_samples(tmp_path):
    records = [{"t": "stage", "name": name} for name in ("small", "large")]
    records += [{"t": "sampled_task", "stage": 0, "service_ns": 1_000, "weight": 10.0}]
    records += [{"t": "sampled_task", "stage": 1, "service_ns": ns, "weight": weight} for ns, weight in [(4e6, 1.0), (1e6, 98.0), (2e6, 1.0)]]
    path = tmp_path / "a.trace"
    path.write_bytes(zstandard.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    found = experiments.distribution(path)
    assert found == {"stage": "large", "task_ms": {"p10": 1.0, "p50": 1.0, "p90": 1.0, "p99": 2.0}}


def test_page_shows_ratios_errors_and_missing_measurements():
    ours = {"application": "kmeans", "peer": "Pellucid f64", "rows": 1_000_000}
    found = {"memory_bytes_per_s": 16e9, "check": 1.0, "command": "pellucid iterate kmeans"}
    lines = [
        line(ours | {"turn": 1}, iteration_s=[0.010], **found),
        line(ours | {"peer": "scikit-learn", "turn": 1}, iteration_s=[0.5], check=1.0),
        line(ours | {"peer": "Spark MLlib", "turn": 1}, error="out of memory"),
        line(ours | {"turn": 2}, iteration_s=[0.012], **found),
        line(
            {"experiment": "micropartitions", "application": "kmeans", "partitions a core": 4, "peer": "Spark MLlib"},
            iteration_s=[0.2],
            tasks_per_s=1000.4,
            outside_tasks=0.25,
            task_ms={"p10": 1, "p50": 2, "p90": 3, "p99": 4},
        ),
        line(
            {"experiment": "uneven"},
            lines=[{"case": "slowed", "before_ms": 30, "first_ten_ms": 50, "after_ms": 44, "ideal_ms": 40, "migrations": 4, "recoveries": 0}],
        ),
        line({"experiment": "floors"}, ns={"task with work/threads/1": [260, 250, 270], "the work alone": [247, 245, 250]}),
    ]
    page = table.page(table.newest(lines))
    assert "| Pellucid f64 | 0.0110 | 0.0100 0.0120 |  | 1.10 | 1 | 0.0 |" in page
    assert "| scikit-learn | 0.5000 |  | 45.5 |" in page and "| Spark MLlib | out of memory |" in page
    assert "| kmeans | 4 | Spark MLlib | 0.2000 | 1,000 | 1.00, 2.00, 3.00, 4.00 | 25.0% |" in page
    assert "| slowed | 30.0 | 50.0 | 44.0 | 40.0 | +10% | 4 | 0 |" in page
    assert "overhead is 5.0% of their time" in page
    assert "| overhead of useful tasks | ≤ 10 % | 5 % | met |" in page
    assert "| useful tasks per core | ≥ 3.6 million/s | 3.85 million/s | met |" in page
    assert "| iterations after a worker slowed, over the ideal | ≤ 15 % | 10 % | met |" in page
    assert "| k-means, speed over MLlib | ≥ 60 × | not measured | |" in page


def test_peer_that_timed_out_is_repeated_with_a_longer_limit(monkeypatch):
    case = {"application": "pagerank", "peer": "GraphX"}
    lines = [line(case, error="not done after 60 s", limit_s=60)]
    monkeypatch.setattr(results, "made", lambda suite, by: lines)
    assert run.is_done(case, "b", 60) and not run.is_done(case, "b", 120)
    lines.append(line(case, iteration_s=[1.0]))
    assert run.is_done(case, "b", 120)
