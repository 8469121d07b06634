"""Reads files as Spark tables, with the same columns, types and rows as Pellucid's engine.

Spark's own inference is not used for text files: it reads `1d` as a number, `10:30` as a time today and
partition folders as text here, and sorts the columns of JSON by name. CSV columns are read as text, and
cast to the types that the engine's rules infer from all of a small file and the first rows of a large one. A later
value that does not fit is an error. Files that the engine reads in another way than Spark could are refused.
"""

import glob
import json
import os
import re
from csv import reader as reader_of_lines
from urllib.parse import unquote

from refused import Refused

FORMATS = {
    "parquet": "parquet", "parq": "parquet", "pq": "parquet", "csv": "csv", "tsv": "csv", "txt": "csv",
    "json": "json", "jsonl": "json", "ndjson": "json",
}  # fmt: skip
ENGINE_ONLY_FORMATS = ("arrow", "arrows", "ipc", "feather")
COMPRESSIONS = ("gz", "bz2")
ENGINE_ONLY_COMPRESSIONS = ("gzip", "xz", "zst", "zstd")
# A smaller file is examined whole, as by the engine.
WHOLE_BYTES = 2 << 20
SAMPLE_ROWS = 1000
# The engine's inference rules, in the same order. Spark has no type, or no such format, for the last ones.
CSV_TYPES = (
    ("BOOLEAN", r"(?i:true|false|t|f|yes|no)"),
    ("BIGINT", r"-?(?:0|[1-9]\d*)"),
    ("DOUBLE", r"-?(?:(?:(?:0|[1-9]\d*)?\.\d+|(?:0|[1-9]\d*)\.\d*)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)|(?i:-?nan|-?inf|-?infinity)"),
    ("DATE", r"\d{4}-\d\d?-\d\d?"),
    ("TIMESTAMP_NTZ", r"\d{4}-\d\d?-\d\d?[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?"),
    ("other time", r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?|\d{4}-\d\d?-\d\d?[T ]\d.*|\d{1,4}[-/. ]\d{1,2}[-/. ]\d{1,4}(?: .*)?"),
)
JSON_TYPES = (
    ("DATE", r"\d{4}-\d\d-\d\d"),
    ("TIMESTAMP_NTZ", r"\d{4}-\d\d?-\d\d?[T ]\d\d:\d\d:\d\d(?:\.\d+)?"),
    ("other time", r"\d\d:\d\d:\d\d(?:\.\d+)?|\d{4}[-/]\d\d?[-/]\d\d?[T ].*|\d{4}/\d\d/\d\d"),
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
        return typed_keys(csv(reader, place, "\t" if extension == "tsv" else ",", path))
    if kind == "json":
        return typed_keys(json_table(spark, reader.json(place), place, path))
    return typed_keys(reader.parquet(*(place if isinstance(place, list) else [place])))


def base_of(path):
    """Returns the root folder of partition folders: for a pattern, the part before the first wildcard."""
    if os.path.exists(path):
        return path if os.path.isdir(path) else os.path.dirname(path) or "."
    return os.path.dirname(re.split(r"[*?\[]", path)[0]) or ("/" if path.startswith("/") else ".")


def escaped(path):
    """Escapes the pattern characters of an existing path."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path) if os.path.exists(path) else path


def quoted(column):
    """Returns a name as Spark's SQL has it."""
    return "`" + column.replace("`", "``") + "`"


def keys_of(frame):
    """Returns the values of the keys of partition folders, by key; None for NULL."""
    found = {}
    for name in frame.inputFiles():
        for part in name.split("/")[:-1]:
            key, equals, value = part.partition("=")
            if equals and key:
                found.setdefault(key, set()).add(None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value))
    return found


def typed_keys(frame):
    """Gives the keys of partition folders the engine's types: numbers and dates, otherwise text."""
    kinds = {}
    for key, values in keys_of(frame).items():
        known = {csv_type_of(value) for value in values if value is not None}
        kinds[key] = known.pop() if known in ({"BIGINT"}, {"DATE"}) else "STRING"
    return frame.selectExpr(*(f"CAST({quoted(c)} AS {kinds[c]}) AS {quoted(c)}" if c in kinds else quoted(c) for c in frame.columns))


def csv(reader, place, separator, path):
    """Reads CSV: quotes are escaped by doubling, quoted fields may contain newlines, and backslashes are literal.

    The engine finds other separators and files without a header. Those are refused.
    """
    lines = [row[0] for row in reader.text(place).head(20)]
    widths = {one: {len(row) for row in reader_of_lines(lines, delimiter=one) if row} for one in ",|;\t"}
    best = max(",|;\t", key=lambda one: (len(widths[one]) == 1, max(widths[one], default=0), one == separator))
    if best != separator and len(widths[best]) == 1 and max(widths[best]) > 1:
        raise Refused(f"cannot read {path} on Spark: its values are separated by {best!r}; write it with {separator!r}")
    if any(line.startswith("#") for line in lines):
        raise Refused(f"cannot read {path} on Spark: it has comments; remove them")
    options = {"header": True, "sep": separator, "quote": '"', "escape": '"', "multiLine": True, "mode": "FAILFAST"}
    frame = reader.options(**options).csv(place)
    sample = frame.collect() if is_small(place) else frame.head(SAMPLE_ROWS)
    kinds = [csv_type([row[i] for row in sample]) for i in range(len(frame.columns))]
    folders = keys_of(frame)
    own = [(column, kind) for column, kind in zip(frame.columns, kinds) if column not in folders]
    if any(kind != "STRING" for _, kind in own) and all(kind in ("STRING", csv_type_of(column)) for column, kind in own):
        raise Refused(f"cannot read {path} on Spark: it has no header; add one")
    for column, kind in own:
        if kind == "other time":
            raise Refused(f"cannot read {path} on Spark: column {column} has times or dates in a form that Spark does not read; use ISO 8601")

    from pyspark.sql import functions

    def cast(column, kind):
        text = functions.col(quoted(column))
        return text if column in folders else typed(functions.when(text != "", text), kind, CSV_TYPES, f"{path}, column {column}").alias(column)

    return frame.select(*(cast(column, kind) for column, kind in zip(frame.columns, kinds)))


def is_small(place):
    """Returns whether local files are examined whole: text compresses to about a tenth."""
    paths = [re.sub(r"\\(.)", r"\1", one.removeprefix("file:")) for one in place] if isinstance(place, list) else []
    return bool(paths) and sum(os.path.getsize(one) * (10 if kind_of(one)[1] else 1) for one in paths) <= WHOLE_BYTES


def typed(text, kind, types, place):
    """Casts texts to a type; another text than `types` has for it is an error, since Spark may read it as another value."""
    from pyspark.sql import functions

    if kind == "STRING":
        return text
    kinds = ("BIGINT", "DOUBLE") if kind == "DOUBLE" else (kind,)
    fits = text.rlike("|".join(f"^(?:{pattern})$" for name, pattern in types if name in kinds))
    wrong = functions.raise_error(functions.concat(functions.lit(f"cannot read {place}: it is {kind}, and this is another value: "), text))
    return functions.when(fits, text.cast(kind.lower())).when(text.isNotNull(), wrong)


def csv_type(texts):
    """Returns the type that the engine infers for a column with these values."""
    found = {csv_type_of(text) for text in texts if text}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return found.pop() if len(found) == 1 else "STRING"


def csv_type_of(text):
    """Returns the type inferred from one value."""
    kind = next((kind for kind, pattern in CSV_TYPES if re.fullmatch(pattern, text, re.ASCII)), "STRING")
    return "DOUBLE" if kind == "BIGINT" and not -(2**63) <= int(text) < 2**63 else kind


def json_type_of(text):
    """Returns the type inferred from one string of JSON."""
    return next((kind for kind, pattern in JSON_TYPES if re.fullmatch(pattern, text, re.ASCII)), "STRING")


def strings(value):
    """Returns all strings within a value of JSON."""
    if isinstance(value, str):
        return [value]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for child in children for text in strings(child)]


