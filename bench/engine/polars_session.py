"""A Polars session (`bench/engine/sessions.py`): its lazy SQL interface on the same files and queries."""

import json
import sys
import time
from pathlib import Path

import polars


def main(data: Path) -> None:
    """Answers queries until standard input ends."""
    tables = {path.stem: polars.scan_parquet(path) for path in sorted(data.glob("*.parquet"))}
    context = polars.SQLContext(tables)
    for line in sys.stdin:
        text = Path(line.strip()).read_text().strip().rstrip(";")
        start = time.perf_counter()
        try:
            found = context.execute(text).collect()
            said = {"ms": (time.perf_counter() - start) * 1e3, "rows": found.height}
        except Exception as error:
            said = {"error": str(error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
