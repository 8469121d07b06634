"""Measures cold TPC-H on throttled disks: the time over the disk's own, and the effect of a second disk.

Needs the kernel's throttle, since an engine-paced disk does not slow the other engines. Each run
starts with the tables evicted from the page cache; bytes are those of the device's counter.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from bench.common import results
from bench.engine.sessions import EngineError, Session
from harness import binary
from lab import cache, disks, kernel

SUITE, TWO_DISKS = "cold", "two-disks"
RATE = 50_000_000
IDEAL_S = 5.0
RUNS = 3
READ_AHEAD_KB = (128, 2560)
SHIPPED = ["l_extendedprice", "l_discount", "l_shipdate"]
# The columns that each query must read completely, since statistics prune none of their chunks.
COLUMNS = {
    1: {"lineitem": [*SHIPPED, "l_quantity", "l_tax", "l_returnflag", "l_linestatus"]},
    6: {"lineitem": [*SHIPPED, "l_quantity"]},
    14: {"lineitem": [*SHIPPED, "l_partkey"], "part": ["p_partkey", "p_type"]},
}
TABLES = {"lineitem": "l_orderkey", "part": "p_partkey"}
PEERS = ("datafusion", "duckdb")
FILES = 8


def duck(*arguments: str | Path) -> str:
    """Runs a subcommand of `bench.engine.duckdb_session` in a separate process, and returns its output."""
    command = [sys.executable, "-B", "-m", "bench.engine.duckdb_session", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=binary.ROOT).stdout


def needed_bytes(data: Path, query: int) -> int:
    """Returns the bytes that a query must read."""
    return int(duck("--needed", data, json.dumps(COLUMNS[query])))


def choose_data() -> tuple[Path, float]:
    """Returns the data and scale factor at which each query's ideal time is at least `IDEAL_S`."""
    for scale in (1, 2, 5, 10):
        data = binary.ensure_data("tpch", scale)
        if min(needed_bytes(data, query) for query in COLUMNS) >= IDEAL_S * RATE:
            return data, scale
    return data, scale


def run(texts: Path, say, max_runs: int | None = None) -> None:
    """Measures all cases that this build lacks, or says why the kernel cannot throttle."""
    runs = min(RUNS, max_runs or RUNS)
    if kernel.missing():
        say({"skipped": f"no kernel-throttled disk: {kernel.missing()}"}, {})
        return
    data, scale = choose_data()
    cases = [{"scale": scale, "query": q, "read_ahead_kb": kb} for kb in READ_AHEAD_KB for q in COLUMNS]
    if cases := [case for case in cases if not results.done(SUITE, case, runs)]:
        one_disk(data, cases, texts, say, runs)
    cases = [{"scale": scale, "query": q} for q in COLUMNS]
    if cases := [case for case in cases if not results.done(TWO_DISKS, case, runs)]:
        two_disks(data, cases, texts, say, runs)


def image_size(data: Path) -> str:
    """Returns a disk size for the tables and the file system."""
    return f"{int(sum((data / f'{table}.parquet').stat().st_size for table in TABLES) * 1.15) + (128 << 20)}B"


def one_disk(data: Path, cases: list[dict], texts: Path, say, runs: int) -> None:
    """Measures Pellucid and its peers on one disk, at both settings of read-ahead."""
    with disks.throttled(f"{RATE}B/s", mode="kernel", size=image_size(data)) as disk:
        for table in TABLES:
            shutil.copy(data / f"{table}.parquet", disk.path)
        for case in cases:
            disk.set_read_ahead_kb(case["read_ahead_kb"])
            disk.calibrate()
            query = texts / f"{case['query']:02}.sql"
            need = needed_bytes(data, case["query"])
            engines = {engine: [] for engine in ("pellucid", *PEERS)}
            with results.quiet() as others:
                for run in range(runs):
                    for engine in list(engines)[run % 3 :] + list(engines)[: run % 3]:
                        engines[engine].append(once(engine, [disk], disk.path, query))
            found = {
                "runs": runs,
                "needed_bytes": need,
                "ideal_ms": need / disk.measured * 1e3,
                "disk": disk.label(),
                "engines": engines,
                "warm": warm(disk.path, query),
                "others_cores": others(),
            }
            results.append(SUITE, case, found)
            say(case, found["engines"])


def two_disks(data: Path, cases: list[dict], texts: Path, say, runs: int) -> None:
    """Measures Pellucid on the same files on one disk and spread over two, by folders of links."""
    size = image_size(data)
    with (
        disks.throttled(f"{RATE}B/s", name="bench-a", mode="kernel", size=size) as a,
        disks.throttled(f"{RATE}B/s", name="bench-b", mode="kernel", size=size) as b,
    ):
        folders = {"one disk": a.folder / "one", "two disks": a.folder / "two"}
        for table, key in TABLES.items():
            duck("--split", data / f"{table}.parquet", a.path / table, key, FILES)
            (b.path / table).mkdir()
            for index in range(1, FILES, 2):
                shutil.copy(a.path / table / f"{index}.parquet", b.path / table)
            for where, folder in folders.items():
                (folder / table).mkdir(parents=True)
                for index in range(FILES):
                    disk = b if where == "two disks" and index % 2 else a
                    (folder / table / f"{index}.parquet").symlink_to(disk.path / table / f"{index}.parquet")
        for case in cases:
            a.calibrate(), b.calibrate()
            query = texts / f"{case['query']:02}.sql"
            took = {where: [] for where in folders}
            with results.quiet() as others:
                for _ in range(runs):
                    for where, folder in folders.items():
                        took[where].append(once("pellucid", [a, b], folder, query))
            found = {"runs": runs, "took": took, "disks": [a.label(), b.label()], "others_cores": others()}
            results.append(TWO_DISKS, case, found)
            say(case, took)


def once(engine: str, used: list[disks.Disk], tables: Path, query: Path) -> dict:
    """Makes a cold run in a fresh process, and returns its time, moved bytes and bottleneck.

    Pellucid runs as a command, as for its users; its time is the job's `duration_ms`.
    """
    cache.evict(path.resolve() for path in tables.glob("**/*.parquet"))
    before = sum(disk.moved_bytes()[0] for disk in used)
    found = {"ms": None, "error": None, "bottleneck": None}
    if engine == "pellucid":
        ran = binary.run("sql", "--json", "-f", query, *binary.tables(tables))
        if ran.code == 0:
            job = json.loads(ran.out)["job"]
            found |= {"ms": job["duration_ms"], "bottleneck": job["bottleneck"]}
        else:
            found["error"] = ran.err.strip()
    else:
        try:
            with Session(engine, tables) as session:
                found["ms"] = session.ask(query).ms
        except EngineError as error:
            found["error"] = str(error)
    return found | {"moved_bytes": sum(disk.moved_bytes()[0] for disk in used) - before}


def warm(tables: Path, query: Path) -> dict:
    """Returns the time and bottleneck of the same query with its data in memory."""
    cache.warm(sorted(tables.glob("*.parquet")))
    job = json.loads(binary.run("sql", "--json", "-f", query, *binary.tables(tables)).check().out)["job"]
    return {"ms": job["duration_ms"], "bottleneck": job["bottleneck"]}
