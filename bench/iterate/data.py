"""The data of the iterative jobs: rows for regression and k-means, and a graph; made once, from a seed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS, CENTERS, EDGES_PER_VERTEX, SEED = 20, 10, 16, 1


def points(folder: Path, rows: int) -> Path:
    """Makes rows of 20 normally distributed columns f0… and labels of a noisy model, and a file of first centers."""
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
    """Makes an R-MAT graph with the parameters of GAP and Graph500: 16 edges per vertex, shuffled names."""
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