def json_table(spark, frame, place, path):
    """Orders JSON columns like the engine, by their first appearance, and gives dates their types."""
    texts = {}
    for row in spark.read.text(place).head(SAMPLE_ROWS):
        if row[0].lstrip()[:1] == "[":
            raise Refused(f"cannot read {path} on Spark: it is one list; write one record a line")
        try:
            record = json.loads(row[0])
        except (TypeError, ValueError):
            continue  # leave the error to Spark
        if not isinstance(record, dict):
            continue
        for name, value in record.items():
            texts.setdefault(name, []).append(value)
    kinds = {}
    for name, values in texts.items():
        top = {json_type_of(value) if isinstance(value, str) else "STRING" for value in values if value is not None}
        nested = {json_type_of(text) for value in values if not isinstance(value, str) for text in strings(value)}
        if top == {"other time"} or nested - {"STRING"}:
            raise Refused(f"cannot read {path} on Spark: {name} has dates or times that Spark reads as text; CAST needs flat ISO 8601")
        kinds[name] = top.pop() if len(top) == 1 else "STRING"
    known = [name for name in texts if name in frame.columns]
    rest = [name for name in frame.columns if name not in known and name not in ("_corrupt_record",)]

    from pyspark.sql import functions

    def column(name):
        kind = kinds.get(name, "STRING")
        return typed(functions.col(quoted(name)), kind, JSON_TYPES, f"{path}, column {name}").alias(name)

    return frame.select(*(column(name) for name in known + rest))
