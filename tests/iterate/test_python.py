"""The Python package: programs give correct results, kernels run without the GIL, arrays are not copied, errors are located.

Uses the extension module of the release build, which `make test` builds too. With PELLUCID_FULL=1 the wheel is built and
installed as users do it.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import venv

import numpy as np
import pyarrow as pa
import pytest

from harness import binary
from harness.binary import ROOT

SEED = 11


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A folder with the package and the extension module of the build."""
    built = binary.binary().parent / "lib_native.so"
    assert built.exists(), f"{built} does not exist; run cargo build --release --workspace --lib"
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "python" / "pellucid", folder / "pellucid")
    shutil.copy(built, folder / "pellucid" / "_native.abi3.so")
    return folder


@pytest.fixture(scope="session")
def pellucid(package):
    sys.path.insert(0, str(package))
    import pellucid

    return pellucid


def script(package, text: str, **options) -> subprocess.Popen:
    """Starts a Python process that runs a script."""
    environment = os.environ | {"PYTHONPATH": str(package), "NUMBA_NUM_THREADS": "1"}
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], env=environment, **(settings | options))


def examples() -> list[tuple[str, str, str]]:
    """Returns the examples of the pages: page, code, and the output that the page shows."""
    found = []
    for page in (ROOT / "README.md", ROOT / "python" / "README.md"):
        text = page.read_text()
        for example in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            if "import pellucid" in example[1]:
                printed = re.search(r"[Pp]rints `([^`]*)`", text[example.end() :])
                found.append((str(page.relative_to(ROOT)), example[1], printed[1]))
    return found


def test_examples_print_the_documented_output(package):
    assert examples(), "no page has an example"
    for page, code, printed in examples():
        out, err = script(package, code).communicate(timeout=300)
        assert out.strip() == printed, f"{page}: {out}{err}"
        assert sum(bool(line.strip()) for line in code.splitlines()) <= 20, f"{page}: more than twenty lines"


def least_squares(pellucid, kernel, workers):
    """Fits random rows by gradient descent; returns the result, the weights and the expected weights."""
    random = np.random.default_rng(SEED)
    x = random.normal(size=(5_000, 6))
    y = x @ random.normal(size=6) + 0.1 * random.normal(size=5_000)
    program = pellucid.Program("least squares")
    rows, labels = program.array("rows", x, 7), program.array("labels", y, 7)
    w, copies = program.zeros("w", 6), program.zeros("copies", 6, 7)
    part, total = program.zeros("part", 6, 7), program.zeros("total", 6)

    def step(g, w):
        w -= g / 5_000

    with program.loop(500) as it:
        program.broadcast(w, copies)
        program.transform(kernel, reads=[rows, labels, copies], writes=[part])
        program.reduce(part, total)
        program.transform(step, reads=[total], writes=[w])
        it.until(total, lambda g: np.abs(g).max() < 1e-9)
    result = program.run(workers=workers)
    return result, result[w], np.linalg.lstsq(x, y, rcond=None)[0]


def gradient(x, y, w, g):
    g[:] = 0.0
    for i in range(len(x)):
        error = -y[i]
        for j in range(len(w)):
            error += x[i, j] * w[j]
        for j in range(len(w)):
            g[j] += error * x[i, j]


@pytest.mark.parametrize("kind", ["compiled", "nogil", "plain"])
def test_program_is_correct_for_any_number_of_workers(pellucid, kind):
    import numba

    def plain(x, y, w, g):
        g[:] = x.T @ (x @ w - y)

    kernels = {"compiled": pellucid.kernel(gradient), "nogil": numba.njit(nogil=True)(gradient), "plain": plain}
    found = [least_squares(pellucid, kernels[kind], workers) for workers in (1, 2, 4)]
    for result, weights, right in found:
        np.testing.assert_allclose(weights, right, atol=1e-9)
        assert 10 < result.iterations < 500 and result.tasks > result.iterations * 7
        assert (weights == found[0][1]).all(), "not bit-equal"


