"""Reading and writing files: formats, compressions, layouts, names, S3."""

import bz2
import gzip
import json
import lzma
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from harness import binary
from harness.sql import breadth, oracle
from harness.stores import s3

ROWS = [(i, f"n{i}" if i % 7 else None, i / 4) for i in range(3000)]
ANSWER = [[3000, sum(r[0] for r in ROWS), sum(r[1] is not None for r in ROWS), "n999"]]
QUESTION = "SELECT count(*), sum(id), count(name), max(name) FROM"
CSV = "id,name,v\n" + "".join(f"{i},{name or ''},{v}\n" for i, name, v in ROWS)
JSON = "".join(json.dumps({"id": i, "name": name, "v": v}) + "\n" for i, name, v in ROWS)
COMPRESSED = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def quoted(path) -> str:
    """Quotes a path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One table in every format: paths by file name."""
    folder = tmp_path_factory.mktemp("files")
    found = {}

    def put(name: str, content: bytes) -> None:
        found[name] = folder / name
        found[name].write_bytes(content)

    tab = CSV.replace(",", "\t")
    for name, text in {"a.csv": CSV, "crlf.csv": CSV.replace("\n", "\r\n"), "a.tsv": tab, "a.json": JSON}.items():
        put(name, text.encode())
    put("a.jsonl", JSON.encode())
    put("a.ndjson", JSON.rstrip("\n").encode())
    put("unfinished.csv", CSV.rstrip("\n").encode())
    for ending, compress in COMPRESSED.items():
        put(f"a.csv.{ending}", compress(CSV.encode()))
        put(f"a.json.{ending}", compress(JSON.encode()))
    put("a.tsv.gz", gzip.compress(tab.encode()))
    copies = ";".join(
        f"COPY (SELECT * FROM {quoted(found['a.csv'])}) TO {quoted(folder / name)} STORED AS {name.split('.')[1]}"
        for name in ("a.parquet", "a.arrow")
    )
    binary.run("sql", copies).check()
    found |= {name: folder / name for name in ("a.parquet", "a.arrow")}
    return found


@pytest.mark.parametrize("variant", breadth.VARIANTS)
def test_every_format_and_compression_is_read(files, variant):
    got = breadth.results([f"{QUESTION} {quoted(path)}" for path in files.values()], *breadth.VARIANTS[variant])
    assert {name: r.rows for name, r in zip(files, got)} == dict.fromkeys(files, ANSWER)


def arrow_stream(path) -> bytes:
    """Extracts the stream from an Arrow IPC file: the bytes between the padded magic number and the footer."""
    data = path.read_bytes()
    footer = int.from_bytes(data[-10:-6], "little", signed=True)
    return data[re.match(rb"ARROW1\0*", data).end() : len(data) - 10 - footer]


def test_arrow_stream_is_read(files, tmp_path):
    (tmp_path / "stream.arrow").write_bytes(arrow_stream(files["a.arrow"]))
    assert breadth.rows(f"{QUESTION} {quoted(tmp_path / 'stream.arrow')}") == ANSWER


def test_csv_options_are_applied(files, tmp_path):
    (tmp_path / "bare.csv").write_text("1|x\n2|'y|z'\n3|\n")
    create = (
        f"CREATE EXTERNAL TABLE c (a INT, b VARCHAR) STORED AS CSV LOCATION {quoted(tmp_path / 'bare.csv')} "
        "OPTIONS ('format.has_header' 'false', 'format.delimiter' '|', 'format.quote' '''')"
    )
    assert breadth.rows(f"{create}; SELECT * FROM c ORDER BY a") == [[1, "x"], [2, "y|z"], [3, None]]
    headless = f"CREATE EXTERNAL TABLE c STORED AS CSV LOCATION {quoted(files['a.csv'])} OPTIONS ('format.has_header' 'false')"
    assert breadth.rows(f"{headless}; SELECT count(*), min(column_3) FROM c") == [[3001, "0.0"]]


