"""Reads files as Spark tables, with the same columns, types and rows as Pellucid's engine.

Spark's own inference is not used for text files: it reads `1d` as a number, `10:30` as a time today and
partition folders as numbers, and sorts the columns of JSON by name. CSV columns are read as text, and
cast to the types that the engine's rules infer from the first thousand rows.
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
ENGINE_ONLY_FORMATS = ("arrow", "arrows", "ipc", "feather")
COMPRESSIONS = ("gz", "bz2")
ENGINE_ONLY_COMPRESSIONS = ("gzip", "xz", "zst", "zstd")
SAMPLE_ROWS = 1000
# The engine's inference rules (arrow-csv), in the same order.
CSV_TYPES = (
    ("BOOLEAN", r"(?i:true|false)"),
    ("BIGINT", r"-?\d+"),
    ("DOUBLE", r"-?(?:(?:\d*\.\d+|\d+\.\d*)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)|NaN|nan|inf|-inf"),
    ("DATE", r"\d{4}-\d\d-\d\d"),
    ("TIMESTAMP_NTZ", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9}(?:\D.*)?|[^\d.].*)?"),
)


class Missing(Exception):
    """Missing or unreadable files: a failure, as in the engine, rather than a usage error."""


def is_path(name):
    """Returns whether the engine treats a table's name as a path."""
    return any(one in name for one in "/*?") or kind_of(name)[0] is not None


def kind_of(path):
    """Returns the format, compression and extension of a file by its name; `None` for a part that is unknown."""
    rest, extension = os.path.splitext(os.path.basename(path))
    extension, compression = extension.lower().lstrip("."), None
    if extension in COMPRESSIONS + ENGINE_ONLY_COMPRESSIONS:
        compression, extension = extension, os.path.splitext(rest)[1].lower().lstrip(".")
    return FORMATS.get(extension) or ("arrow" if extension in ENGINE_ONLY_FORMATS else None), compression, extension


def files_at(path):
    """Returns the files of a local path: the file itself, those of a folder, or those that match a pattern."""
    existing = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not existing:
        pattern = any(one in path for one in "*?[")
        why = "no file matches; check the path and the pattern" if pattern else "no such file or directory; check the path"
        raise Missing(f"{path}: {why}")
    found = []
    for one in existing:
        inside = sorted(glob.glob(glob.escape(one) + "/**", recursive=True)) if os.path.isdir(one) else [one]
        hidden = [os.path.relpath(file, one).split("/") for file in inside]
        found += [
            file for file, parts in zip(inside, hidden)
            if os.path.isfile(file) and not any(p[0] in "._" and p != "." and "=" not in p for p in parts)
        ]  # fmt: skip
    if not found:
        raise Missing(f"{path}: no file matches; check the path and the pattern")
    return found


def refuse_lake(spark, path):
    """Refuses the folder and the files of a Delta or Iceberg table, whose raw files have rows that were removed."""
    if os.path.isfile(path) and not path.endswith((".metadata.json", ".metadata.json.gz")):
        return  # one file is read as it is
    folder = re.split(r"[*?\[]", path)[0] if not os.path.exists(path) else path
    found = remote_lake(spark, folder) if "://" in path else local_lake(path, folder)
    if found:
        raise Refused(f"cannot read {path} on Spark: {found}; leave out --on spark, or register the table in Spark's catalog")


def local_lake(path, folder):
    """Returns a description of the table that has the files of a local path; None if there is none."""
    folders = {os.path.abspath(folder)}
    folders.update(os.path.dirname(os.path.abspath(one)) for one in glob.glob(path, recursive=True) if not os.path.isdir(one))
    if os.path.isdir(folder):
        folders.update(os.path.abspath(inside) for inside, _, _ in os.walk(folder))
    folders.update(above for one in list(folders) for above in parents(one))
    for one in sorted(folders):
        if os.path.isdir(os.path.join(one, "_delta_log")):
            return f"{one} is a Delta table"
        if glob.glob(glob.escape(one) + "/metadata/*.metadata.json*"):
            return f"{one} is an Iceberg table"
    return None


