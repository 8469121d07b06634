"""Generated data is the benchmarks' own, whole, and what a reader expects to find."""

import os
import signal

import pytest

from tests import binary, oracle

TPCH_ROWS = {
    "region": 5,
    "nation": 25,
    "supplier": 100,
    "customer": 1500,
    "part": 2000,
    "partsupp": 8000,
    "orders": 15000,
}


def generate(benchmark, scale, folder, *options):
    return binary.run("generate", benchmark, "--scale", str(scale), folder, *options)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated") / "tpch"
    generate("tpch", 0.01, folder).check()
    return folder


def test_tpch_is_what_dbgen_makes(small):
    """Row by row, DuckDB's dbgen at the same scale gives the same tables.

    But for random texts (comments, addresses), which DuckDB draws from a pool of its own;
    of those, the first customer's address is the official generator's.
    """
    connection = oracle.connect(small, threads=1)
    connection.execute("CREATE SCHEMA reference")
    connection.execute("CALL dbgen(sf = 0.01, schema = 'reference')")
    for table in (*TPCH_ROWS, "lineitem"):
        columns = [row[0] for row in connection.execute(f"DESCRIBE main.{table}").fetchall()]
        compared = ", ".join(column for column in columns if not column.endswith(("_comment", "_address")))
        ours, theirs = (f"(SELECT {compared} FROM {schema}.{table})" for schema in ("main", "reference"))
        for one, other in ((ours, theirs), (theirs, ours)):
            extra = connection.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").fetchone()
            assert extra == (0,), table
    first = connection.execute("SELECT c_address FROM customer WHERE c_custkey = 1").fetchone()
    assert first == ("IVhzIApeRb ot,c,E",)


def test_rows_at_this_scale(small):
    connection = oracle.connect(small, threads=1)
    for table, rows in TPCH_ROWS.items():
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,), table


def test_tpcds_has_all_tables_that_its_queries_name(tmp_path):
    generate("tpcds", 0.01, tmp_path / "tpcds").check()
    connection = oracle.connect(tmp_path / "tpcds", threads=1)
    for text in oracle.texts("tpcds").values():
        connection.execute(f"EXPLAIN {text}")


def test_an_interrupted_generation_leaves_no_table_that_looks_whole(tmp_path):
    folder = tmp_path / "tpch"
    process = binary.start("generate", "tpch", "--scale", "1", folder)
    binary.wait_until(lambda: folder.is_dir() and any(folder.iterdir()), process)
    code, _, err = binary.kill(process, signal.SIGINT)
    assert code == 130 and not binary.PANIC.search(err), f"exit {code}: {err}"
    connection = oracle.connect(threads=1)
    for name in os.listdir(folder) if folder.exists() else []:
        # a table that was finished before the interruption may stay; it must be whole
        assert name.endswith(".parquet"), f"{name} was left behind"
        connection.execute(f"SELECT count(*) FROM '{folder / name}'")


def test_wrong_requests_are_usage(tmp_path):
    for arguments in (("tpcx", "1"), ("tpch", "0"), ("tpch", "-1"), ("tpch", "much")):
        ran = generate(*arguments, tmp_path / "none")
        assert ran.code == 2 and ran.out == "" and not binary.PANIC.search(ran.err), (arguments, ran.err)
    assert not (tmp_path / "none").exists()