def test_quoted_newlines_are_read(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text('id,t\n1,"a\nb"\n2,"c,""d"""\n3,\n')
    assert breadth.rows(f"SELECT * FROM {quoted(path)} ORDER BY id") == [[1, "a\nb"], [2, 'c,"d"'], [3, None]]
    # So long that it would be split if it had no quoted newlines.
    path.write_text("id,t,u\n" + "".join(f'{i},"x\n{i},y",{i}\n' for i in range(150_000)))
    assert path.stat().st_size > 3 << 20
    expected = [[150_000, 149_999 * 75_000, 149_999 * 75_000]]
    assert breadth.rows(f"SELECT count(*), sum(id), sum(u) FROM {quoted(path)}") == expected


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_lines_longer_than_the_read_ahead_are_read(tmp_path, ending):
    path = tmp_path / f"long.{ending}"
    line = {"csv": '{},"{}"\n', "json": '{{"id": {}, "t": "{}"}}\n'}[ending]
    sizes = [10, 40_000, 17_000, 100, 70_000]
    with open(path, "w") as file:
        file.write("id,t\n" if ending == "csv" else "")
        for i in range(600):
            file.write(line.format(i, "x" * sizes[i % 5]))
    got = breadth.rows(f"SELECT count(*), sum(id), sum(length(t)) FROM {quoted(path)}")
    assert got == [[600, 599 * 300, 120 * sum(sizes)]]


@pytest.mark.parametrize("variant", ["default", "one-core"])
def test_large_text_file_is_split_correctly(tmp_path_factory, variant):
    folder = tmp_path_factory.getbasetemp() / "pieces"
    path = folder / "big.csv"
    if not path.exists():
        folder.mkdir()
        oracle.connect().execute(
            f"COPY (SELECT i AS id, hash(i) % 1000000 AS h, 'text ' || (i % 997) AS t, i / 8 AS v FROM range(3300000) r(i)) TO '{path}' (HEADER)"
        )
        assert path.stat().st_size > 100_000_000
    query = "SELECT count(*), sum(id), sum(h), min(t), max(t), sum(v), count(DISTINCT t) FROM"
    (expected,) = oracle.connect().execute(f"{query} '{path}'").fetchall()
    (got,) = breadth.rows(f"{query} '{path}'", *breadth.VARIANTS[variant])
    assert [float(x) if i == 5 else x for i, x in enumerate(got)] == list(expected)


@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    """A Hive-partitioned folder: by year, then by a text with blanks."""
    folder = tmp_path_factory.mktemp("layout") / "hive"
    source = "(SELECT value AS x, 2020 + value % 3 AS y, 'p ' || (value % 2) AS p FROM range(300))"
    binary.run("sql", f"COPY {source} TO '{folder}/' STORED AS PARQUET PARTITIONED BY (y, p)").check()
    return folder


def test_partitioned_output_is_a_hive_folder(hive):
    assert sorted(entry.name for entry in hive.iterdir()) == ["y=2020", "y=2021", "y=2022"]
    read = f"SELECT y, count(*), sum(x) FROM read_parquet('{hive}/**/*.parquet', hive_partitioning=true) GROUP BY y"
    assert sorted(oracle.connect().execute(read).fetchall())[0] == (2020, 100, 14850)


@pytest.mark.parametrize("place", ["", "/", "/*/*/*.parquet", "/**/*.parquet", "/y=*/*/*.parquet"])
def test_hive_partitions_are_columns(hive, place):
    got = breadth.rows(f"SELECT y, p, count(*), sum(x) FROM '{hive}{place}' GROUP BY y, p ORDER BY y, p")
    assert len(got) == 6 and got[0] == [2020, "p 0", 50, 7350] and sum(row[2] for row in got) == 300


def test_partitions_without_matching_rows_are_not_read(hive, tmp_path):
    for file in hive.glob("y=2021/*/*.parquet"):
        file.rename(file.with_suffix(".away"))
    broken = next(hive.glob("y=2021/*")) / "broken.parquet"
    try:
        # An unreadable file in a partition that need not be read: the statistics of other files suffice.
        broken.write_bytes(b"PAR1 nothing else PAR1")
        table = f"CREATE EXTERNAL TABLE h (x BIGINT, y INT, p VARCHAR) STORED AS PARQUET PARTITIONED BY (y, p) LOCATION '{hive}/'"
        assert breadth.rows(f"{table}; SELECT count(*), sum(x) FROM h WHERE y = 2020") == [[100, 14850]]
    finally:
        broken.unlink()
        for away in hive.glob("y=2021/*/*.away"):
            away.rename(away.with_suffix(".parquet"))


def test_footer_longer_than_its_file_is_refused(tmp_path):
    path = tmp_path / "odd.parquet"
    path.write_bytes(b"PAR1 nothing else PAR1")
    for query in (f"SELECT * FROM '{path}'", f"CREATE EXTERNAL TABLE o STORED AS PARQUET LOCATION '{path}'"):
        ran = binary.sql(query)
        assert ran.code == 1 and str(path) in ran.err and "footer" in ran.err, ran.err
        assert not binary.PANIC.search(ran.err), ran.err


def test_pattern_may_select_partition_folders(hive):
    got = breadth.rows(f"SELECT min(y), max(y), count(*) FROM '{hive}/y=202[01]/*/*.parquet'")
    assert got == [[2020, 2021, 200]]


def test_many_small_files_are_read(tmp_path):
    for i in range(300):
        (tmp_path / f"{i:03}.csv").write_text(f"id,t\n{i},a\n{i},b\n")
    expected = [[600, 299 * 300, 300]]
    for place in (f"{tmp_path}/", f"{tmp_path}/*.csv", f"{tmp_path}/???.csv", f"{tmp_path}/[0-2]*.csv"):
        assert breadth.rows(f"SELECT count(*), sum(id), count(DISTINCT id) FROM '{place}'") == expected, place


@pytest.mark.parametrize("variant", breadth.VARIANTS)
def test_order_within_files_is_kept(tmp_path, variant):
    """The order is declared, or stated by Parquet files; the plan then merges files and sorts nothing."""
    (tmp_path / "csv").mkdir()
    for first in (1, 2):
        (tmp_path / "csv" / f"{first}.csv").write_text("a\n" + "".join(f"{a}\n" for a in range(first, 40, 2)))
        table = pa.table({"a": pa.array(range(first, 40_000, 2), pa.int32()), "b": pa.array(range(first, 40_000, 2))})
        pq.write_table(table, tmp_path / f"{first}.parquet", sorting_columns=[pq.SortingColumn(0)], row_group_size=9000)
    declared = f"""CREATE EXTERNAL TABLE t (a INT) STORED AS CSV LOCATION '{tmp_path}/csv/' WITH ORDER (a)
        OPTIONS ('format.has_header' 'true'); SELECT a FROM t ORDER BY a"""
    assert [a for (a,) in breadth.rows(declared, *breadth.VARIANTS[variant])] == list(range(1, 40))
    sorted_rows = breadth.rows(f"SELECT a, b FROM '{tmp_path}/*.parquet' ORDER BY a", *breadth.VARIANTS[variant])
    assert sorted_rows == [[a, a] for a in range(1, 40_000)]
    numbered = f"SELECT a, row_number() OVER (ORDER BY a) FROM '{tmp_path}/*.parquet' ORDER BY a"
    assert breadth.rows(numbered, *breadth.VARIANTS[variant]) == [[a, a] for a in range(1, 40_000)]


def test_extension_ignores_case(tmp_path):
    (tmp_path / "A.TSV").write_text("x\ty\n1\t2,5\n")
    assert breadth.rows(f"SELECT x, y FROM '{tmp_path}/A.TSV'") == [[1, "2,5"]]
    (tmp_path / "a.tbl").write_text("1|2|\n")
    ran = binary.sql(f"SELECT * FROM '{tmp_path}/a.tbl'")
    assert ran.code == 1 and "CREATE EXTERNAL TABLE" in ran.err, ran.err


def test_star_matches_one_level_and_skips_hidden_files(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "_temporary").mkdir()
    for name in ("a.csv", "b.csv", "below/c.csv", ".hidden.csv", "_temporary/d.csv", "notes.md"):
        (tmp_path / name).write_text("x\n1\n")
    counts = {"*.csv": 2, "": 3, "*/*.csv": 1, "**/*.csv": 3, "[ab].csv": 2}
    got = {place: breadth.rows(f"SELECT count(*) FROM '{tmp_path}/{place}'")[0][0] for place in counts}
    assert got == counts


def test_folder_of_mixed_formats_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.json").write_text('{"x": 1}\n')
    ran = binary.sql(f"SELECT * FROM '{tmp_path}/'")
    assert ran.code == 1 and ".csv" in ran.err and ".json" in ran.err and "pattern" in ran.err, ran.err


NAMES = ["with space", "per%cent", "per%20cent", "ünï ☃", "quo'te", "has#hash", "q?mark", "br[ack]et", "st*r", "a+b&c=d"]


@pytest.mark.parametrize("name", NAMES)
def test_special_characters_in_names_are_supported(tmp_path, name):
    folder = tmp_path / f"in {name}"
    folder.mkdir()
    path = folder / f"{name}.parquet"
    binary.run("sql", "SELECT 7 AS x, 'ü' AS t", "-o", path).check()
    assert os.listdir(folder) == [path.name]
    got = breadth.results([f"SELECT x FROM {quoted(place)}" for place in (path, folder, f"{folder}/")])
    assert [r.rows for r in got] == [[[7]]] * 3
    assert breadth.rows("SELECT t FROM n", "--table", f"n={path}") == [["ü"]]


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd"])
def test_compressed_text_is_written(tmp_path, compression):
    ending = {"gzip": "gz", "bzip2": "bz2", "xz": "xz", "zstd": "zst"}[compression]
    for form in ("csv", "json"):
        path = tmp_path / f"o.{form}.{ending}"
        options = f"STORED AS {form} OPTIONS ('format.compression' '{compression}')"
        copied = breadth.rows(f"COPY (SELECT value AS x FROM range(1000)) TO '{path}' {options}")
        assert copied == [[1000]]
        assert breadth.rows(f"SELECT count(*), sum(x) FROM '{path}'") == [[1000, 499500]]


def test_written_files_are_readable_by_duckdb(files, tmp_path):
    duck = oracle.connect()
    readers = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}
    for form, reader in readers.items():
        path = tmp_path / f"o.{form}"
        assert breadth.rows(f"COPY (SELECT * FROM {quoted(files['a.csv'])}) TO '{path}'") == [[3000]]
        assert duck.execute(f"{QUESTION} {reader}('{path}')").fetchall() == [tuple(ANSWER[0])]


