"""`pellucid iterate`: results equal those of scikit-learn, networkx and scipy, are bit-equal for any number of workers,
and bad input is refused with its place and the remedy.

Each test states its tolerance. Both sides run to convergence (gradients of 1e-11, assignments that no longer change,
changes of ranks of 1e-13), so that tests compare solutions and not stopping points.
"""

import json
import os
import re
import resource
import subprocess

import networkx
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from harness import binary, traces
from harness.binary import FAILED, USAGE
from harness.damage import fill
from harness.iterate import refused, write
from lab import disks, kernel, links

SEED = 7


def standardised(x):
    """Scales columns to mean 0 and deviation 1; drops constant ones."""
    x = x[:, x.std(axis=0) > 0]
    return (x - x.mean(axis=0)) / x.std(axis=0)


def bundled() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns scikit-learn's bundled classification data, each with two labels."""
    cancer, digits = datasets.load_breast_cancer(return_X_y=True), datasets.load_digits(return_X_y=True)
    iris, wine = datasets.load_iris(return_X_y=True), datasets.load_wine(return_X_y=True)
    return {
        "breast_cancer": (standardised(cancer[0]), cancer[1]),
        "digits: odd": (digits[0] / 16.0, digits[1] % 2),
        "iris: virginica": (iris[0], iris[1] == 2),
        "wine: first": (standardised(wine[0]), wine[1] == 0),
    }


DATA = bundled()


def iterate(*args) -> dict:
    """Runs a job that must succeed and returns its document, with plain floats."""
    document = json.loads(binary.run("iterate", *args, "--json").check().out)
    assert document["format"] == "pellucid.iterate/1"
    assert {"iterations", "converged", "iteration_ms", "tasks", "tasks_per_s", "scheduler_share"} <= set(document)
    return document


