"""Peers in Python: `python -m bench.iterate.peers APPLICATION PEER DATA ITERATIONS` runs one and prints its times.

The document is `{"iteration_s": [...], "check": number}`. `check` is the loss, inertia or sum of the ten highest ranks
after the last iteration, and shows whether all peers computed the same. Every peer keeps its data in memory in its
preferred form; reading is not timed. The first iteration is left out if a peer compiles in it.
"""

import json
import os
import sys
import time

import numba
import numpy as np
import pyarrow.parquet as pq
import scipy.sparse

STEP, L2, DAMPING, BLOCK = 0.5, 1.0, 0.85, 50_000


def points(path: str, label: bool = True):
    """Reads rows (C order) and labels."""
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != "y"]
    x = np.empty((table.num_rows, len(names)))
    for column, name in enumerate(names):
        x[:, column] = table[name].to_numpy()
    return x, table["y"].to_numpy().astype(np.float64) if label else None


def timed(step, iterations: int) -> list[float]:
    """Returns the seconds of each call."""
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def descent(gradient, columns: int, rows: int, iterations: int) -> tuple[list[float], float]:
    """Runs gradient descent on sums of gradient and loss, like Pellucid's solver `gd`."""
    w, loss = np.zeros(columns + 1), [0.0]

    def step():
        g, total = gradient(w)
        penalty = np.append(w[:-1], 0.0) * L2
        loss[0] = (total + L2 / 2 * w[:-1] @ w[:-1]) / rows
        w[:] -= STEP * (g + penalty) / rows

    return timed(step, iterations), loss[0]


def part(x, y, w) -> tuple[np.ndarray, float]:
    """Returns the gradient and loss of some rows, block by block, so that intermediate values stay in cache."""
    g, loss = np.zeros(len(w)), 0.0
    for start in range(0, len(x), BLOCK):
        rows, labels = x[start : start + BLOCK], y[start : start + BLOCK]
        z = rows @ w[:-1] + w[-1]
        residual = 1.0 / (1.0 + np.exp(-z)) - labels
        g[:-1] += rows.T @ residual
        g[-1] += residual.sum()
        loss += (np.logaddexp(0.0, z) - labels * z).sum()
    return g, loss


def numpy_regression(data, iterations):
    x, y = points(data)
    return descent(lambda w: part(x, y, w), x.shape[1], len(x), iterations)