def test_empty_results_are_written_with_their_columns(tmp_path):
    binary.run("sql", "SELECT 1 AS x, 'a' AS t WHERE false", "-o", tmp_path / "o.parquet").check()
    assert oracle.connect().execute(f"SELECT count(*), count(x) FROM '{tmp_path}/o.parquet'").fetchall() == [(0, 0)]
    binary.run("sql", "SELECT 1 AS x, 'a' AS t WHERE false", "-o", tmp_path / "o.csv").check()
    assert (tmp_path / "o.csv").exists()


def test_insert_adds_files_to_a_folder(tmp_path):
    table = f"CREATE EXTERNAL TABLE n (x BIGINT, t VARCHAR) STORED AS PARQUET LOCATION '{tmp_path}/n/'"
    statements = f"{table}; INSERT INTO n VALUES (1, 'a'); INSERT INTO n SELECT 2, 'b'; SELECT * FROM n ORDER BY x"
    assert breadth.rows(statements) == [[1, "a"], [2, "b"]]
    assert breadth.rows(f"SELECT sum(x) FROM '{tmp_path}/n/'") == [[3]]


def test_missing_external_table_is_named(tmp_path):
    for place in (f"{tmp_path}/none/", f"{tmp_path}/none.parquet"):
        ran = binary.sql(f"CREATE EXTERNAL TABLE n STORED AS PARQUET LOCATION '{place}'")
        assert ran.code == 1 and place in ran.err and "check the path" in ran.err, ran.err