def regression(path, *options) -> tuple[np.ndarray, float, dict]:
    document = iterate("logistic-regression", path, "--label", "y", "--iterations", 20000, *options)
    assert document["converged"], document["iterations"]
    result = document["result"]
    return np.array(result["coefficients"]), result["intercept"], document


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("l2", [0.1, 1.0, 30.0])
def test_logistic_regression_equals_scikit_learn(tmp_path, name, l2):
    """Compares coefficients and intercept to 1e-5 absolute; they are of the order of 1."""
    x, y = DATA[name]
    right = LogisticRegression(C=1.0 / l2, tol=1e-12, max_iter=1000, solver="newton-cholesky").fit(x, y)
    weights, intercept, document = regression(write(tmp_path / "a.parquet", x, y), "--l2", l2, "--tolerance", 1e-11, "--partitions", 5)
    np.testing.assert_allclose(weights, right.coef_[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(intercept, right.intercept_[0], rtol=0, atol=1e-5)
    z = x @ weights + intercept
    loss = (np.logaddexp(0, z) - np.asarray(y) * z).mean() + l2 / 2 * weights @ weights / len(y)
    assert document["result"]["loss"] == pytest.approx(loss, rel=1e-12)


def test_gradient_descent_and_f32_match_the_default_solver(tmp_path):
    """Both to 1e-3: gradient descent needs many passes for the last digits, and f32 has this precision here."""
    x, y = DATA["breast_cancer"]
    path = write(tmp_path / "a.parquet", x, y)
    weights, intercept, _ = regression(path, "--l2", 30, "--tolerance", 1e-9)
    descent, b, document = regression(path, "--l2", 30, "--solver", "gd", "--tolerance", 1e-6)
    assert document["iterations"] > 100
    np.testing.assert_allclose([*descent, b], [*weights, intercept], rtol=0, atol=1e-3)
    narrow, b, _ = regression(path, "--l2", 30, "--precision", "f32", "--tolerance", 1e-6)
    np.testing.assert_allclose([*narrow, b], [*weights, intercept], rtol=0, atol=1e-3)
    stepped, b, _ = regression(path, "--l2", 30, "--solver", "gd", "--step", 0.4, "--tolerance", 1e-6)
    np.testing.assert_allclose([*stepped, b], [*weights, intercept], rtol=0, atol=1e-3)


CLUSTERED = {"iris": 3, "wine": 5, "digits": 10, "breast_cancer": 2}


@pytest.mark.parametrize("name", CLUSTERED)
@pytest.mark.parametrize("tolerance", [0.0, 1e-4])
def test_kmeans_equals_scikit_learn(tmp_path, name, tolerance):
    """Starts both from the same centers: equal assignments and iterations; centers and inertia to 1e-9 relative."""
    x = getattr(datasets, f"load_{name}")().data.astype(np.float64)
    random = np.random.default_rng(SEED)
    first = x[random.choice(len(x), CLUSTERED[name], replace=False)]
    # Part of the data are whole numbers: without this, some rows are equally far from two centers.
    first = first + 0.01 * x.std() * random.normal(size=first.shape)
    right = KMeans(len(first), init=first, n_init=1, tol=tolerance, max_iter=300, algorithm="lloyd").fit(x)
    data, init = write(tmp_path / "a.parquet", x), write(tmp_path / "init.csv", first)
    out = tmp_path / "assignments.parquet"
    document = iterate("kmeans", data, "--init", init, "--tolerance", tolerance, "--partitions", 4, "-o", out)
    assert document["converged"]
    result = document["result"]
    np.testing.assert_allclose(result["centers"], right.cluster_centers_, rtol=1e-9, atol=1e-9 * np.abs(x).max())
    assert result["inertia"] == pytest.approx(right.inertia_, rel=1e-9)
    assigned = pq.read_table(out)
    assert assigned["row"].to_pylist() == list(range(len(x)))
    assert (assigned["center"].to_numpy() == right.labels_).all()


def test_kmeans_plus_plus_inertia_is_close_to_scikit_learn(tmp_path):
    """Compares the best of ten seeds: inertia within 1 %. Each seed is deterministic."""
    x = datasets.load_digits().data
    data = write(tmp_path / "a.parquet", x)
    right = KMeans(10, n_init=10, random_state=SEED).fit(x).inertia_
    found = [iterate("kmeans", data, "--k", 10, "--seed", seed)["result"]["inertia"] for seed in range(10)]
    assert min(found) <= 1.01 * right, f"{min(found)}, scikit-learn {right}"
    assert len(set(found)) > 1, "the seed changes nothing"
    assert iterate("kmeans", data, "--k", 10, "--seed", 3)["result"]["inertia"] == found[3]


def ranks(tmp_path, edges, *options) -> tuple[np.ndarray, np.ndarray]:
    """Returns vertices and ranks of an edge list, from the file that -o writes."""
    path, out = tmp_path / "graph.el", tmp_path / "ranks.parquet"
    path.write_text("".join(f"{a} {b}\n" for a, b in edges))
    document = iterate("pagerank", path, "--tolerance", 1e-13, "--iterations", 5000, "-o", out, *options)
    assert document["converged"]
    table = pq.read_table(out)
    vertices, found = table["vertex"].to_numpy(), table["rank"].to_numpy()
    assert document["result"]["sum"] == pytest.approx(1.0, abs=1e-12)
    top = document["result"]["top"]
    assert [entry["rank"] for entry in top] == sorted(found, reverse=True)[:10]
    assert all(found[list(vertices).index(entry["vertex"])] == entry["rank"] for entry in top)
    return vertices, found


def graphs() -> dict[str, networkx.DiGraph]:
    """Returns directed graphs with loops, hubs and vertices without outgoing edges."""
    gnp = networkx.gnp_random_graph(400, 0.01, seed=SEED, directed=True)
    return {
        "karate club": networkx.DiGraph(networkx.karate_club_graph()),
        "random": gnp.subgraph([v for v in gnp if gnp.degree(v)]),
        "scale free": networkx.MultiDiGraph(networkx.scale_free_graph(1000, seed=SEED)),
        "path": networkx.path_graph(50, create_using=networkx.DiGraph),
    }


@pytest.mark.parametrize("name, graph", graphs().items())
@pytest.mark.parametrize("damping, partitions", [(0.85, 1), (0.85, 9), (0.5, 4)])
def test_pagerank_equals_networkx(tmp_path, name, graph, damping, partitions):
    """Compares each rank to 1e-12 absolute."""
    vertices, found = ranks(tmp_path, graph.edges(), "--damping", damping, "--partitions", partitions)
    right = networkx.pagerank(graph, alpha=damping, tol=1e-15, max_iter=10_000, weight=None)
    np.testing.assert_allclose(found, [right[vertex] for vertex in vertices], rtol=0, atol=1e-12)


def test_pagerank_equals_scipy_on_a_larger_graph(tmp_path):
    """Compares ranks to 1e-12 absolute on 200,000 edges between skewed vertices, some of them isolated."""
    n = 20_000
    random = np.random.default_rng(SEED)
    source, destination = (random.random((2, 200_000)) ** 3 * n).astype(np.int64)
    edges = list(zip(source.tolist(), destination.tolist()))
    vertices, found = ranks(tmp_path, edges, "--vertices", n, "--partitions", 16)
    assert (vertices == np.arange(n)).all()
    degree = np.bincount(source, minlength=n)
    along = scipy.sparse.csr_array((1.0 / degree[source], (destination, source)), shape=(n, n))
    right = np.full(n, 1.0 / n)
    for _ in range(300):
        right = 0.15 / n + 0.85 * (along @ right + right[degree == 0].sum() / n)
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_results_are_bit_equal_for_any_number_of_workers(tmp_path, precision):
    """Compares results and output files of 1, 2 and 4 workers."""
    x, y = DATA["digits: odd"]
    table = write(tmp_path / "a.parquet", x, y)
    edges = tmp_path / "graph.el"
    pairs = (np.random.default_rng(SEED).random((20_000, 2)) ** 2 * 3000).astype(int)
    edges.write_text("".join(f"{a} {b}\n" for a, b in pairs))
    jobs = [
        ("logistic-regression", table, "--label", "y", "--partitions", 7),
        ("kmeans", table, "--k", 8, "--partitions", 7),
        ("pagerank", edges, "--partitions", 9),
    ]
    for job in jobs:
        found = []
        for workers in (1, 2, 4):
            out = tmp_path / f"{workers}.parquet"
            document = iterate(*job, "--precision", precision, "--workers", workers, "-o", out)
            found.append((document["result"], document["iterations"], pq.read_table(out)))
        assert found[0] == found[1] == found[2], f"{job[0]}: not bit-equal"


@pytest.mark.parametrize("encryption", [(), ("--encrypt",)])
def test_processes_give_the_same_result_as_threads(tmp_path, encryption):
    """Runs two processes over TCP: the model must be bit-equal."""
    path = write(tmp_path / "a.parquet", *DATA["breast_cancer"])
    here = regression(path, "--partitions", 6)[2]
    there = regression(path, "--partitions", 6, "--processes", 2, *encryption)[2]
    assert (here["result"], here["iterations"]) == (there["result"], there["iterations"])


def test_workers_in_two_network_namespaces_give_the_same_result(tmp_path):
    """Runs one worker here and one behind a link in another network namespace; the test starts both."""
    if links.missing():
        pytest.skip(f"no network namespaces: {links.missing()}")
    path = write(tmp_path / "a.parquet", *DATA["breast_cancer"])
    command = ["iterate", "logistic-regression", path, "--label", "y", "--partitions", 6, "--json"]
    expected = json.loads(binary.run(*command).check().out)
    with links.link() as link:
        address = f"{link.client}:47611"
        shared = {"PELLUCID_ITERATE_SECRET": "between the two of us"}
        options = ["--processes", 2, "--listen", address]
        controller = binary.start(*command, *options, env=os.environ | shared)
        workers = []
        for rank in (0, 1):
            words = [binary.binary(), *command, *options]
            words = link.inside(*map(str, words)) if rank == 1 else [str(word) for word in words]
            own = shared | {"PELLUCID_ITERATE_CONTROLLER": address, "PELLUCID_ITERATE_RANK": str(rank)}
            workers.append(subprocess.Popen(words, env=os.environ | own, stderr=subprocess.PIPE, text=True))
        out, err = controller.communicate(timeout=120)
        worker_errors = [worker.communicate(timeout=60)[1] for worker in workers]
    assert controller.returncode == 0, f"{err}{worker_errors}"
    assert f"waiting for 2 workers at {address}" in err
    found = json.loads(out)
    assert (found["result"], found["iterations"]) == (expected["result"], expected["iterations"])


@pytest.mark.parametrize("processes", [(), ("--processes", 2)])
def test_full_snapshot_disk_fails_the_job_and_is_named(tmp_path, processes):
    """Drawing first centers snapshots 24 MB of squared distances, on a disk of 16 MB."""
    if kernel.missing():
        pytest.skip(f"no small file system can be made: {kernel.missing()}")
    random = np.random.default_rng(SEED)
    data = write(tmp_path / "a.parquet", random.normal(size=(3_000_000, 1)))
    with disks.throttled("200MB/s", name=f"full-{os.getpid()}", size="16MiB", mode="kernel", calibrated=False) as disk:
        place = disk.path / "saved"
        options = ("--k", 40, "--tolerance", 0, "--iterations", 5000, "--snapshot", place, "--snapshot-every", 1)
        message = refused(FAILED, "kmeans", data, *options, *processes)
    assert str(place) in message and "space" in message.lower(), message


def test_full_trace_disk_does_not_lose_the_result(tmp_path):
    """The trace is over 40 kB, of which 16 kB fit."""
    if kernel.missing():
        pytest.skip(f"no small file system can be made: {kernel.missing()}")
    random = np.random.default_rng(SEED)
    data = write(tmp_path / "a.csv", random.normal(size=(400, 1)), random.integers(0, 2, 400))
    with disks.throttled("200MB/s", name=f"full-{os.getpid()}", size="16MiB", mode="kernel", calibrated=False) as disk:
        ballast = disk.path / "ballast"
        fill(ballast)
        os.truncate(ballast, ballast.stat().st_size - (16 << 10))
        slowly = ("--solver", "gd", "--step", 1e-6, "--tolerance", 0, "--iterations", 100_000, "--partitions", 16)
        command = ("logistic-regression", data, "--label", "y", "--json", *slowly)
        ran = binary.run("iterate", *command, "--trace", disk.path / "q.trace")
    assert ran.code == 1 and "q.trace is incomplete" in ran.err and "space" in ran.err.lower(), ran.err
    assert len(ran.json()["result"]["coefficients"]) == 1


def test_jobs_can_share_a_snapshot_folder(tmp_path):
    """Runs another penalty between a job's two runs; the second run resumes only from its own snapshot."""
    path, place = write(tmp_path / "a.parquet", *DATA["breast_cancer"]), tmp_path / "kept"

    def job(l2, iterations, *more):
        options = ("--label", "y", "--solver", "gd", "--l2", l2, "--tolerance", 0, "--iterations", iterations)
        return binary.run("iterate", "logistic-regression", path, *options, *more, "--json").check()

    snapshots = ("--snapshot", place, "--snapshot-every", 100)
    expected = job(1, 40_000)
    job(1, 30_000, *snapshots)
    assert len(list(place.glob("*/manifest.json"))) == 1
    job(2, 40_000, *snapshots)
    assert len(list(place.glob("*/manifest.json"))) == 2
    found = job(1, 40_000, *snapshots)
    assert "resumed from the snapshot of iteration" in found.err
    assert json.loads(found.out)["result"] == json.loads(expected.out)["result"]


def test_folder_with_more_files_than_the_open_file_limit(tmp_path):
    x, _ = DATA["iris: virginica"]
    (tmp_path / "rows").mkdir()
    for part in range(len(x)):
        write(tmp_path / "rows" / f"{part:03}.parquet", x[part : part + 1])

    def limit_open_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))

    options = ("--k", 3, "--seed", 1)
    ran = binary.run("iterate", "kmeans", (tmp_path / "rows").as_uri(), *options, "--json", preexec_fn=limit_open_files).check()
    assert json.loads(ran.out)["result"] == iterate("kmeans", tmp_path / "rows", *options)["result"]


