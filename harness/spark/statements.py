"""Runs many statements in one Spark session, as `pellucid sql --on spark` does. `spark.Session` starts this program.

Needs a Python with PySpark. The first input line is a request in JSON (`tables`, master and settings, as for `session.py`).
Each further line is a statement in JSON, answered with a line: `rows`, `columns`, `types` and `translated`; or `refused`;
or `failed`. Unlike the command, it continues after a failed statement.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crates" / "cli" / "src" / "spark"))
import files
import session


def answer(spark: Any, statements: Any, text: str) -> dict[str, Any]:
    """Runs one statement and returns its answer."""
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


def main() -> None:
    """Runs statements until the end of the input."""
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