def test_columns_missing_from_some_files_are_null(tmp_path):
    duck = oracle.connect()
    duck.execute(f"COPY (SELECT 1 AS x) TO '{tmp_path}/a.parquet'")
    duck.execute(f"COPY (SELECT 2 AS x, 'more' AS y) TO '{tmp_path}/b.parquet'")
    united = f"read_parquet('{tmp_path}/*.parquet', union_by_name = true)"
    assert breadth.rows(f"SELECT x, y FROM {united} ORDER BY x") == [[1, None], [2, "more"]]
    ran = binary.sql(f"SELECT y FROM read_parquet(['{tmp_path}/b.parquet', '{tmp_path}/a.parquet'])")
    assert ran.code == 1 and "a.parquet: it has no column y" in ran.err and "union_by_name" in ran.err, ran.err
    # The columns that the query needs are everywhere.
    assert breadth.rows(f"SELECT sum(x) FROM '{tmp_path}/*.parquet'") == [[3]]


@pytest.fixture
def bucket():
    """A bucket that serves, and settings that point the binary at it."""
    with s3.serving() as (environment, found):
        yield found, {"env": os.environ | environment}


def test_s3_objects_are_read(bucket, files, hive):
    store, settings = bucket
    names = ["a.parquet", "a.csv", "a.json", "a.csv.gz", "a.arrow"]
    for name in names:
        store.objects[f"dir/{name}"] = files[name].read_bytes()
    store.objects["odd name/50%/x#1.parquet"] = files["a.parquet"].read_bytes()
    for i in range(3):
        store.objects[f"many/{i}.csv"] = files["a.csv"].read_bytes()
    store.objects["many/below/9.csv"] = files["a.csv"].read_bytes()
    for path in hive.rglob("*.parquet"):
        store.objects[f"hive/{path.relative_to(hive)}"] = path.read_bytes()
    queries = [f"{QUESTION} 's3://bucket/dir/{name}'" for name in names]
    queries.append(f"{QUESTION} 's3://bucket/odd name/50%/x#1.parquet'")
    assert [r.rows for r in breadth.results(queries, **settings)] == [ANSWER] * len(queries)
    counts = {"many/": 12000, "many": 12000, "many/*.csv": 9000, "many/[01].csv": 6000, "many/**/*.csv": 12000}
    counts |= {"hive/": 300, "hive/*/*/*.parquet": 300}
    got = breadth.results([f"SELECT count(*) FROM 's3://bucket/{place}'" for place in counts], **settings)
    assert dict(zip(counts, (r.rows[0][0] for r in got))) == counts
    pruned = breadth.rows("SELECT y, count(*) FROM 's3://bucket/hive/' WHERE y = 2021 GROUP BY y", **settings)
    assert pruned == [[2021, 100]]


