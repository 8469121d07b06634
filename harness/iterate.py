"""Inputs of iterative jobs, and jobs that must be refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness import binary


def write(path: Path, x: np.ndarray, y: np.ndarray | None = None, **columns: np.ndarray) -> Path:
    """Writes columns f0, f1, … and optionally `y`, as Parquet or CSV by the path's extension."""
    table = {f"f{column}": x[:, column].astype(np.float64) for column in range(x.shape[1])} | columns
    if y is not None:
        table["y"] = np.asarray(y).astype(np.int64)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path, row_group_size=100)
    else:
        rows = zip(*(column.tolist() for column in table.values()))
        path.write_text("\n".join([",".join(table), *(",".join(map(repr, row)) for row in rows)]) + "\n")
    return path


def refused(code: int, *args: Any) -> str:
    """Runs a job that must exit with `code`, and returns its message."""
    ran = binary.run("iterate", *args)
    assert ran.code == code, f"exit {ran.code} instead of {code}: {ran.err}"
    assert not binary.PANIC.search(ran.err + ran.out), ran.err
    assert ran.out == ""
    return ran.err
