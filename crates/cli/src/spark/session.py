"""Runs SQL statements through Spark SQL, for `pellucid sql --on spark`.

The command starts it in a Python that has PySpark. `session.rs` sends the request as one JSON line
on standard input. The session sends messages as JSON lines on standard output, each with one key:
`progress`, `note`, `warning`, `done`, `refused` (usage error) or `failed`. Rows go to a file, one JSON
array per row, so that no Arrow library is needed and any master can be used.

Statements are in Pellucid's SQL. A statement with the same meaning in Spark's dialect runs
unchanged; `dialect.py` translates or rejects the others. It is not enough that Spark accepts a
statement: Spark sorts NULLs to the other end, and `/` of whole numbers gives fractions. Tables are
read as in the engine (`files.py`).
"""

import datetime
import decimal
import json
import math
import os
import re
import shlex
import sys
import threading
import time

import files
from refused import Refused

# A separate thread reports progress.
OUT_LOCK = threading.Lock()
# Characters that would end a key, a value or a line of a Java properties file.
ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {c: "\\" + c for c in "\\ =:#!"})


def say(**message):
    """Sends a message to the command."""
    with OUT_LOCK:
        OUT.write(json.dumps(message) + "\n")
        OUT.flush()


def receive():
    """Returns the command's next message. Reads bytes, since the locale may have another encoding than UTF-8."""
    return json.loads(sys.stdin.buffer.readline())


def first_line(error):
    """Returns the first line of an error's message, without its stack trace."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


def defaults_text(home=None):
    """Returns the text of the user's spark-defaults.conf."""
    home = os.environ.get("SPARK_HOME") or home
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    path = folder and os.path.join(folder, "spark-defaults.conf")
    if not path or not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def defaults():
    """Returns the user's settings, which must stay in effect."""
    lines = (line for line in defaults_text().splitlines() if not line.startswith("#"))
    parts = (line.strip().replace("=", " ", 1).split(None, 1) for line in lines)
    return {part[0]: part[1].strip() for part in parts if len(part) == 2}


