"""Programs of the Python package give correct results, for any number of workers."""

import numpy as np
import pytest

SEED = 11


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
