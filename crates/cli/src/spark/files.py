"""Tables out of files on Spark, with the columns, types and rows that Pellucid's engine reads.

Spark's own inference is not used for text: it takes `1d` for a number, `10:30` for a time today, the folders
of a partition for numbers, and sorts the columns of JSON by name. Columns of CSV are read as texts, and
cast to the types that the engine's rules give the first thousand rows.
"""

import glob
import json
import os
import re

from refused import Refused

FORMATS = {
    "parquet": "parquet", "parq": "parquet", "pq": "parquet", "csv": "csv", "tsv": "csv", "txt": "csv",
    "json": "json", "jsonl": "json", "ndjson": "json",
}  # fmt: skip
ONLY_HERE = ("arrow", "arrows", "ipc", "feather")
COMPRESSED = ("gz", "bz2")
COMPRESSED_ONLY_HERE = ("gzip", "xz", "zst", "zstd")
SAMPLE_ROWS = 1000
# The engine's rules (arrow-csv), in its order.
CSV_TYPES = (
    ("BOOLEAN", r"(?i:true|false)"),
    ("BIGINT", r"-?\d+"),
    ("DOUBLE", r"-?(?:(?:\d*\.\d+|\d+\.\d*)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)|NaN|nan|inf|-inf"),
    ("DATE", r"\d{4}-\d\d-\d\d"),
    ("TIMESTAMP_NTZ", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9}(?:\D.*)?|[^\d.].*)?"),
)


class Missing(Exception):
    """No such file: it went wrong, as it does without Spark."""


def is_path(name):
    """Whether the engine takes a table's name for a path."""
    return any(one in name for one in "/*?") or kind_of(name)[0] is not None


def kind_of(path):
    """Format, compression and first ending by a file's name; `None` where it says none."""
    rest, ending = os.path.splitext(os.path.basename(path))
    ending, compressed = ending.lower().lstrip("."), None
    if ending in COMPRESSED + COMPRESSED_ONLY_HERE:
        compressed, ending = ending, os.path.splitext(rest)[1].lower().lstrip(".")
    return FORMATS.get(ending) or ("arrow" if ending in ONLY_HERE else None), compressed, ending


def files_at(path):
    """The files of a local path: itself, those of a folder, or those that a pattern matches."""
    there = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not there:
        pattern = any(one in path for one in "*?[")
        why = "no file matches; check the path and the pattern" if pattern else "no such file or directory; check the path"
        raise Missing(f"{path}: {why}")
    found = []
    for one in there:
        inside = sorted(glob.glob(glob.escape(one) + "/**", recursive=True)) if os.path.isdir(one) else [one]
        hidden = [os.path.relpath(file, one).split("/") for file in inside]
        found += [
            file for file, parts in zip(inside, hidden)
            if os.path.isfile(file) and not any(p[0] in "._" and p != "." and "=" not in p for p in parts)
        ]  # fmt: skip
    if not found:
        raise Missing(f"{path}: no file matches; check the path and the pattern")
    return found


def table(spark, path):
    """The rows at a path."""
    remote = "://" in path
    names = [path] if remote else files_at(path)
    kinds = {kind_of(name) for name in names if kind_of(name)[0]}
    if not kinds:
        raise Missing(f"{path}: no format is known by the ending of {os.path.basename(names[0])}; use .parquet, .csv, .tsv or .json")
    if len(kinds) > 1:
        raise Missing(f"{path}: there are files of several formats; choose with a pattern that ends in one of their endings")
    ((kind, compressed, ending),) = kinds
    if kind == "arrow" or compressed in COMPRESSED_ONLY_HERE or (kind == "parquet" and compressed):
        raise Refused(f"cannot read {path} on Spark: it reads Parquet, CSV, TSV and JSON lines, the texts also with .gz and .bz2")
    reader, place = spark.read, path
    if not remote:
        place = ["file:" + escaped(os.path.abspath(name)) for name in names]
        base = base_of(path)
        if any("=" in part for name in names for part in os.path.relpath(name, base).split("/")[:-1]):
            reader = reader.option("basePath", "file:" + os.path.abspath(base))
    if kind == "csv":
        return csv(reader, place, "\t" if ending == "tsv" else ",")
    if kind == "json":
        return in_order(spark, reader.json(place), place)
    return reader.parquet(*(place if isinstance(place, list) else [place]))


def base_of(path):
    """The folder below which folders may be those of a partition: a pattern's part before the first wildcard."""
    if os.path.exists(path):
        return path if os.path.isdir(path) else os.path.dirname(path) or "."
    return os.path.dirname(re.split(r"[*?\[]", path)[0]) or ("/" if path.startswith("/") else ".")


def escaped(path):
    """A path that exists, as one that is no pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path) if os.path.exists(path) else path


def csv(reader, place, separator):
    """Rows of CSV: quotes are doubled within quotes, where newlines may be too, and a backslash is one."""
    options = {"header": True, "sep": separator, "quote": '"', "escape": '"', "multiLine": True, "mode": "FAILFAST"}
    frame = reader.options(**options).csv(place)
    sample = frame.head(SAMPLE_ROWS)
    kinds = [csv_type([row[i] for row in sample]) for i in range(len(frame.columns))]
    folders = {part.partition("=")[0] for name in frame.inputFiles()[:1] for part in name.split("/")[:-1] if "=" in part}

    def cast(column, kind):
        name = "`" + column.replace("`", "``") + "`"
        return name if column in folders else f"CAST(nullif({name}, '') AS {kind}) AS {name}"

    return frame.selectExpr(*(cast(column, kind) for column, kind in zip(frame.columns, kinds)))


def csv_type(texts):
    """The type that the engine gives a column with these values."""
    found = {csv_type_of(text) for text in texts if text}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if found == {"DATE", "TIMESTAMP_NTZ"}:
        return "TIMESTAMP_NTZ"
    return found.pop() if len(found) == 1 else "STRING"


def csv_type_of(text):
    """The type that one value looks like."""
    kind = next((kind for kind, pattern in CSV_TYPES if re.fullmatch(pattern, text, re.ASCII)), "STRING")
    return "STRING" if kind == "BIGINT" and not -(2**63) <= int(text) < 2**63 else kind


def in_order(spark, frame, place):
    """Columns of JSON in the order of the rows where they first appear, and in a row by name, as the engine has them."""
    names = {}
    for row in spark.read.text(place).head(SAMPLE_ROWS):
        try:
            names.update(dict.fromkeys(sorted(json.loads(row[0]))))
        except (TypeError, ValueError):
            continue  # no object: Spark says what it makes of the line
    known = [name for name in names if name in frame.columns]
    rest = [name for name in frame.columns if name not in known and name not in ("_corrupt_record",)]
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in known + rest))
