"""The workloads' input: text, tables and points, made once and copied to each composition."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.storage.rig import Place
from harness import binary

SEED, FILES = 1, 8
# Copies of the text that probes read.
COPIES = 3
TEXT_BYTES = 96 << 20
WORDS = 20_000
ROWS, COLUMNS, CENTERS = 400_000, 20, 10
# The tables of TPC-DS, at scale 1, that the queries of `workloads` read.
TABLES = ("store_sales", "date_dim", "item", "customer_demographics", "promotion", "store")


def home() -> Path:
    """Returns the folder of the generated data."""
    return binary.data_home() / "storage"


@contextlib.contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder, renamed to `folder` when it is complete."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    partial.rename(folder)


def text() -> Path:
    """Makes lines of ten words with Zipf-distributed frequencies, as CSV of one column in eight files."""
    folder = home() / "text"
    if folder.exists():
        return folder
    random = np.random.default_rng(SEED)
    words = np.array(["".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), random.integers(3, 12))) for _ in range(WORDS)])
    shares = 1.0 / np.arange(1, WORDS + 1)
    shares /= shares.sum()
    with whole(folder) as partial:
        for number in range(FILES):
            with open(partial / f"part-{number}.csv", "w") as file:
                file.write("line\n")
                while file.tell() < TEXT_BYTES // FILES:
                    drawn = words[random.choice(WORDS, size=(20_000, 10), p=shares)]
                    file.write("\n".join(" ".join(line) for line in drawn) + "\n")
    return folder


def points() -> Path:
    """Makes normally distributed rows around ten centers, as Parquet in eight files, and a file of first centers."""
    folder = home() / "points"
    if folder.exists():
        return folder
    random = np.random.default_rng(SEED)
    centers = random.normal(scale=3.0, size=(CENTERS, COLUMNS))
    names = [f"f{c}" for c in range(COLUMNS)]
    with whole(folder) as partial:
        np.savetxt(home() / "centers.csv", centers + random.normal(size=centers.shape), delimiter=",", header=",".join(names), comments="")
        for number in range(FILES):
            rows = ROWS // FILES
            x = centers[random.integers(CENTERS, size=rows)] + random.normal(size=(rows, COLUMNS))
            table = pa.table([np.ascontiguousarray(x[:, c]) for c in range(COLUMNS)], names=names)
            pq.write_table(table, partial / f"part-{number}.parquet", compression="none", use_dictionary=False)
    return folder


def sources() -> list[tuple[Path, str]]:
    """Returns every file with its path on a composition."""
    tpcds = binary.ensure_data("tpcds", 1)
    files = [(file, f"{folder.name}/{file.name}") for folder in (text(), points()) for file in sorted(folder.iterdir())]
    for name, path in (part.split("=", 1) for part in binary.tables(tpcds)[1::2]):
        if name in TABLES:
            parts = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.parquet"))
            files += [(part, f"{name}/{part.name}") for part in parts]
    return files


def put(place: Place) -> None:
    """Copies all files to a composition with the same writer, so that all compositions have the same bytes."""
    copies = []
    for source, path in sources():
        if "://" not in place.url:
            Path(place.url, path).parent.mkdir(parents=True, exist_ok=True)
        kind = "PARQUET" if source.suffix == ".parquet" else "CSV"
        copies.append(f"COPY (SELECT * FROM '{source}') TO '{place.url}/{path}' STORED AS {kind}")
        place.files.append(path)
    binary.run("sql", "--quiet", ";\n".join(copies), env=os.environ | place.environment).check()


def put_copies(place: Place, copies: int = COPIES) -> None:
    """Writes copies of the text, each as one file, for probes to read."""
    if "://" not in place.url:
        Path(place.url, "large").mkdir()
    to_each = [f"COPY (SELECT * FROM '{text()}/*.csv') TO '{place.url}/large/{i}.csv' STORED AS CSV" for i in range(copies)]
    binary.run("sql", "--quiet", ";\n".join(to_each), env=os.environ | place.environment).check()
