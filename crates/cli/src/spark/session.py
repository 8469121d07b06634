"""Runs SQL statements through Spark SQL, for `pellucid sql --on spark`.

Started by the command with one argument, a request in JSON (`session.rs` writes it), by a Python
that has PySpark. It says what happens in JSON lines on standard output, each with one key:
`progress`, `note`, `warning`, `done`, `refused` (wrong usage) or `failed`. Rows go to a file, a
JSON array a row, so that no Arrow library is needed here, and any master will do.

A statement is Pellucid's SQL. Where Spark's dialect says the same it runs as it is written;
where it does not, `dialect.py` translates it, or refuses it. That Spark accepts a text is not
enough: it sorts NULLs to the other end, and divides whole numbers to fractions. Tables are read
as the engine reads them (`files.py`).
"""

import datetime
import decimal
import json
import math
import os
import sys
import threading
import time

import files
from refused import Refused

# Progress comes from a thread of its own.
SAYING = threading.Lock()


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
        # Decimals keep their scale, folders of a partition are texts, and no row of CSV is taken unread.
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.csv.parser.columnPruning.enabled": "false",
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


def dialect():
    """What brings Pellucid's SQL into Spark's; None without sqlglot."""
    try:
        import dialect as found
    except ImportError:
        return None
    except AttributeError as error:
        raise Refused(f"cannot translate with this sqlglot: {error}; install a newer one (pip install -U sqlglot)") from None
    return found


class Statements:
    """Brings statements into Spark's dialect; remembers the tables that stand for paths."""

    def __init__(self, spark, ours=False):
        self.spark = spark
        self.ours = ours  # the engine can read the statements
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
        from sqlglot.errors import SqlglotError

        try:
            made, same = self.dialect.translated(text, self.columns_of, self.view_of)
        except SqlglotError as error:
            refused = self.accepts(text)
            if refused is None and not self.ours:
                return text, False  # no SQL of ours, so it can mean one thing only
            why = f"Spark says: {refused}" if refused else "sqlglot, which translates it, cannot read it"
            raise Refused(f"{self.dialect.place_of(error)} ({why})") from None
        # The two may look alike to sqlglot, and not to Spark: VARCHAR without a length.
        return (text, False) if same and self.accepts(text) is None else (made, True)

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
                warning="sqlglot is not installed, so SQL means what it means to Spark: NULLs sort first, `/` gives fractions "
                f"also for whole numbers, and many functions give other values ({sys.executable} -m pip install sqlglot)"
            )
        return text

    def columns_of(self, name):
        """A table's columns with Spark's names of their types; None where there is no such table."""
        try:
            return [(field.name, field.dataType.simpleString()) for field in self.spark.table(name).schema.fields]
        except Exception:
            return None  # a mistake that Spark will name

    def view_of(self, path):
        """The temporary view that stands for a path; None for what is no path."""
        if not files.is_path(path):
            return None
        if path not in self.paths:
            name = f"path_{len(self.paths)}"
            files.table(self.spark, path).createOrReplaceTempView(name)
            self.paths[path] = name
        return self.paths[path]


def plain(value):
    """A value as JSON that Arrow's reader takes for its type."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"  # never with an exponent
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
            files.table(spark, path).createOrReplaceTempView(name.strip('"'))
        threading.Thread(target=watch, args=(spark.sparkContext, stop), daemon=True).start()
        statements = Statements(spark, request.get("ours", False))
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
