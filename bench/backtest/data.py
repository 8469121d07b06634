"""The data of the matrix, made once, each table in eight files of about equal size.

Eight files can be split over two disks. They have the generator's row groups. DuckDB writes them, since the
queries do not depend on the order of rows.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.backtest.cases import DATA, Query
from harness import binary

FILES = 8


def home() -> Path:
    """Returns the folder of the data."""
    return binary.data_home() / "backtest"


def ensure(query: Query, small: bool = False) -> dict[str, Path]:
    """Returns the folders of a query's tables, and makes missing ones."""
    return {table: _table(query.data, table, small) for table in query.tables}


def _table(data: str, table: str, small: bool) -> Path:
    name = f"{data}-small" if small else data
    folder = home() / name / table
    if folder.is_dir():
        return folder
    made = home() / f"{name}.whole"
    if not (made / f"{table}.parquet").exists():
        arguments = list(DATA[data])
        if small:
            arguments[arguments.index("--scale") + 1] = SMALL[data]
        binary.run("generate", *arguments, made, "--force", "--quiet", timeout=3600).check()
    partial = folder.with_name(f"{table}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-B", "-m", "bench.engine.duckdb_session", "--cut", made / f"{table}.parquet", partial]
    subprocess.run([*map(str, command), str(FILES)], check=True, cwd=binary.ROOT)
    partial.rename(folder)
    return folder


# Scales of the short matrix.
SMALL = {"sort-10": "0.03", "sort-20": "0.03", "sort-50": "0.03", "rankings": "0.8", "bdb": "0.25", "documents": "0.06"}
