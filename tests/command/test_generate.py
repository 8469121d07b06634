"""`pellucid generate`: tables equal the benchmarks' own, are complete, and stay so after an interruption."""

import os
import signal

import pytest

from harness import binary
from harness.sql import oracle

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


def test_tpch_equals_dbgen(small):
    """Compares each row with DuckDB's dbgen at the same scale.

    Excludes random texts (comments, addresses), which DuckDB draws from a pool of its own. Of those, the first customer's
    address equals the official generator's.
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


def test_tpch_has_its_row_counts(small):
    connection = oracle.connect(small, threads=1)
    for table, rows in TPCH_ROWS.items():
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,), table


def test_tpcds_has_all_tables_of_its_queries(tmp_path):
    generate("tpcds", 0.01, tmp_path / "tpcds").check()
    connection = oracle.connect(tmp_path / "tpcds", threads=1)
    for text in oracle.texts("tpcds").values():
        connection.execute(f"EXPLAIN {text}")


@pytest.mark.parametrize("benchmark, options", [("bdb", ()), ("sort", ("--values", "50"))])
def test_files_do_not_depend_on_core_count(tmp_path, benchmark, options):
    for cores in ("1", "3"):
        generate(benchmark, 0.02, tmp_path / cores, "--cores", cores, *options).check()
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names and names == sorted(path.name for path in (tmp_path / "3").iterdir())
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes(), name


def test_big_data_benchmark_joins_and_filters_as_published(tmp_path):
    """Checks row ratios and the selectivities of queries 1 and 3 as published, and that every link has a target."""
    generate("bdb", 0.05, tmp_path).check()
    connection = oracle.connect(tmp_path, threads=1)

    def one(query):
        return connection.execute(query).fetchone()[0]

    counts = [one(f"SELECT count(*) FROM {table}") for table in ("rankings", "uservisits", "documents")]
    assert counts == [36_000, 310_000, 7_250]
    assert one("SELECT count(DISTINCT pageURL) FROM rankings") == 36_000
    assert one("SELECT count(*) FROM rankings WHERE pageRank > 100") / 36_000 == pytest.approx(0.037, abs=0.004)
    assert one("SELECT count(*) FROM uservisits SEMI JOIN rankings ON destURL = pageURL") == 310_000
    taken = one("SELECT count(*) FROM uservisits WHERE visitDate BETWEEN '1980-01-01' AND '2010-01-01'")
    assert taken / 310_000 == pytest.approx(0.7, abs=0.01)
    assert one("SELECT count(*) FROM documents WHERE contents LIKE '%href=%'") > 7_200


@pytest.mark.parametrize("values", [10, 20, 50])
def test_sort_rows_have_the_requested_longs_and_total_size(tmp_path, values):
    generate("sort", 0.02, tmp_path, "--values", str(values)).check()
    connection = oracle.connect(tmp_path, threads=1)
    rows, shortest, longest = connection.execute("SELECT count(*), min(len(value)), max(len(value)) FROM sort").fetchone()
    assert (rows, shortest, longest) == (20_000_000 // (8 * (1 + values)), values, values)
    assert (tmp_path / "sort.parquet").stat().st_size == pytest.approx(20_000_000, rel=0.1)


@pytest.mark.parametrize("text", sorted((binary.ROOT / "bench" / "queries").rglob("*.sql")), ids=lambda path: path.stem)
def test_backtest_queries_match_duckdb(text, tmp_path_factory):
    """Runs the queries of `make backtest` against DuckDB; the sort's sum shows that the order is right."""
    folder = tmp_path_factory.getbasetemp() / f"queries-{text.parent.name}"
    if not folder.exists():
        generate("sort" if text.stem == "sort" else "bdb", 0.02, folder).check()
    connection = oracle.connect(folder, threads=1)
    query = text.read_text()
    expected = connection.execute(query).fetchall()
    got = binary.result(binary.sql(query, folder))
    assert len(got.rows) == len(expected)
    assert _texts(got.rows) == _texts(expected)
    for ours, theirs in zip(_numbers(got.rows), _numbers(expected), strict=True):
        # Sums of single-precision floats depend on the order.
        assert all(abs(one - other) <= 2e-3 + 1e-5 * abs(other) for one, other in zip(ours, theirs, strict=True))


def _texts(rows):
    """Returns the sorted texts of all rows: without ORDER BY, rows come in any order."""
    return sorted([cell for cell in row if isinstance(cell, str)] for row in rows)


def _numbers(rows):
    """Returns the numbers of each column, ascending."""
    return [sorted(float(row[at]) for row in rows) for at, cell in enumerate(rows[0]) if not isinstance(cell, str)]


def test_values_option_is_for_sort_only(tmp_path):
    ran = generate("tpch", 0.01, tmp_path / "none", "--values", "10")
    assert ran.code == 2 and "generate sort" in ran.err and not (tmp_path / "none").exists()


def test_interrupted_generation_leaves_only_complete_tables(tmp_path):
    folder = tmp_path / "tpch"
    process = binary.start("generate", "tpch", "--scale", "1", folder)
    binary.wait_until(lambda: folder.is_dir() and any(folder.iterdir()), process)
    code, _, err = binary.kill(process, signal.SIGINT)
    assert code == 130 and not binary.PANIC.search(err), f"exit {code}: {err}"
    connection = oracle.connect(threads=1)
    for name in os.listdir(folder) if folder.exists() else []:
        # A table finished before the interruption may stay, but must be complete.
        assert name.endswith(".parquet"), f"{name} was left behind"
        connection.execute(f"SELECT count(*) FROM '{folder / name}'")


def test_invalid_arguments_are_usage_errors(tmp_path):
    for arguments in (("tpcx", "1"), ("tpch", "0"), ("tpch", "-1"), ("tpch", "much")):
        ran = generate(*arguments, tmp_path / "none")
        assert ran.code == 2 and ran.out == "" and not binary.PANIC.search(ran.err), (arguments, ran.err)
    assert not (tmp_path / "none").exists()
