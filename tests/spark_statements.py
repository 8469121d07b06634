"""Runs many statements in one Spark session, as `pellucid sql --on spark` does: the program that `spark.Session` starts.

Within a Python that has PySpark: reads a request in JSON (`tables`, master and settings as `session.py` has
them) from its first line, then a statement in JSON a line, and answers each with a line: `rows`, `columns` and
`types`, with `translated`; or `refused`; or `failed`. A statement that fails ends nothing, unlike the command.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "crates" / "cli" / "src" / "spark"))
import files  # noqa: E402
import session  # noqa: E402


def answer(spark, statements, text):
    """What one statement gives."""
    try:
        sql, translated = statements.prepared(text)
        frame = spark.sql(sql)
        rows = [session.plain(row) for row in frame.collect()]
    except session.Refused as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"failed": session.first_line(error)}
    fields = frame.schema.fields
    return {
        "rows": rows, "columns": [field.name for field in fields], "types": [field.dataType.simpleString() for field in fields],
        "translated": sql if translated else None,
    }  # fmt: skip


def main():
    """Until there are no more lines."""
    out = session.OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["TZ"] = "UTC"
    time.tzset()
    request = json.loads(sys.stdin.readline())
    spark = session.start(request)
    for name, path in request["tables"]:
        files.table(spark, path).createOrReplaceTempView(name)
    statements = session.Statements(spark, ours=True)
    for line in sys.stdin:
        out.write(json.dumps(answer(spark, statements, json.loads(line))) + "\n")
        out.flush()
    spark.stop()


if __name__ == "__main__":
    main()
