"""Runs SQL statements through Spark SQL, for `pellucid sql --on spark`.

Started by the command with one argument, a request in JSON (`session.rs` writes it), by a Python
that has PySpark. It says what happens in JSON lines on standard output, each with one key:
`progress`, `note`, `warning`, `done`, `refused` (wrong usage) or `failed`. Rows go to a file, a
JSON array a row, so that no Arrow library is needed here, and any master will do.

A statement is Pellucid's SQL. Where Spark's dialect says the same it runs as it is written;
where it does not, sqlglot translates it; what neither can do is refused with its place. That
Spark accepts a text is not enough: it sorts NULLs to the other end, and divides whole numbers
to fractions.
"""

import datetime
import glob
import json
import logging
import math
import os
import sys
import threading
import time

# Progress comes from a thread of its own.
SAYING = threading.Lock()
FORMATS = {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}


class Refused(Exception):
    """What was asked cannot be done as it is: wrong usage."""


def say(**what):
    """One line for the command."""
    with SAYING:
        OUT.write(json.dumps(what) + "\n")
        OUT.flush()


def first_line(error):
    """What an error says, without its stack."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


def defaults():
    """The user's own settings, which ours must not put out of force."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    path = folder and os.path.join(folder, "spark-defaults.conf")
    if not path or not os.path.exists(path):
        return {}
    with open(path) as lines:
        parts = (line.strip().replace("=", " ", 1).split(None, 1) for line in lines if not line.startswith("#"))
        return {part[0]: part[1].strip() for part in parts if len(part) == 2}