def test_same_path_in_two_stores_is_distinguished(bucket, tmp_path):
    """Queries a local file and an object whose key is the file's path in one statement."""
    store, settings = bucket
    queries = []
    for ending in ("parquet", "csv", "json"):
        (tmp_path / ending).mkdir()
        path = tmp_path / ending / f"x.{ending}"
        there, here = (f"COPY (SELECT value AS x FROM range({rows})) TO '{path}'" for rows in (3000, 7))
        binary.sql(there).check()
        store.objects[str(path)[1:]] = path.read_bytes()
        path.unlink()
        binary.sql(here).check()
        for first, second in ((f"{path}", f"s3://bucket{path}"), (f"s3://bucket{path}", f"{path}")):
            for a, b in ((first, second), (first[: -len(path.name)], second[: -len(path.name)])):
                queries.append(f"SELECT sum(x) FROM '{a}' UNION ALL SELECT sum(x) FROM '{b}' ORDER BY 1")
    assert [r.rows for r in breadth.results(queries, **settings)] == [[[21], [2999 * 1500]]] * 12


def test_files_created_between_statements_are_seen(tmp_path):
    place = f"SELECT count(*) FROM '{tmp_path}/'"
    copy = f"COPY (SELECT value AS x FROM range(5)) TO '{tmp_path}"
    statements = [f"{copy}/1.csv'", place, f"{copy}/2.csv'", place]
    assert [r.rows for r in breadth.results(statements)][1::2] == [[[5]], [[10]]]