def parents(folder):
    """Returns the folders above a folder."""
    above = os.path.dirname(folder)
    return [] if above == folder else [above, *parents(above)]


def remote_lake(spark, folder):
    """Returns a description of the table in a remote folder, or in one above its partitions; None if there is none."""
    scheme, _, rest = folder.partition("://")
    parts = rest.rstrip("/").split("/")
    hadoop = spark._jvm.org.apache.hadoop.fs
    for length in range(len(parts), 0, -1):
        one = f"{scheme}://{'/'.join(parts[:length])}"
        for name, format in (("_delta_log", "a Delta"), ("metadata/*.metadata.json*", "an Iceberg")):
            place = hadoop.Path(f"{one}/{name}")
            if place.getFileSystem(spark._jsc.hadoopConfiguration()).globStatus(place):
                return f"{one} is {format} table"
        if "=" not in parts[length - 1] and parts[length - 1] != "data":
            return None
    return None


def table(spark, path):
    """Returns the data frame of the rows at a path."""
    refuse_lake(spark, path)
    remote = "://" in path
    names = [path] if remote else files_at(path)
    kinds = {kind_of(name) for name in names if kind_of(name)[0]}
    if not kinds:
        name = os.path.basename(names[0])
        raise Missing(f"{path}: cannot infer the format of {name} from its extension; use .parquet, .csv, .tsv or .json")
    if len(kinds) > 1:
        raise Missing(f"{path}: the files have several formats; select one with a pattern that ends in an extension")
    ((kind, compression, extension),) = kinds
    if kind == "arrow" or compression in ENGINE_ONLY_COMPRESSIONS or (kind == "parquet" and compression):
        raise Refused(f"cannot read {path} on Spark: use Parquet, CSV, TSV or JSON lines; text files may be compressed as .gz or .bz2")
    reader, place = spark.read, path
    if not remote:
        place = ["file:" + escaped(os.path.abspath(name)) for name in names]
        base = base_of(path)
        if any("=" in part for name in names for part in os.path.relpath(name, base).split("/")[:-1]):
            reader = reader.option("basePath", "file:" + os.path.abspath(base))
    if kind == "csv":
        return csv(reader, place, "\t" if extension == "tsv" else ",")
    if kind == "json":
        return in_order(spark, reader.json(place), place)
    return reader.parquet(*(place if isinstance(place, list) else [place]))


def base_of(path):
    """Returns the root folder of partition folders: for a pattern, the part before the first wildcard."""
    if os.path.exists(path):
        return path if os.path.isdir(path) else os.path.dirname(path) or "."
    return os.path.dirname(re.split(r"[*?\[]", path)[0]) or ("/" if path.startswith("/") else ".")


def escaped(path):
    """Escapes the pattern characters of an existing path."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path) if os.path.exists(path) else path


def csv(reader, place, separator):
    """Reads CSV: quotes are escaped by doubling, quoted fields may contain newlines, and backslashes are literal."""
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
    """Returns the type that the engine infers for a column with these values."""
    found = {csv_type_of(text) for text in texts if text}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if found == {"DATE", "TIMESTAMP_NTZ"}:
        return "TIMESTAMP_NTZ"
    return found.pop() if len(found) == 1 else "STRING"


def csv_type_of(text):
    """Returns the type inferred from one value."""
    kind = next((kind for kind, pattern in CSV_TYPES if re.fullmatch(pattern, text, re.ASCII)), "STRING")
    return "STRING" if kind == "BIGINT" and not -(2**63) <= int(text) < 2**63 else kind


def in_order(spark, frame, place):
    """Orders JSON columns like the engine: by the row where they first appear, and by name within a row."""
    names = {}
    for row in spark.read.text(place).head(SAMPLE_ROWS):
        try:
            names.update(dict.fromkeys(sorted(json.loads(row[0]))))
        except (TypeError, ValueError):
            continue  # not an object: leave the error to Spark
    known = [name for name in names if name in frame.columns]
    rest = [name for name in frame.columns if name not in known and name not in ("_corrupt_record",)]
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in known + rest))