def settings(request):
    """What the session is made with: ours, over them the command line's, over them what has to be."""
    given = dict(request["conf"])
    theirs = {**defaults(), **given}
    master = request["master"] or theirs.get("spark.master") or "local[*]"
    ours = {
        "spark.app.name": request.get("name", "pellucid sql"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": "file:" + os.path.join(request["folder"], "warehouse"),
        # As the statement means it: overflow is an error, "a" names a column, a time has no zone.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    needed = {
        "spark.master": master,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "file:" + request["log_folder"],
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
        **request.get("needed", {}),
    }
    if request["jar"]:
        for key, value in (("spark.jars", request["jar"]), ("spark.plugins", request["plugin"])):
            there = [one.strip() for one in theirs.get(key, "").split(",")]
            needed[key] = ",".join([*(one for one in there if one and one != value), value])
    return {**ours, **given, **needed}


def untested(version):
    """What is said of a PySpark that this was not tried with; None where it was."""
    if version.startswith(("3.5.", "4.0.", "4.3.")):
        return None
    return f"this was tried with PySpark 3.5, 4.0 and 4.3, not with {version}: answers and times may be others"


def start(request):
    """The session."""
    import pyspark
    from pyspark.sql import SparkSession

    if warning := untested(pyspark.__version__):
        say(warning=warning)
    builder = SparkSession.builder
    for key, value in settings(request).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        text = first_line(error)
        if "JAVA_GATEWAY" in text or isinstance(error, FileNotFoundError):
            text = f"no Java ran ({text}); Spark 4 needs Java 17, 3.5 also takes 11: set JAVA_HOME to one"
        raise RuntimeError(f"Spark did not start: {text}") from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def table(spark, path):
    """The rows at a path, whose ending says the format; a folder's is that of the files in it."""
    known = [path]
    if "://" not in path:
        path = os.path.abspath(path)
        known = sorted(glob.glob(path))
        if not known:
            raise Refused(f"{path}: no file is there")
        if os.path.isdir(known[0]):
            inside = sorted(glob.glob(known[0] + "/**", recursive=True))
            known = [one for one in inside if os.path.isfile(one) and os.path.basename(one)[0] not in "._"] or known
    kind = FORMATS.get(os.path.splitext(known[0])[1].lower().lstrip("."))
    if kind is None:
        raise Refused(f"{path}: Spark is given Parquet, CSV and JSON lines here, told by the ending")
    reader = spark.read
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", "true")
    return reader.format(kind).load(path if "://" in path else "file:" + path)


def dialect():
    """Pellucid's SQL as sqlglot is to read it; None without sqlglot."""
    try:
        from sqlglot.dialects.duckdb import DuckDB
    except ImportError:
        return None
    # What it cannot do it says by errors, which are handled.
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

    class Pellucid(DuckDB):
        NULL_ORDERING = "nulls_are_large"
        TYPED_DIVISION = True
        SAFE_DIVISION = False

    return Pellucid


def place_of(error):
    """Where a text stopped making sense to sqlglot."""
    found = error.errors[0] if getattr(error, "errors", None) else {}
    if not found.get("line"):
        return first_line(error)
    return f"line {found['line']}, column {found['col']}: {found['description']}, near `{found['highlight']}`"


class Statements:
    """Brings statements into Spark's dialect; remembers the tables that stand for paths."""

    def __init__(self, spark):
        self.spark = spark
        self.dialect = dialect()
        self.paths = {}
        self.warned = False

    def accepts(self, text):
        """Why Spark's parser refuses a text; None where it does not."""
        try:
            self.spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except Exception as error:
            return first_line(getattr(error, "desc", None) or error)
        return None

    def prepared(self, text):
        """What Spark is to run, and whether it is a translation."""
        if self.dialect is None:
            return self.unread(text), False
        import sqlglot
        from sqlglot.errors import SqlglotError, UnsupportedError

        try:
            tree = sqlglot.parse_one(text, read=self.dialect)
        except SqlglotError as error:
            refused = self.accepts(text)
            if refused is None:
                return text, False  # no SQL of ours, so it can mean one thing only
            raise Refused(f"{place_of(error)} (Spark says: {refused})") from None
        tree = self.adapted(tree)
        try:
            translated = tree.sql(dialect="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
            same = sqlglot.parse_one(text, read="spark").sql(dialect="spark") == translated
        except UnsupportedError as error:
            raise Refused(f"Spark SQL cannot say this: {first_line(error)}") from None
        except SqlglotError:
            same = False  # Spark's dialect has no such text
        # The two may look alike to sqlglot, and not to Spark: VARCHAR without a length.
        return (text, False) if same and self.accepts(text) is None else (translated, True)

    def unread(self, text):
        """Without sqlglot a text is run as it is, where Spark can, and that is said."""
        refused = self.accepts(text)
        if refused is not None:
            raise Refused(
                f"Spark does not take this as it is, and sqlglot, which translates it, is not installed for "
                f"{sys.executable} (pip install sqlglot): {refused}"
            )
        if not self.warned:
            self.warned = True
            say(
                warning="sqlglot is not installed, so SQL runs as Spark reads it: NULLs sort first, and `/` "
                f"gives fractions also for whole numbers ({sys.executable} -m pip install sqlglot)"
            )
        return text

    def adapted(self, tree):
        """Changes what sqlglot does not: paths for tables, whole division, kinds of statements."""
        from sqlglot import exp

        if isinstance(tree, exp.Copy):
            raise Refused("COPY is not run on Spark; -o FILE writes the rows of a query")
        if isinstance(tree, exp.Create) and tree.args.get("kind") == "VIEW":
            # A session's own: other views need a catalog that outlives it.
            properties = tree.args.get("properties") or exp.Properties(expressions=[])
            if not properties.find(exp.TemporaryProperty):
                properties.append("expressions", exp.TemporaryProperty())
            tree.set("properties", properties)
        for aggregate in tree.find_all(exp.ArrayAgg, exp.GroupConcat):
            if aggregate.find(exp.Order):
                raise Refused(f"Spark SQL cannot say this: the order within `{aggregate.sql()}`")
        for node in list(tree.find_all(exp.Table)):
            if node.args.get("db") or not isinstance(node.this, exp.Identifier):
                continue
            name = node.name
            has_ending = os.path.splitext(name)[1].lower().lstrip(".") in FORMATS
            if node.this.quoted and (has_ending or "/" in name):
                node.set("this", exp.to_identifier(self.view_of(name)))
        self.divide(tree)
        return tree

    def view_of(self, path):
        """The temporary view that stands for a path."""
        if path not in self.paths:
            name = f"path_{len(self.paths)}"
            table(self.spark, path).createOrReplaceTempView(name)
            self.paths[path] = name
        return self.paths[path]

    def divide(self, tree):
        """`/` between whole numbers becomes Spark's `DIV`; where types are not known, that is refused."""
        from sqlglot import exp

        divisions = dict(enumerate(tree.find_all(exp.Div)))
        if not divisions:
            return
        for number, division in divisions.items():
            division.meta["division"] = number
        typed = {node.meta.get("division"): node for node in self.with_types(tree).find_all(exp.Div)}
        whole, unknown = exp.DataType.INTEGER_TYPES, exp.DataType.Type.UNKNOWN
        for number, division in divisions.items():
            node = typed.get(number)
            sides = (node.left, node.right) if node else ()
            kinds = [side.type.this if side.type else unknown for side in sides] or [unknown]
            if all(kind in whole for kind in kinds):
                division.replace(exp.IntDiv(this=division.this, expression=division.expression))
            elif all(kind in whole or kind == unknown for kind in kinds):
                raise Refused(
                    f"`{division.sql(dialect=self.dialect)}`: it cannot be told whether this divides whole numbers, "
                    "which Spark would divide to fractions; CAST one side to the type that is meant"
                )

    def with_types(self, tree):
        """A copy of a statement with the types of its expressions, as far as they are known."""
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
        from sqlglot.optimizer.annotate_types import annotate_types
        from sqlglot.optimizer.qualify import qualify
        from sqlglot.schema import MappingSchema

        schema = MappingSchema(dialect="spark")
        for name in {node.name for node in tree.find_all(exp.Table)}:
            try:
                fields = self.spark.table(name).schema.fields
            except Exception:
                continue  # a common table expression, or a mistake that Spark will name
            schema.add_table(name, {field.name: field.dataType.simpleString() for field in fields})
        options = {"dialect": self.dialect, "quote_identifiers": False, "validate_qualify_columns": False}
        copy = tree.copy()
        for ordered in copy.find_all(exp.Ordered):
            if ordered.find(exp.Div):
                # The same as an output it would become that one's name, and have no type.
                ordered.set("this", exp.Anonymous(this="ordered", expressions=[ordered.this]))
        try:
            return annotate_types(qualify(copy, schema=schema, **options), schema=schema)
        except SqlglotError:
            # A mistake that Spark will name better; until then types are those of literals.
            return annotate_types(tree.copy(), schema=schema)


def plain(value):
    """A value as JSON that Arrow's reader takes for its type."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(plain(key)): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):  # arrays, and structs by position
        return [plain(one) for one in value]
    return str(value)


def watch(context, stop):
    """Says now and then how many tasks of the running stages have ended."""
    tracker = context.statusTracker()
    while not stop.wait(0.3):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [stage for stage in stages if stage]
        done, total = (sum(getattr(s, key) for s in stages) for key in ("numCompletedTasks", "numTasks"))
        say(progress={"done": done, "total": total, "stages": len(stages)})


def run(spark, statements, number, text, folder):
    """One statement, its rows in a file."""
    sql, translated = statements.prepared(text)
    if translated:
        say(note=f"translated for Spark: {sql}")
    spark.sparkContext.setJobDescription(text)
    begin_ms = time.time() * 1000
    try:
        frame = spark.sql(sql)
    except Exception as error:
        if type(error).__name__ in ("AnalysisException", "ParseException"):
            where = f" (as translated: {sql})" if translated else ""
            raise Refused(first_line(getattr(error, "desc", None) or error) + where) from None
        raise
    rows = frame.collect() if frame.schema.fields else []
    end_ms = time.time() * 1000
    spark.sparkContext.setJobDescription(None)
    path = os.path.join(folder, f"rows-{number}.json")
    with open(path, "w") as file:
        for row in rows:
            file.write(json.dumps(plain(row)) + "\n")
    fields = [field.jsonValue() for field in frame.schema.fields]
    say(done={"schema": fields, "rows": path, "begin_ms": begin_ms, "end_ms": end_ms})


def main(request):
    """All statements in one session."""
    spark = start(request)
    stop = threading.Event()
    try:
        for name, path in request["tables"]:
            table(spark, path).createOrReplaceTempView(name)
        threading.Thread(target=watch, args=(spark.sparkContext, stop), daemon=True).start()
        statements = Statements(spark)
        for number, text in enumerate(request["statements"]):
            run(spark, statements, number, text, request["folder"])
    finally:
        stop.set()
        spark.stop()


if __name__ == "__main__":
    # Python code of Spark prints to standard output too; ours has a descriptor of its own.
    OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["TZ"] = "UTC"
    time.tzset()
    with open(sys.argv[1]) as source:
        wanted = json.load(source)
    try:
        main(wanted)
    except Refused as error:
        say(refused=str(error))
    except Exception as error:
        cause = getattr(error, "java_exception", None)
        say(failed=first_line(cause.getMessage() if cause and cause.getMessage() else error))