def test_compiled_kernel_runs_while_the_gil_is_held(pellucid):
    """A counter that the kernel writes keeps rising during a C call that holds the GIL."""
    board, enough = np.zeros(1, np.int64), threading.Event()

    @pellucid.kernel
    def count(board, out):
        board[0] += 1
        out[0] = board[0]

    program = pellucid.Program("endless")
    seen, out = program.array("board", board), program.zeros("out", 1, dtype=np.int64)
    with program.loop(1 << 60):
        program.transform(count, reads=[seen], writes=[out])

    def progress(now):
        if enough.is_set():
            raise InterruptedError

    def run():
        with pytest.raises(InterruptedError):
            program.run(progress=progress)

    thread = threading.Thread(target=run)
    thread.start()
    usual = sys.getswitchinterval()
    sleep_locked = ctypes.PyDLL(None).usleep
    try:
        while board[0] == 0:
            time.sleep(0.001)
        sys.setswitchinterval(1e3)
        advanced = False
        for _ in range(200):
            before = board[0]
            sleep_locked(10_000)
            advanced |= bool(board[0] > before)
            if advanced:
                break
    finally:
        sys.setswitchinterval(usual)
        enough.set()
        thread.join(timeout=60)
    assert advanced and not thread.is_alive()


def test_read_only_arrays_are_not_copied(pellucid):
    """Kernels and the caller see the same memory, for numpy's and Arrow's arrays."""
    for given in (np.arange(1000.0), pa.array(np.arange(1000.0))):
        array = np.asarray(given)
        program, seen = pellucid.Program("where"), []
        rows = program.array("rows", given, 4)
        out = program.zeros("out", 1, 4)
        program.transform(lambda rows, out: seen.append((rows.ctypes.data, rows.flags.writeable)), reads=[rows], writes=[out])
        result = program.run()
        start = array.ctypes.data
        assert sorted(seen) == [(start + 8 * 250 * part, False) for part in range(4)]
        assert (result[rows] == array).all()


def test_results_are_returned_without_a_copy(pellucid):
    program = pellucid.Program("out")
    out = program.zeros("out", 4)

    def fill(out):
        out[:] = [1, 2, 3, 4]

    program.transform(fill, writes=[out])
    result = program.run()
    first, second = result[out], result[out]
    assert first.tolist() == [1, 2, 3, 4] and np.shares_memory(first, second)
    arrow = pa.array(first)
    assert arrow.buffers()[1].address == first.ctypes.data


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
def test_reduce_supports_every_type(pellucid, dtype):
    random = np.random.default_rng(SEED)
    values = random.integers(0, 2 if dtype == "?" else 4, size=(20, 3)).astype(dtype)
    right = {"sum": values.any(0) if dtype == "?" else values.sum(0).astype(dtype), "min": values.min(0), "max": values.max(0)}
    for operation, expected in right.items():
        program = pellucid.Program(operation)
        rows = program.arrays("rows", list(values))
        into = program.zeros("into", 3, dtype=dtype)
        program.reduce(rows, into, operation)
        found = program.run()[into]
        assert found.dtype == expected.dtype and (found == expected).all(), (operation, found, expected)


def test_empty_partitions_are_allowed(pellucid):
    program = pellucid.Program("empty")
    rows = program.arrays("rows", [np.ones((0, 3)), np.ones((2, 3)), np.ones((0, 3))])
    part, total = program.zeros("part", 3, 3), program.zeros("total", 3)

    def add(rows, part):
        part[:] = rows.sum(axis=0)

    program.transform(add, reads=[rows], writes=[part])
    program.reduce(part, total)
    assert program.run()[total].tolist() == [2, 2, 2]