def settings(request):
    """Returns the session's settings: the defaults, overridden by the command line, then by required settings."""
    given = dict(request["conf"])
    theirs = {**defaults(), **given}
    master = request["master"] or theirs.get("spark.master") or "local[*]"
    ours = {
        "spark.app.name": request.get("name", "pellucid sql"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": "file:" + os.path.join(request["folder"], "warehouse"),
        # Pellucid's semantics: overflow is an error, "a" is a column, times have no zone.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.session.timeZone": "UTC",
        # Decimals keep their scale, partition values are text, and every field of a CSV row is parsed.
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
            existing = [one.strip() for one in theirs.get(key, "").split(",")]
            needed[key] = ",".join([*(one for one in existing if one and one != value), value])
    return {**ours, **given, **needed}


def untested(version):
    """Returns a warning for an untested version of PySpark, and None for a tested one."""
    if version.startswith(("3.5.", "4.0.", "4.3.")):
        return None
    return f"tested with PySpark 3.5, 4.0 and 4.3, but not with {version}: results and times may differ"


def property_line(key, value):
    """Returns a setting as a line of a Java properties file."""
    return f"{key.translate(ESCAPES)}={value.translate(ESCAPES)}\n"


def start_java(chosen, folder):
    """Starts Spark's JVM with the settings in a private file.

    By default PySpark passes all settings as arguments, which every user of the machine can read.
    """
    import pyspark
    from pyspark import SparkContext

    path = os.path.join(folder, "settings")
    # This file replaces spark-defaults.conf. The last of several lines with the same key counts.
    text = [defaults_text(os.path.dirname(pyspark.__file__)), "\n", *(property_line(*one) for one in chosen.items())]
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write("".join(text))
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(path)} {given}"
    try:
        SparkContext._ensure_initialized()
    finally:
        os.environ["PYSPARK_SUBMIT_ARGS"] = given
        os.unlink(path)


def start(request):
    """Starts the session."""
    import pyspark
    from pyspark.sql import SparkSession

    if warning := untested(pyspark.__version__):
        say(warning=warning)
    chosen = settings(request)
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        start_java(chosen, request["folder"])
        spark = builder.getOrCreate()
    except Exception as error:
        text = first_line(error)
        if "JAVA_GATEWAY" in text or isinstance(error, FileNotFoundError):
            text = f"Java did not start ({text}); set JAVA_HOME to Java 17, or 11 for Spark 3.5"
        raise RuntimeError(f"cannot start Spark: {text}") from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def dialect():
    """Returns the module that translates SQL for Spark; None without sqlglot."""
    try:
        import dialect as found
    except ImportError:
        return None
    except AttributeError as error:
        raise Refused(f"cannot translate SQL with this version of sqlglot: {error}; upgrade it (pip install -U sqlglot)") from None
    return found


class Statements:
    """Prepares statements for Spark, and keeps the views of paths."""

    def __init__(self, spark, ours=False):
        self.spark = spark
        self.ours = ours  # the engine can parse the statements
        self.dialect = dialect()
        self.paths = {}
        self.warned = False

    def parsed(self, text):
        """Returns Spark's plan of a statement, without the numbers of its columns, and the error if Spark does not accept it."""
        try:
            plan = self.spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except Exception as error:
            return None, first_line(getattr(error, "desc", None) or error)
        return re.sub(r"#\d+", "", str(plan)).lower(), None

    def prepared(self, text, line=1):
        """Returns the statement that Spark should run, and whether it was translated. It starts on a line of the script."""
        if self.dialect is None:
            return self.unread(text), False
        from sqlglot.errors import SqlglotError

        try:
            made, same = self.dialect.translated(text, self.columns_of, self.view_of, self.ours, line)
        except SqlglotError as error:
            _, refused = self.parsed(text)
            if refused is None and not self.ours:
                return text, False  # only Spark can parse it, so its meaning is unambiguous
            why = f"Spark says: {refused}" if refused else "sqlglot, which translates it, cannot parse it"
            raise Refused(f"{self.dialect.place_of(error)} ({why})") from None
        # sqlglot may consider a statement equal that Spark rejects, such as VARCHAR without a length, or reads otherwise, such
        # as `a NOTNULL`, where NOTNULL would be an alias.
        plan, refused = self.parsed(text) if same else (None, "another meaning")
        return (text, False) if refused is None and plan == self.parsed(made)[0] else (made, True)

    def unread(self, text):
        """Returns a statement unchanged if Spark accepts it, and warns once that it is not translated."""
        _, refused = self.parsed(text)
        if refused is not None:
            raise Refused(
                f"Spark rejects this statement, and sqlglot, which could translate it, is not installed for "
                f"{sys.executable} (pip install sqlglot): {refused}"
            )
        if not self.warned:
            self.warned = True
            say(
                warning="sqlglot is not installed, so SQL has Spark's semantics: NULLs sort first, `^` is "
                f"bitwise, and many functions give other values; install it ({sys.executable} -m pip install sqlglot)"
            )
        return text

    def columns_of(self, name):
        """Returns a table's columns with Spark's names of their types; None for an unknown table."""
        try:
            return [(field.name, field.dataType.simpleString()) for field in self.spark.table(name).schema.fields]
        except Exception:
            return None  # Spark will report the error

    def view_of(self, path):
        """Returns the temporary view of a path; None if the name is not a path."""
        if not files.is_path(path):
            return None
        if path not in self.paths:
            name = f"path_{len(self.paths)}"
            files.table(self.spark, path).createOrReplaceTempView(name)
            self.paths[path] = name
        return self.paths[path]


def plain(value):
    """Converts a value to JSON that Arrow's reader accepts for its type."""
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
    if isinstance(value, (list, tuple)):  # arrays and structs
        return [plain(one) for one in value]
    return str(value)


def watch(context, stop):
    """Reports the progress of the running stages every 0.3 s."""
    tracker = context.statusTracker()
    while not stop.wait(0.3):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [stage for stage in stages if stage]
        done, total = (sum(getattr(s, key) for s in stages) for key in ("numCompletedTasks", "numTasks"))
        say(progress={"done": done, "total": total, "stages": len(stages)})


def run(spark, statements, number, text, line, folder):
    """Runs one statement and writes its rows to a file."""
    sql, translated = statements.prepared(text, line)
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
    """Runs all statements in one session."""
    spark = start(request)
    stop = threading.Event()
    try:
        for name, path in request["tables"]:
            files.table(spark, path).createOrReplaceTempView(name.strip('"'))
        threading.Thread(target=watch, args=(spark.sparkContext, stop), daemon=True).start()
        statements = Statements(spark, request.get("ours", False))
        for number, (text, line) in enumerate(request["statements"]):
            run(spark, statements, number, text, line, request["folder"])
    finally:
        stop.set()
        spark.stop()


if __name__ == "__main__":
    # Spark's Python code may print to standard output, so messages use a separate descriptor.
    OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["TZ"] = "UTC"
    time.tzset()
    wanted = receive()
    try:
        main(wanted)
    except Refused as error:
        say(refused=str(error))
    except Exception as error:
        cause = getattr(error, "java_exception", None)
        say(failed=first_line(cause.getMessage() if cause and cause.getMessage() else error))
