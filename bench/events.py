"""A wide table of web events, and queries over it.

The rows are functions of their number and a seed, by DuckDB's hash, so that the file depends only on DuckDB's version and
the number of rows. Users, pages and sessions are skewed: the k-th most frequent has a frequency of about k to the power of
-1/2 or -3/4. Events arrive nearly in order of time, so that the time is clustered and nothing else is.
"""

import fcntl
from pathlib import Path

import duckdb

from harness import binary

NAME = "events"
SEED = 33


def uniform(column: int) -> str:
    """Returns an expression of a number from 0 to 1 for a column's number."""
    return f"(hash(i * 131 + {SEED * 1000 + column}) / 18446744073709551616.0)"


def whole(column: int, end: int, power: int = 1) -> str:
    """Returns an expression of a whole number below `end`; with a higher power, smaller ones are more frequent."""
    return f"CAST(floor(power({uniform(column)}, {power}) * {end}) AS INTEGER)"


def one_of(column: int, values: list[str], power: int = 1) -> str:
    """Returns an expression of one of some texts; with a higher power, the first are more frequent."""
    listed = ", ".join(f"'{value}'" for value in values)
    return f"([{listed}])[1 + {whole(column, len(values), power)}]"


COUNTRIES = ["US", "IN", "BR", "DE", "GB", "FR", "JP", "ID", "MX", "IT", "ES", "CA", "AU", "NL", "SE", "PL", "TR", "KR", "VN", "AR"]
BROWSERS = ["Chrome", "Safari", "Edge", "Firefox", "Samsung Internet", "Opera"]
KINDS = ["view", "click", "scroll", "search", "cart", "purchase", "login", "error"]
TIME = f"CAST(floor((i + 20000 * {uniform(2)}) * 7776000.0 / ROWS) AS BIGINT)"  # seconds of 90 days
COLUMNS = {
    "event_id": "i",
    "event_time": f"TIMESTAMP '2026-01-01' + to_seconds({TIME})",
    "event_date": f"CAST(TIMESTAMP '2026-01-01' + to_seconds({TIME}) AS DATE)",
    "user_id": f"CAST({whole(3, 400_000, 2)} AS BIGINT)",
    "session_id": f"'s' || lpad(CAST({whole(4, 900_000)} AS VARCHAR), 8, '0')",
    "kind": one_of(5, KINDS, 2),
    "page_id": whole(6, 20_000, 4),
    "url": f"'https://www.example.com/section/' || {whole(6, 20_000, 4)} % 50 || '/page/' || {whole(6, 20_000, 4)}",
    "referrer": f"CASE WHEN {uniform(7)} < 0.4 THEN 'https://search.example.org/?q=' || {whole(8, 50_000, 4)} END",
    "country": one_of(9, COUNTRIES, 2),
    "city": f"'City ' || {whole(10, 3_000, 2)}",
    "postcode": f"lpad(CAST({whole(11, 100_000)} AS VARCHAR), 5, '0')",
    "language": one_of(12, ["en", "es", "pt", "de", "fr", "ja", "id"], 2),
    "device": one_of(13, ["phone", "desktop", "tablet", "tv"], 2),
    "os": one_of(14, ["Android", "iOS", "Windows", "macOS", "Linux"]),
    "browser": one_of(15, BROWSERS, 2),
    "browser_version": f"{whole(16, 40, 2)} || '.0.' || {whole(17, 6_000)}",
    "campaign": f"CASE WHEN {uniform(18)} < 0.1 THEN 'campaign-' || {whole(19, 200, 2)} END",
    "experiment": f"'exp-' || {whole(20, 64)}",
    "status": f"([200, 200, 200, 204, 301, 304, 404, 500])[1 + {whole(21, 8)}]",
    "sent_on": f"strftime(DATE '2026-01-01' + {whole(22, 90)}, '%Y-%m-%d')",
    "revenue": f"CAST(CASE WHEN {uniform(23)} < 0.05 THEN {whole(24, 50_000, 2)} / 100.0 ELSE 0 END AS DECIMAL(12, 2))",
    "quantity": f"CAST({whole(25, 20, 4)} AS DECIMAL(12, 2))",
    "latitude": f"{uniform(26)} * 180 - 90",
    "longitude": f"{uniform(27)} * 360 - 180",
    "duration_ms": whole(28, 600_000, 4),
    "bytes_sent": f"CAST({whole(29, 2_000_000, 4)} AS BIGINT)",
    **{f"metric_{n:02}": whole(40 + n, 10**(1 + n % 6), 1 + n % 3) for n in range(16)},
    **{f"score_{n:02}": f"round({uniform(60 + n)}, {2 + n % 6})" for n in range(8)},
    **{f"flag_{n:02}": f"{uniform(70 + n)} < {0.02 + 0.1 * n:.2f}" for n in range(8)},
    **{f"tag_{n:02}": f"CASE WHEN {uniform(80 + n)} < {0.2 * (n + 1):.1f} THEN 'tag-' || {whole(90 + n, 10**(1 + n), 2)} END" for n in range(4)},
    "comment": f"'visit ' || hash(i + {SEED}) || ' of user ' || {whole(3, 400_000, 2)}",
}  # fmt: skip

FILTERS = {
    "day": "event_date = DATE '2026-02-10'",
    "week": "event_time >= TIMESTAMP '2026-03-01' AND event_time < TIMESTAMP '2026-03-08'",
    "user": "user_id BETWEEN 150000 AND 150400",
    "page": "page_id >= 15000 AND page_id < 15500",
    "country": "country IN ('SE', 'PL')",
    "campaign": "campaign = 'campaign-150'",
    "status": "status = 500",
    "revenue": "revenue > 300",
    "duration": "duration_ms > 500000",
    "session": "session_id < 's00010000'",
    "all": "true",
}
SHAPES = {
    "count": "SELECT count(*) AS n FROM events WHERE {}",
    "groups": "SELECT country, device, count(*) AS n, sum(revenue) AS r, avg(duration_ms) AS d FROM events WHERE {} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 20",
    "texts": "SELECT browser, max(url) AS u, max(comment) AS c, count(DISTINCT session_id) AS s FROM events WHERE {} GROUP BY 1 ORDER BY 1",
    "wide": "SELECT kind, " + ", ".join(f"sum(metric_{n:02}) AS m{n}" for n in range(12)) + ", min(score_00) AS low FROM events WHERE {} GROUP BY 1 ORDER BY 1",
}  # fmt: skip


def queries() -> dict[str, str]:
    """Returns the queries by name."""
    return {f"{about}-{shape}": text.format(condition) for about, condition in FILTERS.items() for shape, text in SHAPES.items()}


def ensure_data(rows: int) -> Path:
    """Returns the folder with the table, made once. A partial file is never used."""
    folder = binary.data_home() / f"{NAME}-{rows}"
    file = folder / f"{NAME}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            items = ", ".join(f"{text.replace('ROWS', str(rows))} AS {name}" for name, text in COLUMNS.items())
            partial = file.with_suffix(".partial")
            duckdb.execute(f"COPY (SELECT {items} FROM range({rows}) t(i)) TO '{partial}' (FORMAT parquet, COMPRESSION zstd)")
            partial.rename(file)
    return folder