def test_bandwidth_and_trace_are_recorded_on_request(tmp_path):
    path, trace = write(tmp_path / "a.parquet", *DATA["breast_cancer"]), tmp_path / "a.trace"
    plain = regression(path)[2]
    assert plain["memory_bandwidth"] == {"bytes_per_s": None, "share": None}
    measured = regression(path, "--bandwidth", "--trace", trace)[2]
    assert measured["memory_bandwidth"]["bytes_per_s"] > 1e8 and measured["memory_bandwidth"]["share"] > 0
    analysis = json.loads(binary.run("analyze", trace, "--json").check().out)
    assert {"evaluate", "step"} <= {stage["name"] for stage in analysis["stages"]}
    # The data are small, so starting may take longer than the tasks.
    assert analysis["jobs"][0]["bottleneck"] is None or analysis["jobs"][0]["bottleneck"]["kind"] in ("cpu", "memory_bandwidth")
    kinds = {resource["kind"] for resource in analysis["resources"]}
    assert kinds == {"cpu", "memory_bandwidth"}
    answer = json.loads(binary.run("whatif", trace, "--set", "workers=3", "--json").check().out)
    assert answer["prediction"]["duration_ms"] > 0 and "workers" in " ".join(answer["assumptions"])
    assert "workers" in binary.run("whatif", trace, "--set", "disks=2").err