def test_s3_reads_only_needed_bytes(bucket, tmp_path):
    store, settings = bucket
    path = tmp_path / "wide.parquet"
    columns = ", ".join(f"hash(i + {n}) AS c{n}" for n in range(20))
    oracle.connect().execute(f"COPY (SELECT {columns} FROM range(50000) r(i)) TO '{path}'")
    store.objects["wide.parquet"] = path.read_bytes()
    breadth.rows("SELECT max(c3 % 7) FROM 's3://bucket/wide.parquet'", **settings)
    assert store.sent_bytes < path.stat().st_size // 5


def test_s3_is_traced_as_a_store_and_a_network(bucket, files, tmp_path):
    store, settings = bucket
    store.objects["a.csv"] = files["a.csv"].read_bytes()
    path = tmp_path / "s3.trace"
    binary.run("sql", f"{QUESTION} 's3://bucket/a.csv'", "--trace", path, **settings).check()
    resources = {r["kind"]: r["name"] for r in binary.run("analyze", "--json", path).check().json()["resources"]}
    assert resources["store"] == "s3://bucket" and "network" in resources


@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "arrow"])
def test_s3_objects_are_written(bucket, ending):
    store, settings = bucket
    # Enough for several parts of an upload.
    rows = 300_000 if ending == "parquet" else 1_200_000
    copy = f"COPY (SELECT value AS x, random() AS r FROM range({rows})) TO 's3://bucket/out/o.{ending}' STORED AS {ending}"
    assert breadth.rows(copy, **settings) == [[rows]]
    assert list(store.objects) == [f"out/o.{ending}"] and store.uploads == {}
    total = breadth.rows(f"SELECT count(*), sum(x) FROM 's3://bucket/out/o.{ending}'", **settings)
    assert total == [[rows, rows * (rows - 1) // 2]]


def test_s3_partitioned_output_is_written(bucket):
    store, settings = bucket
    copy = "COPY (SELECT value AS x, value % 2 AS p FROM range(10)) TO 's3://bucket/o/' STORED AS PARQUET PARTITIONED BY (p)"
    assert breadth.rows(copy, **settings) == [[10]]
    assert sorted(key.rsplit("/", 1)[0] for key in store.objects) == ["o/p=0", "o/p=1"]
    assert breadth.rows("SELECT p, sum(x) FROM 's3://bucket/o' GROUP BY p ORDER BY p", **settings) == [[0, 20], [1, 25]]


def test_s3_output_of_a_failed_query_is_absent(bucket):
    store, settings = bucket
    copy = "COPY (SELECT sqrt(900000 - value) AS x, repeat('x', 99) AS y FROM range(1000000)) TO 's3://bucket/o.csv'"
    ran = binary.sql(copy, None, "--partitions", "1", **settings)
    assert ran.code == 1 and "square root of a negative number" in ran.err, ran.err
    assert any("partNumber" in request for request in store.requests), "no part was sent"
    assert store.objects == {} and store.uploads == {}, store.requests


def test_missing_s3_object_is_named(bucket):
    for place in ("none.parquet", "none/", "none/*.parquet"):
        ran = binary.sql(f"SELECT * FROM 's3://bucket/{place}'", **bucket[1])
        assert ran.code == 1 and f"s3://bucket/{place}" in ran.err and "check" in ran.err, ran.err