def test_loops_nest_and_branches_select(pellucid):
    program = pellucid.Program("control")
    count, odd, sums = program.zeros("count", 1), program.zeros("odd", 1), program.zeros("sums", 2)

    def advance(count, odd):
        count += 1
        odd[:] = count % 2

    def add(to):
        def kernel(count, sums):
            sums[to] += count[0]

        return kernel

    with program.loop(5) as outer:
        with program.loop(4, name="inner"):
            program.transform(advance, writes=[count, odd])
            with program.when(odd) as branch:
                program.transform(add(1), reads=[count], writes=[sums])
                with branch.otherwise():
                    program.transform(add(0), reads=[count], writes=[sums])
        program.observe(count)
        outer.until(count, lambda count: count[0] >= 12)
    result = program.run(workers=2)
    assert result[count].tolist() == [12]
    assert result[sums].tolist() == [2 + 4 + 6 + 8 + 10 + 12, 1 + 3 + 5 + 7 + 9 + 11]
    assert result.iterations == 3 and result.observed == {"count": 12.0}
    assert program.run()[count].tolist() == [12], "a second run must start from the initial values"


@pytest.mark.parametrize("routed", [False, True])
def test_exchange_connects_different_partitionings(pellucid, routed):
    """Compares the ranks of a graph whose edges and vertices are partitioned differently with numpy; bit-equal."""
    n, parts, random = 60, 4, np.random.default_rng(SEED)
    edges = random.integers(0, n, size=(500, 2))
    edges = edges[np.argsort(edges[:, 1], kind="stable")]
    degree = np.maximum(np.bincount(edges[:, 0], minlength=n), 1)
    low = [n * part // parts for part in range(parts + 1)]
    right = np.full(n, 1.0 / n)
    for _ in range(20):
        right = 0.15 / n + 0.85 * np.bincount(edges[:, 1], right[edges[:, 0]] / degree[edges[:, 0]], minlength=n)

    def run(workers):
        program = pellucid.Program("ranks")
        ranks = program.array("ranks", np.full(n, 1.0 / n), parts)
        firsts = program.arrays("firsts", [np.array([first]) for first in low[:-1]])
        share = program.array("degrees", degree, parts)
        # Three partitions of edges, by destination.
        whole = [edges[len(edges) * part // 3 : len(edges) * (part + 1) // 3] for part in range(3)]
        lists, all_ranks = program.arrays("edges", whole), program.zeros("all ranks", n, 3)
        routes = [[0, 1, 2]] * parts if routed else None

        def spread(ranks, degrees, firsts, out):
            out.send_all(np.append(ranks / degrees, firsts))

        def collect(all_ranks, arrived):
            assert [source for source, _ in arrived] == list(range(parts))
            for _, values in arrived:
                all_ranks[int(values[-1]) :][: len(values) - 1] = values[:-1]

        def along(edges, all_ranks, out):
            assert (out.partitions, out.source < 3) == (parts, True)
            sums = np.bincount(edges[:, 1], all_ranks[edges[:, 0]], minlength=n)
            for part in range(parts):
                if sums[low[part] : low[part + 1]].any():
                    out.send(part, sums[low[part] : low[part + 1]])

        def add(ranks, arrived):
            ranks[:] = 0.15 / n
            for _, values in arrived:
                ranks += 0.85 * values

        with program.loop(20):
            program.exchange(spread, collect, sources=[ranks, share, firsts], writes=[all_ranks], routes=routes)
            program.exchange(along, add, sources=[lists, all_ranks], writes=[ranks])
        return program.run(workers=workers)[ranks]

    found = [run(workers) for workers in (1, 2, 4)]
    np.testing.assert_allclose(found[0], right, rtol=1e-12)
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


def test_invalid_exchanges_are_reported(pellucid):
    program = pellucid.Program("wrong")
    two, three = program.zeros("two", 1, 2), program.zeros("three", 1, 3)

    def twice(two, out):
        out.send(1, two)
        out.send(1, two)

    def astray(two, out):
        out.send(7, two)

    def text(two, out):
        out.send(0, np.array(["a"]))

    def fails(three, arrived):
        raise ValueError(f"{len(arrived)} arrived")

    def ignore(three, arrived):
        pass

    def silent(two, out):
        pass

    for scatter, gather, stage, expected in [
        (twice, ignore, "twice: scatter", "cannot send to partition 1 twice"),
        (astray, ignore, "astray: scatter", "partition 7: it is not on the route"),
        (text, ignore, "text: scatter", "cannot be partitions"),
        (silent, fails, "silent: gather", "ValueError: 0 arrived"),
    ]:
        wrong = pellucid.Program("wrong")
        two, three = wrong.zeros("two", 1, 2), wrong.zeros("three", 1, 3)
        wrong.exchange(scatter, gather, sources=[two], writes=[three])
        with pytest.raises(pellucid.KernelError, match=expected) as raised:
            wrong.run()
        assert raised.value.kernel == stage
    for expected, options in [
        ("writes no dataset", {"sources": [two], "reads": [three], "writes": []}),
        ("names no dataset", {"sources": [], "writes": [three]}),
        ("of another program", {"sources": [program.zeros("own", 1)], "writes": [three]}),
    ]:
        with pytest.raises(pellucid.ProgramError, match=expected):
            wrong.exchange(silent, ignore, **options)
    with pytest.raises(pellucid.ProgramError, match="is a compiled kernel, which cannot send"):
        wrong.exchange(pellucid.kernel(gradient), ignore, sources=[two], writes=[three])
    for routes, expected in [([[0], [3]], "partition 3 is out of range; there are 3"), ([[0]], "1 routes for 2 partitions")]:
        routed = pellucid.Program("routed")
        two, three = routed.zeros("two", 1, 2), routed.zeros("three", 1, 3)
        routed.exchange(silent, ignore, sources=[two], writes=[three], routes=routes)
        with pytest.raises(pellucid.ProgramError, match=expected):
            routed.run()


def test_kernel_error_names_kernel_and_partition(pellucid):
    def plain(rows, out):
        if rows[0] == 6:
            raise ValueError("six is too much")

    @pellucid.kernel
    def compiled(rows, out):
        if rows[0] == 6:
            raise ValueError("six is too much")

    for kernel, name in ((plain, "plain"), (compiled, "compiled")):
        program = pellucid.Program("raises")
        rows, out = program.array("rows", np.arange(9), 9), program.zeros("out", 1, 9)
        program.transform(kernel, reads=[rows], writes=[out])
        with pytest.raises(pellucid.KernelError, match="ValueError: six is too much") as raised:
            program.run()
        assert (raised.value.kernel, raised.value.partition) == (name, 6)
        assert isinstance(raised.value, pellucid.Error)
        assert "test_python.py, line" in str(raised.value)


def test_invalid_programs_are_refused(pellucid):
    program, other = pellucid.Program("a"), pellucid.Program("b")
    one, four = program.zeros("one", 2), program.zeros("four", 2, 4)
    foreign = other.zeros("foreign", 2)
    many = [program.zeros(f"d{number}", 2) for number in range(9)]
    wrong = pellucid.ProgramError

    def nothing(*_):
        pass

    for text, call in [
        ("of another program", lambda: program.transform(nothing, reads=[foreign], writes=[one])),
        ("'one' with 1 partitions and 'four' with 4", lambda: program.transform(nothing, reads=[one], writes=[four])),
        ("at most 8 datasets", lambda: program.transform(nothing, reads=many, writes=[one])),
        ("needs a dataset with one partition", lambda: program.broadcast(four, one)),
        ("they must match", lambda: program.broadcast(program.zeros("three", 3), four)),
        ('unknown reduction "mean"', lambda: program.reduce(four, one, "mean")),
        ("cannot divide 4 rows into 5", lambda: program.array("few", np.arange(4), 5)),
        ("has no partition", lambda: program.arrays("none", [])),
        ("cannot be partitions", lambda: program.array("text", np.array(["a"]))),
        ("does not compile", lambda: program.transform(pellucid.kernel(lambda a: a.nothing()), writes=[one])),
        ("0 iterations", lambda: program.loop(0).__enter__()),
        ("has no stage", other.run),
        ("iterations; use at least 1", lambda: program.loop(1 << 64).__enter__()),
        ("workers=-1", lambda: other.run(workers=-1)),
        ("snapshot_every=0", lambda: other.run(snapshot_every=0)),
        ("wait_limit_s=-1", lambda: other.run(wait_limit_s=-1)),
    ]:
        with pytest.raises(wrong, match=text):
            call()
    twice = pellucid.Program("twice")
    same = twice.zeros("same", 1)
    twice.transform(nothing, reads=[same], writes=[same])
    with pytest.raises(wrong, match='names dataset "same" twice'):
        twice.run()


def test_result_does_not_change_with_later_stages(pellucid):
    """The result does not contain the output of stages added later."""
    program = pellucid.Program("grows")
    first, second = program.zeros("first", 1), program.zeros("second", 1)

    def add(array):
        array += 1

    program.transform(add, writes=[first])
    early = program.run(wait_limit_s=float("inf"))
    program.transform(add, writes=[second])
    third = program.zeros("third", 1)
    assert (early[first].tolist(), early[second].tolist()) == ([1], [0])
    assert program.run()[second].tolist() == [1]
    for wrong in (third, pellucid.Program("other").zeros("other", 1)):
        with pytest.raises(pellucid.ProgramError, match="to another program or was added after"):
            early[wrong]
    with pytest.raises(pellucid.ProgramError, match="/nowhere/t"):
        program.run(trace="/nowhere/t")


def test_ctrl_c_ends_an_endless_job(package):
    """Ctrl-C ends a job in an endless loop of Python kernels."""
    process = script(
        package,
        """
        import pellucid
        program = pellucid.Program("endless")
        one = program.zeros("one", 1)
        def add(one): one += 1
        with program.loop(1 << 60):
            program.transform(add, writes=[one])
        program.run(progress=lambda now: print(now["iteration"], flush=True))
        """,
    )
    for line in process.stdout:
        if int(line) > 100:
            break
    code, _, err = binary.kill(process, signal.SIGINT)
    assert code in (1, -signal.SIGINT, 130) and "KeyboardInterrupt" in err


def test_exception_in_progress_ends_the_job(pellucid):
    program = pellucid.Program("progress")
    one = program.zeros("one", 1)

    def add(one):
        one += 1

    with program.loop(1 << 60):
        program.transform(add, writes=[one])

    def refuse(now):
        assert threading.current_thread() is threading.main_thread()
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        program.run(progress=refuse)


def test_run_resumes_from_a_snapshot_and_writes_a_trace(pellucid, tmp_path):
    """A second run resumes from the snapshot that the first waited for; the trace names the kernels."""
    calls, saved = [], tmp_path / "saved"

    def build():
        program = pellucid.Program("saved")
        one = program.zeros("one", 1)

        def add(one):
            deadline = time.monotonic() + 60
            while one[0] == 20 and not list(saved.glob("*/manifest.json")) and time.monotonic() < deadline:
                time.sleep(0.001)
            calls.append(one[0])
            one += 1

        with program.loop(40):
            program.transform(add, writes=[one])
        return program, one

    program, one = build()
    trace = tmp_path / "job.trace"
    assert program.run(snapshot=saved, snapshot_every=7, trace=trace)[one].tolist() == [40]
    program, one = build()
    assert program.run(snapshot=saved, snapshot_every=7)[one].tolist() == [40]
    assert 40 < len(calls) <= 40 + 40 - 7, len(calls)
    assert "add" in binary.run("analyze", trace).check().out


def test_snapshot_of_another_program_is_not_used(pellucid, tmp_path):
    """Programs with other initial values, shape, type or number of iterations have separate snapshots."""

    def run(first, iterations, snapshots):
        program = pellucid.Program("alike")
        one, times = program.arrays("one", [first]), []

        def add(one):
            times.append(1)
            deadline = time.monotonic() + 60
            while len(times) == 15 and len(list(tmp_path.glob("*/manifest.json"))) < snapshots and time.monotonic() < deadline:
                time.sleep(0.001)
            one += 1

        with program.loop(iterations):
            program.transform(add, writes=[one])
        result = program.run(snapshot=tmp_path, snapshot_every=7)
        assert len(list(tmp_path.glob("*/manifest.json"))) == snapshots
        return result[one].tolist(), result.resumed_at

    assert run(np.zeros(1), 40, 1) == ([40], None)
    assert run(np.zeros(1), 20, 2) == ([20], None)
    assert run(np.ones(1), 40, 3) == ([41], None)
    assert run(np.zeros(2), 40, 4) == ([40, 40], None)
    assert run(np.zeros(1, np.float32), 40, 5) == ([40], None)
    again, resumed_at = run(np.zeros(1), 40, 5)
    assert again == [40] and resumed_at >= 7


@pytest.mark.full
def test_wheel_installs_and_runs_the_examples(tmp_path):
    """Runs `pip install ./python` in a fresh environment, then the examples."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", ROOT / "python", "numba"], check=True, timeout=3600)
    for _, code, printed in examples():
        ran = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300)
        assert ran.stdout.strip() == printed, ran.stderr


DAMAGED_SNAPSHOTS = """
    import glob, json, os, random, sys, time, zlib
    import numpy as np
    import pellucid

    place, seeds = sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3]))

    def run():
        program = pellucid.Program("damaged")
        matrix = program.arrays("matrix", [np.ones((3, 4)), np.ones((2, 4))])
        count = program.zeros("count", 1, dtype=np.int32)

        def step(count):
            until = time.monotonic() + 60
            while count[0] == 6 and not glob.glob(place + "/*/manifest.json") and time.monotonic() < until:
                time.sleep(0.001)
            count += 1

        def add(matrix):
            matrix += 1

        with program.loop(9):
            program.transform(step, writes=[count])
            program.transform(add, writes=[matrix])
        result = program.run(snapshot=place, snapshot_every=2)
        return [(array.shape, array.dtype) for array in [*result[matrix], result[count]]]

    expected = run()
    [manifest] = glob.glob(place + "/*/manifest.json")
    intact = open(manifest).readlines()
    parts = {path: open(path, "rb").read() for path in glob.glob(place + "/*/partitions/*")}
    assert parts and intact

    def seal(name, content):
        dataset, partition, epoch = map(int, name.split("-"))
        lines = [json.loads(line) for line in intact]
        for line in lines:
            # The bundles with the dataset are in the order of its partitions.
            found = [part for bundle in line["snapshot"]["saved"] for part in bundle if part["dataset"] == dataset]
            if found[partition]["epoch"] == epoch:
                found[partition] |= {"bytes": len(content), "checksum": zlib.crc32(content)}
            sealed = json.dumps([line["format"], line["snapshot"]], separators=(",", ":"))
            line["checksum"] = zlib.crc32(sealed.encode())
        with open(manifest, "w") as file:
            file.writelines(json.dumps(line) + "\\n" for line in lines)

    for seed in seeds:
        print("seed", seed, flush=True)
        rng = random.Random(seed)
        os.makedirs(os.path.dirname(next(iter(parts))), exist_ok=True)
        for path, content in parts.items():
            open(path, "wb").write(content)
        path = rng.choice(sorted(parts))
        content = bytearray(parts[path])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(min(len(content), 24))
            width, number = rng.choice((1, 1, 8)), rng.choice((0, 1, 2, 5, 255, 1 << 61, (1 << 64) - 1))
            content[at : at + width] = number.to_bytes(8, "little")[:width]
        if rng.random() < 0.2:
            del content[rng.randrange(len(content)) :]
        open(path, "wb").write(content)
        seal(os.path.basename(path), bytes(content))
        assert run() == expected, seed
"""


def test_damaged_snapshot_gives_arrays_of_the_right_type_and_shape(package, tmp_path):
    """A part with a right checksum may hold anything; the seed that was printed last repeats a failure."""
    seeds = 2000 if os.environ.get("PELLUCID_FULL") else 40
    environment = os.environ | {"PYTHONPATH": str(package)}
    command = [sys.executable, "-c", textwrap.dedent(DAMAGED_SNAPSHOTS), str(tmp_path), "0", str(seeds)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-100:] + ran.stderr[-2000:]
    assert "cannot be decoded: invalid array of" in ran.stderr, ran.stderr[-500:]