def test_processes_share_one_trace(tmp_path):
    """The trace has every task of two processes on one clock, and every byte that they exchanged."""
    path, trace = write(tmp_path / "a.parquet", *DATA["breast_cancer"]), tmp_path / "a.trace"
    document = regression(path, "--partitions", 6, "--processes", 2, "--trace", trace)[2]
    records = list(traces.lines(trace))
    stages = [record for record in records if record["t"] == "stage"]
    resources = [record for record in records if record["t"] == "resource"]
    tasks = [record for record in records if record["t"] == "sampled_task"]
    (job,) = [record for record in records if record["t"] == "job"]
    (end,) = [record for record in records if record["t"] == "job_end"]
    assert [resource["concurrency"] for resource in resources if resource["kind"] == "cpu"] == [2 * max(1, os.cpu_count() // 2)]
    assert {task["partition"] for task in tasks if stages[task["stage"]]["name"] == "evaluate"} == set(range(6))
    assert all(job["submitted_ns"] <= task["started_ns"] <= end["ended_ns"] for task in tasks)
    # By stage and thread, fewer tasks than a sample's weight remain unsampled at the end.
    counted = sum(task["weight"] for task in tasks)
    assert counted <= document["tasks"] <= counted + 256 * 2 * len(stages)
    sent = [record for record in records if record["t"] == "exchange"]
    assert {resources[record["resource"]]["kind"] for record in sent} == {"network"}
    # Each iteration sends the model to the other process and a sum back.
    assert sum(record["messages"] for record in sent) >= 2 * document["iterations"]
    assert all(record["bytes"] > 8 * record["messages"] for record in sent)
    notes = json.loads(binary.run("analyze", trace, "--json").check().out)["notes"]
    assert any(note.startswith("workers sent each other") for note in notes), notes
    answer = json.loads(binary.run("whatif", trace, "--set", "network.rate=1Mbit/s", "--json").check().out)
    assert answer["prediction"]["duration_ms"] > answer["baseline"]["measured_ms"]


def test_formats_give_the_same_model(tmp_path):
    """Compares CSV, Parquet and a folder of parts; unused text columns are ignored."""
    x, y = DATA["wine: first"]
    (tmp_path / "parts").mkdir()
    names = np.array([f"wine {row}" for row in range(len(y))])
    paths = [write(tmp_path / "a.parquet", x, y, name=names), write(tmp_path / "a.csv", x, y), tmp_path / "parts"]
    for part in range(3):
        write(tmp_path / "parts" / f"{part}.parquet", x[part::3], np.asarray(y)[part::3])
    models = [regression(path, "--partitions", 3)[2]["result"] for path in paths[:2]]
    assert models[0] == models[1]
    together = regression(paths[2], "--partitions", 3)[0]
    np.testing.assert_allclose(together, models[0]["coefficients"], rtol=0, atol=1e-4)


def test_pattern_matches_several_files(tmp_path):
    """The folder also has a file that the pattern does not match."""
    x, y = DATA["iris: virginica"]
    write(tmp_path / "a1.csv", x[:70], y[:70]), write(tmp_path / "a2.csv", x[70:], y[70:]), write(tmp_path / "b.csv", x + 1, y)
    whole = regression(write(tmp_path / "whole.csv", x, y))[0]
    np.testing.assert_array_equal(regression(tmp_path / "a*.csv")[0], whole)


def test_text_output_shows_model_and_summary(tmp_path):
    x, y = DATA["iris: virginica"]
    ran = binary.run("iterate", "logistic-regression", write(tmp_path / "a.csv", x, y), "--label", "y").check()
    assert re.search(r"\(intercept\) +-?\d", ran.out) and re.search(r"f3 +\d", ran.out)
    assert re.search(r"\d+ iterations on 1 partitions, converged · loss \d", ran.err), ran.err
    quiet = binary.run("iterate", "kmeans", tmp_path / "a.csv", "--k", 2, "--quiet").check()
    assert quiet.err == "" and "inertia" in quiet.out


def test_bad_tables_are_refused(tmp_path):
    x, y = DATA["iris: virginica"]
    table = write(tmp_path / "a.parquet", x, y)
    fit = ("logistic-regression", table)
    assert "no column yy; nearest names: y" in refused(USAGE, *fit, "--label", "yy")
    assert "no column f9; nearest names: f" in refused(USAGE, *fit, "--label", "y", "--features", "f0,f9")
    assert "150 rows" in refused(USAGE, *fit, "--label", "y", "--partitions", 151)
    assert "cannot use --step with --solver lbfgs" in refused(USAGE, *fit, "--label", "y", "--step", 1)
    assert "a penalty is 0 or more" in refused(USAGE, *fit, "--label", "y", "--l2=-1")
    assert "PELLUCID_ITERATE_SECRET" in refused(USAGE, *fit, "--label", "y", "--processes", 2, "--listen", "127.0.0.1:0")
    assert "ends in .parquet" in refused(USAGE, *fit, "--label", "y", "-o", tmp_path / "a.txt")
    assert "is not a folder" in refused(USAGE, *fit, "--label", "y", "-o", tmp_path / "none" / "a.parquet")
    for place, option in (("s3://bucket/a.parquet", "-o"), ("s3://bucket/a.trace", "--trace")):
        message = refused(USAGE, *fit, "--label", "y", option, place)
        assert f"cannot write to {place}" in message and "local files only" in message, message
    message = refused(FAILED, *fit, "--label", "y", "--snapshot", "/proc/none")
    assert "cannot write snapshots to /proc/none" in message and "--snapshot" in message, message
    assert "no file matches" in refused(FAILED, "logistic-regression", tmp_path / "none*.csv", "--label", "y")
    assert "local files only" in refused(USAGE, "logistic-regression", "s3://bucket/*.csv", "--label", "y")
    assert "labels are 0 and 1" in refused(FAILED, *fit, "--label", "f0")
    gone = refused(FAILED, "logistic-regression", tmp_path / "none.csv", "--label", "y")
    assert "none.csv" in gone and "check the path" in gone
    csv = tmp_path / "b.csv"
    for text, expected in [
        ("y,x\n1,1\nNaN,2\n0,3\n", r"b\.csv, row 2: column y is NaN"),
        ("y,x\n1,1\n0,inf\n", r"b\.csv, row 2: column x is inf"),
        ("y,x\n1,1\n0,two\n", r'b\.csv, line 3, column 2: "two" is not a number'),
        ("y,x\n1,1\n0\n", r"line 3, column 2: the line has too few columns"),
        ("y,x\n1,1\n1,2\n", r"only label 1"),
        ("y,x\n1,1\n0,2\n2,3\n", r"row 3: label y is 2, where others are 0 and 1"),
        ("y,x\n", r"has no rows"),
    ]:
        csv.write_text(text)
        message = refused(FAILED, "logistic-regression", csv, "--label", "y")
        assert re.search(expected, message), f"{expected!r} is not in: {message}"
    assert not list(tmp_path.glob(".*")), "partial output was left"


def test_bad_clusters_are_refused(tmp_path):
    data = write(tmp_path / "a.csv", np.array([[1.0], [1.0], [2.0], [2.0]]))
    assert "set it with --k N" in refused(USAGE, "kmeans", data)
    assert "between 1 and 4 centers" in refused(USAGE, "kmeans", data, "--k", 5)
    assert "between 1 and 4 centers" in refused(USAGE, "kmeans", data, "--k", 0)
    assert "only 2 rows differ" in refused(FAILED, "kmeans", data, "--k", 3)
    init = write(tmp_path / "init.csv", np.array([[1.0], [2.0]]))
    assert "has 2 centers" in refused(USAGE, "kmeans", data, "--init", init, "--k", 3)
    other = tmp_path / "other.csv"
    other.write_text("g0\n1\n")
    assert "no column f0" in refused(USAGE, "kmeans", data, "--init", other)
    assert "cannot use --seed" in refused(USAGE, "kmeans", data, "--init", init, "--seed", 7)


def test_missing_worker_settings_are_named(tmp_path, monkeypatch):
    """A controller too is checked before it replaces an existing trace."""
    data = write(tmp_path / "a.csv", np.array([[1.0], [2.0]]))
    trace = tmp_path / "old.trace"
    trace.write_text("old")
    listens = ["--processes", 2, "--listen", "127.0.0.1:0", "--trace", trace]
    assert "set PELLUCID_ITERATE_SECRET" in refused(USAGE, "kmeans", data, "--k", 2, *listens)
    monkeypatch.setenv("PELLUCID_ITERATE_SECRET", "spark123")
    assert "openssl rand -hex 32" in refused(USAGE, "kmeans", data, "--k", 2, *listens)
    assert trace.read_text() == "old"
    monkeypatch.setenv("PELLUCID_ITERATE_CONTROLLER", "127.0.0.1:1")
    monkeypatch.setenv("PELLUCID_ITERATE_SECRET", "spark123")
    assert "cannot use PELLUCID_ITERATE_SECRET" in refused(USAGE, "kmeans", data, "--k", 2)
    monkeypatch.setenv("PELLUCID_ITERATE_SECRET", "longer than fifteen characters")
    assert "PELLUCID_ITERATE_RANK is not set" in refused(USAGE, "kmeans", data, "--k", 2)
    monkeypatch.setenv("PELLUCID_ITERATE_RANK", "one")
    assert "RANK=one: a worker's rank is a number" in refused(USAGE, "kmeans", data, "--k", 2)


def test_too_many_threads_are_an_error(tmp_path):
    data = write(tmp_path / "a.csv", np.array([[1.0], [2.0]]))
    words = [str(binary.binary()), "iterate", "kmeans", str(data), "--k", "2", "--workers", "5000"]
    # Limits address space, which each thread's stack needs.
    limit_address_space = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    for more in ((), ("--processes", "1")):
        for _ in range(5):
            ran = subprocess.run([*words, *more], preexec_fn=limit_address_space, capture_output=True, text=True, timeout=120)
            # The standard library aborts if only the guard stack of a new thread no longer fits.
            if "alternative stack" not in ran.stderr:
                break
        assert ran.returncode == 1 and not binary.PANIC.search(ran.stderr), ran.stderr
        if not more:
            assert "of 5000 threads can be started" in ran.stderr


def test_bad_graphs_are_refused(tmp_path):
    graph = tmp_path / "a.el"
    for text, options, expected in [
        ("0 1\n1 7\n", ("--vertices", 5), r"a\.el, line 2: vertex 7 is out of range: with --vertices 5 they are 0 to 4"),
        ("0 1\n1 x\n", (), r'line 2: "x" is not a vertex'),
        ("0 1\n1\n", (), r"line 2: .* is not a vertex; a line is two whole numbers"),
        ("0 -1\n", (), r'"-1" is not a vertex'),
        ("# nothing\n", (), r"has no edges"),
    ]:
        graph.write_text(text)
        message = refused(FAILED, "pagerank", graph, *options)
        assert re.search(expected, message), f"{expected!r} is not in: {message}"
    graph.write_text("0 1\n1 0\n")
    assert "--damping 1" in refused(USAGE, "pagerank", graph, "--damping", 1)
    assert "into 50 partitions; use fewer" in refused(USAGE, "pagerank", graph, "--partitions", 50)
