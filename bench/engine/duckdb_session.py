"""A DuckDB session (`bench/engine/sessions.py`), and other uses of DuckDB: query texts, splitting, Parquet sizes.

Runs as a separate process, so that the runner stays small: `python -m bench.engine.duckdb_session DATA [MEMORY FOLDER]`, where
it may use `MEMORY` and spill to `FOLDER`.
"""

import json
import sys
import time
from pathlib import Path

from harness.sql import oracle


def serve(data: Path, memory: str | None = None, folder: str | None = None) -> None:
    """Answers queries until standard input ends."""
    connection = oracle.connect(data)
    if memory:
        connection.execute(f"SET memory_limit = '{memory}'; SET temp_directory = '{folder}'")
    for line in sys.stdin:
        text = Path(line.strip()).read_text()
        start = time.perf_counter()
        try:
            # The answer stays in DuckDB's columns; fetching it would time the creation of Python objects.
            connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {text.strip().rstrip(';')}")
            ms = (time.perf_counter() - start) * 1e3
            said = {"ms": ms, "rows": connection.execute("SELECT count(*) FROM answer").fetchone()[0]}
        except Exception as error:
            said = {"error": str(error)}
        print(json.dumps(said), flush=True)


def write_texts(folder: Path) -> None:
    """Writes the 22 TPC-H queries to files `01.sql` to `22.sql`."""
    for number in oracle.texts("tpch"):
        (folder / f"{number:02}.sql").write_text(oracle.text_for_pellucid("tpch", number))


def needed_bytes(data: Path, columns: dict[str, list[str]]) -> int:
    """Returns the compressed bytes of these columns in all row groups, from the files' footers."""
    connection = oracle.connect()
    total = 0
    for table, names in columns.items():
        total += connection.execute(
            f"SELECT sum(total_compressed_size) FROM parquet_metadata('{data / table}.parquet') WHERE path_in_schema IN (SELECT unnest(?))",
            [names],
        ).fetchone()[0]
    return int(total)


def split(source: Path, folder: Path, key: str, files: int) -> None:
    """Splits a table into files of about equal size, by ranges of a key."""
    connection = oracle.connect()
    folder.mkdir(parents=True)
    (last,) = connection.execute(f"SELECT max({key}) + 1 FROM '{source}'").fetchone()
    for index in range(files):
        low, high = last * index // files, last * (index + 1) // files
        connection.execute(
            f"COPY (FROM '{source}' WHERE {key} >= {low} AND {key} < {high}) TO '{folder / f'{index}.parquet'}' "
            "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
        )


def cut(source: Path, folder: Path, files: int) -> None:
    """Splits a table into files of about equal size, in row order and with its size of row groups."""
    connection = oracle.connect()
    folder.mkdir(parents=True)
    rows, longest = connection.execute(
        f"SELECT sum(rows), max(rows) FROM (SELECT DISTINCT row_group_id, row_group_num_rows AS rows FROM parquet_metadata('{source}'))"
    ).fetchone()
    for index in range(files):
        low, high = rows * index // files, rows * (index + 1) // files
        connection.execute(
            f"COPY (SELECT * EXCLUDE file_row_number FROM read_parquet('{source}', file_row_number = true) "
            f"WHERE file_row_number >= {low} AND file_row_number < {high}) TO '{folder / f'{index}.parquet'}' "
            f"(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE {max(2048, longest // 2048 * 2048)})"
        )


def main(arguments: list[str]) -> None:
    """Usage: DATA | --texts FOLDER | --needed DATA COLUMNS-AS-JSON | --split FILE FOLDER KEY FILES | --cut FILE FOLDER FILES"""
    match arguments:
        case ["--texts", folder]:
            write_texts(Path(folder))
        case ["--needed", data, columns]:
            print(needed_bytes(Path(data), json.loads(columns)))
        case ["--split", source, folder, key, files]:
            split(Path(source), Path(folder), key, int(files))
        case ["--cut", source, folder, files]:
            cut(Path(source), Path(folder), int(files))
        case [data, *limit]:
            serve(Path(data), *limit)
        case _:
            sys.exit(main.__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