@numba.njit(nogil=True, fastmath=True, parallel=True)
def _numba_gradient(x, y, w, parts):
    d = x.shape[1]
    out = np.zeros((parts, d + 2))
    for p in numba.prange(parts):
        g = np.zeros(d + 2)
        for i in range(len(x) * p // parts, len(x) * (p + 1) // parts):
            z = w[d]
            for j in range(d):
                z += w[j] * x[i, j]
            t = np.exp(-abs(z))
            residual = (1.0 if z >= 0 else t) / (1.0 + t) - y[i]
            for j in range(d):
                g[j] += residual * x[i, j]
            g[d] += residual
            g[d + 1] += max(z, 0.0) - y[i] * z + np.log1p(t)
        out[p] = g
    return out


def numba_regression(data, iterations):
    x, y = points(data)

    def gradient(w):
        total = _numba_gradient(x, y, w, 4 * os.cpu_count()).sum(axis=0)
        return total[:-1], total[-1]

    times, loss = descent(gradient, x.shape[1], len(x), iterations + 1)
    return times[1:], loss


def ray_regression(data, iterations):
    import ray

    ray.init(num_cpus=os.cpu_count(), log_to_driver=False, logging_level="error")

    @ray.remote
    class Worker:
        def __init__(self, at, of):
            os.environ["OMP_NUM_THREADS"] = "1"
            x, y = points(data)
            share = slice(len(x) * at // of, len(x) * (at + 1) // of)
            self.x, self.y = x[share].copy(), y[share].copy()

        def shape(self):
            return self.x.shape

        def gradient(self, w):
            return part(self.x, self.y, w)

    workers = [Worker.remote(at, os.cpu_count()) for at in range(os.cpu_count())]
    shapes = ray.get([worker.shape.remote() for worker in workers])

    def gradient(w):
        found = ray.get([worker.gradient.remote(w) for worker in workers])
        return sum(g for g, _ in found), sum(loss for _, loss in found)

    return descent(gradient, shapes[0][1], sum(rows for rows, _ in shapes), iterations)


def sklearn_regression(data, iterations):
    """Runs L-BFGS, scikit-learn's solver; each step takes one or more passes over the data."""
    from sklearn.linear_model import LogisticRegression

    x, y = points(data)
    model = LogisticRegression(C=1.0 / L2, tol=1e-300, max_iter=iterations)
    took = timed(lambda: model.fit(x, y), 1)[0]
    z = x @ model.coef_[0] + model.intercept_[0]
    loss = (np.logaddexp(0.0, z) - y * z).mean() + L2 / 2 * (model.coef_**2).sum() / len(y)
    return [took / model.n_iter_[0]], loss


def centers(data) -> np.ndarray:
    """Reads the first centers from the file next to the data."""
    return np.loadtxt(data.replace("points", "centers").replace(".parquet", ".csv"), delimiter=",", skiprows=1)


def numpy_kmeans(data, iterations):
    x, _ = points(data, label=False)
    c, inertia = centers(data), [0.0]

    def step():
        sums, counts, total = np.zeros_like(c), np.zeros(len(c)), 0.0
        for start in range(0, len(x), BLOCK):
            rows = x[start : start + BLOCK]
            score = (c * c).sum(axis=1) - 2.0 * (rows @ c.T)
            nearest = score.argmin(axis=1)
            total += score[np.arange(len(rows)), nearest].sum() + np.einsum("ij,ij", rows, rows)
            chosen = scipy.sparse.csr_array((np.ones(len(rows)), nearest, np.arange(len(rows) + 1)), shape=(len(rows), len(c)))
            sums += chosen.T @ rows
            counts += np.bincount(nearest, minlength=len(c))
        inertia[0] = total
        c[counts > 0] = sums[counts > 0] / counts[counts > 0, None]

    times = timed(step, iterations)
    step()  # for the inertia of the last centers
    return times, inertia[0]


def sklearn_kmeans(data, iterations):
    from sklearn.cluster import KMeans

    x, _ = points(data, label=False)
    model = KMeans(10, init=centers(data), n_init=1, max_iter=iterations, tol=0.0, algorithm="lloyd", copy_x=False)
    took = timed(lambda: model.fit(x), 1)[0]
    return [took / model.n_iter_], model.inertia_


def scipy_pagerank(data, iterations):
    table = pq.read_table(data)
    source, destination = table["src"].to_numpy(), table["dst"].to_numpy()
    names, numbers = np.unique(np.concatenate([source, destination]), return_inverse=True)
    source, destination = numbers[: len(source)], numbers[len(source) :]
    n = len(names)
    degree = np.bincount(source, minlength=n)
    along = scipy.sparse.csr_array((1.0 / degree[source], (destination, source)), shape=(n, n))
    rank = np.full(n, 1.0 / n)

    def step():
        rank[:] = (1.0 - DAMPING) / n + DAMPING * (along @ rank + rank[degree == 0].sum() / n)

    return timed(step, iterations), float(np.sort(rank)[-10:].sum())


PEERS = {
    "regression": {
        "numba": numba_regression,
        "numpy, blocked": numpy_regression,
        "Ray with numpy": ray_regression,
        "scikit-learn": sklearn_regression,
    },
    "kmeans": {"scikit-learn": sklearn_kmeans, "numpy, blocked": numpy_kmeans},
    "pagerank": {"scipy": scipy_pagerank},
}


def main() -> None:
    application, peer, data, iterations = sys.argv[1:]
    times, check = PEERS[application][peer](data, int(iterations))
    print(json.dumps({"iteration_s": times, "check": check}))


if __name__ == "__main__":
    main()
