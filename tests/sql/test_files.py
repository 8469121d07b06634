"""Tables from text files and pipes: dialects, types, errors and options, and the functions that describe files, beside DuckDB."""

import decimal
import gzip
import io
import json
import os
import subprocess
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from harness import binary
from harness.sql import breadth, oracle

# Text of a CSV or JSON file, and a query of it as FILE.
ALIKE = [
    ("csv", "a;b\n1,5;2\n2,5;3\n", "SELECT * FROM FILE"),
    ("csv", "2024-01-01,x\n2024-01-02,y\n", "SELECT * FROM FILE"),
    ("csv", "a,a,A\n1,2,3\n", "SELECT * FROM FILE"),
    ("csv", "a,b\n'x, y',1\n'z',2\n", "SELECT * FROM FILE"),
    ("csv", 'a,b\n"x\n""y""",1\n"z",2\n', "SELECT * FROM FILE"),
    ("csv", "t,u\nTrue,31/12/2024\nf,01/02/2024\n", "SELECT * FROM FILE"),
    ("csv", "report\n\na,b\n1,2\n3,4\n", "SELECT * FROM FILE"),
    ("csv", "a\n1\n\n3\n", "SELECT * FROM FILE"),
    ("csv", "a,b\n1,2\n3\n4,5\n", "SELECT * FROM read_csv(FILE, null_padding = true)"),
    ("csv", "a,b\n1,2\nx,3\n4,5,6\n", "SELECT * FROM read_csv(FILE, types = {'a': 'INTEGER'}, ignore_errors = true, delim = ',')"),
    ("csv", "a|b\n1|NA\n", "SELECT * FROM read_csv(FILE, sep := '|', nullstr => ['NA', '-'])"),
    ("csv", "a\n31.12.2024\n", "SELECT * FROM read_csv(FILE, dateformat = '%d.%m.%Y')"),
    ("csv", "1,2\n", "SELECT * FROM read_csv(FILE, columns = {'x': 'INTEGER', 'y': 'DOUBLE'}, header = false)"),
    ("json", '{"b": 1, "a": {"y": "q", "x": [1.5]}}\n{"c": "2024-01-31", "b": 2}\n', "SELECT b, a.y AS y, c FROM FILE"),
    ("json", '[{"a": 1},\n {"a": 2, "b": "x"}]', "SELECT * FROM FILE"),
    ("json", '{"a": 1}\n{"a": "x"}\n', "SELECT * FROM FILE"),
    ("json", "1\n2\n", "SELECT * FROM FILE"),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "text", "query"), ALIKE)
def test_text_files_are_read_as_in_duckdb(tmp_path, ending, text, query):
    path = tmp_path / f"f.{ending}"
    path.write_text(text)
    query = query.replace("FILE", f"'{path}'")
    expected = oracle.connect().execute(query)
    found = breadth.results([query])[0]
    assert found.columns == [column[0] for column in expected.description]
    assert found.rows == [[oracle.as_json(value) for value in row] for row in expected.fetchall()]


# Text of a file, a query, and words of the error.
REFUSED = [
    ("csv", "a,b\n1,2\n3,4,5\n6,7\n", "SELECT * FROM FILE", ["f.csv, line 3", "expected 2 columns, found 3", "ignore_errors"]),
    ("csv", "a\n1\nx\n", "SELECT * FROM read_csv(FILE, types = {'a': 'BIGINT'})", ["f.csv, line 3", "column a", "BIGINT", "`x`"]),
    ("csv", "a\n1\n", "SELECT * FROM read_csv(FILE, heder = true)", ["heder", "did you mean header", "line 1, column"]),
    ("csv", "a\n1\n", "SELECT * FROM read_csv(FILE, store_rejects = true)", ["store_rejects is not supported"]),
    ("csv", "a\n1\n", "SELECT * FROM read_csv(FILE, header = 'maybe')", ["header is true or false"]),
    ("csv", "a\n1\n", "SELECT * FROM read_csv(FILE, types = {'b': 'INT'})", ["column b of types", "a"]),
    ("json", '{"a": 1}\n{"a": oops}\n', "SELECT * FROM FILE", ["f.json, line 2", "not valid JSON"]),
    ("json", '{"a": 1}\n{"a": "x"}\n', "SELECT * FROM read_json(FILE, columns = {'a': 'BIGINT'})", ["line 2", "key a", "BIGINT"]),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "text", "query", "words"), REFUSED)
def test_error_names_file_line_and_way_out(tmp_path, ending, text, query, words):
    path = tmp_path / f"f.{ending}"
    path.write_text(text)
    ran = binary.sql(query.replace("FILE", f"'{path}'"))
    assert ran.code in (1, 2) and all(word in ran.err for word in words), ran.err
    assert not binary.PANIC.search(ran.err), ran.err


@pytest.mark.parametrize("place", ["'none/*.parquet'", "read_csv('none.csv')", "read_parquet(['none/a.parquet'])"])
def test_missing_files_have_their_place_in_the_statement(place):
    failed = binary.sql(f"SELECT split_part('a.b', '.', 1)\nFROM {place}", None)
    path = place.partition("'")[2].rpartition("'")[0]
    assert failed.code == 1
    assert path in failed.err.splitlines()[0]
    assert failed.err.splitlines()[1].startswith(f"  line 2, column {6 + place.index(chr(39))}: FROM {place}"), failed.err


def test_types_come_from_all_of_a_large_file(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("v,w\n" + "1,a\n" * 2_000_000 + "1.5,b\n")
    assert breadth.rows(f"SELECT sum(v), count(*), max(w) FROM '{path}'") == [[2_000_001.5, 2_000_001, "b"]]


def test_pieces_of_a_large_file_have_all_records(tmp_path):
    for ending, record in (("csv", '{i},"text {i}"\n'), ("json", '{{"id": {i}, "t": "text {i}"}}\n')):
        path = tmp_path / f"big.{ending}"
        rows = 400_000
        path.write_text(("id,t\n" if ending == "csv" else "") + "".join(record.format(i=i) for i in range(rows)))
        got = breadth.rows(f"SELECT count(*), sum(id), count(DISTINCT t) FROM '{path}'")
        assert got == [[rows, rows * (rows - 1) // 2, rows]], ending
    with path.open("a") as file:
        file.write('{"id": oops}\n')
    ran = binary.sql(f"SELECT sum(id) FROM '{path}'")
    assert ran.code == 1 and f"line {rows + 1}" in ran.err, ran.err


def test_line_end_in_quotes_between_pieces_is_refused_or_read(tmp_path):
    path = tmp_path / "hidden.csv"
    value = '"' + "line\n" * 400_000 + '"'
    path.write_text("a,b\n" + "1,x\n" * 1_000_000 + f"2,{value}\n" + "3,y\n" * 1_000_000)
    ran = binary.sql(f"SELECT count(*) FROM '{path}'")
    assert ran.code == 1 or "2000001" in ran.out, ran.err
    whole = f"read_csv('{path}', parallel = false, header = true, delim = ',')"
    assert breadth.rows(f"SELECT count(*) FROM {whole}") == [[2_000_001]]


def test_folders_whose_keys_do_not_match_are_not_read(tmp_path):
    for year in (2023, 2024):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        (folder / "a.csv").write_text("v\n1\n")
    table = f"read_csv('{tmp_path}/*/*.csv', filename = true)"
    got = breadth.rows(f"SELECT year, v, filename FROM {table} WHERE year > 2023")
    assert got == [[2024, 1, f"{tmp_path}/year=2024/a.csv"]]
    plan = binary.sql(f"EXPLAIN SELECT v FROM {table} WHERE year > 2023").check().out
    assert "year=2023" not in plan


def piped(text: bytes, *args: str, **settings) -> binary.Ran:
    """Runs `pellucid sql` with text on standard input, which is a pipe."""
    ran = subprocess.run([str(binary.binary()), "sql", "--json", *args], input=text, capture_output=True, timeout=60, check=False, **settings)
    return binary.Ran(list(args), ran.returncode, ran.stdout.decode(), ran.stderr.decode())


PIPED = {
    "csv": b"x,y\n1,a\n2,b\n",
    "tab": b"x\ty\n1\ta\n2\tb\n",
    "json": b'[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]',
    "lines": b'{"x": 1, "y": "a"}\n{"x": 2, "y": "b"}\n',
    "gzip": gzip.compress(b"x,y\n1,a\n2,b\n"),
    "zstd": zstandard.ZstdCompressor().compress(b'{"x": 1, "y": "a"}\n{"x": 2, "y": "b"}\n'),
}


@pytest.mark.parametrize("format", [*PIPED, "parquet", "arrow", "stream"])
def test_standard_input_is_a_table(format):
    table = pa.table({"x": [1, 2], "y": ["a", "b"]})
    written = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, written)
    elif format in ("arrow", "stream"):
        kind = pa.ipc.new_file if format == "arrow" else pa.ipc.new_stream
        with kind(written, table.schema) as writer:
            writer.write_table(table)
    content = PIPED.get(format) or written.getvalue()
    for place in ("/dev/stdin", "-"):
        found = binary.result(piped(content, f"FROM '{place}' ORDER BY x"))
        assert (found.columns, found.rows) == (["x", "y"], [[1, "a"], [2, "b"]])
    found = binary.result(piped(content, "SELECT count(*) FROM t a JOIN t b USING (x)", "--table", "t=-"))
    assert found.rows == [[2]]


def test_functions_and_later_statements_read_standard_input():
    text = PIPED["csv"]
    for query in (
        "SELECT sum(x) FROM read_csv('/dev/stdin')",
        "SELECT sum(x) FROM read_csv('-', header = true)",
        "SELECT sum(x) FROM '/dev/fd/0'",
        "SELECT min(filename) FROM read_csv('/dev/stdin', filename = true) HAVING sum(x) = 3",
        "CREATE TABLE t (x BIGINT, y VARCHAR); COPY t FROM '/dev/stdin'; SELECT sum(x) FROM t",
        "SELECT count(*) FROM '/dev/stdin'; SELECT sum(x) FROM '/dev/stdin'",
        "SELECT sum(x::BIGINT) FROM read_csv('/dev/stdin', all_varchar = true)",
    ):
        ran = piped(text, query)
        document = json.loads(ran.check().out)
        last = document["results"][-1] if "results" in document else document
        assert last["rows"] == [["/dev/stdin" if "filename" in query else 3]], query
    ran = piped(PIPED["lines"], "SELECT sum(x) FROM read_json('/dev/stdin')")
    assert binary.result(ran).rows == [[3]]


def test_named_pipe_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(PIPED["csv"],))
    writer.start()
    assert breadth.rows(f"SELECT sum(x) FROM '{tmp_path}/pipe'") == [[3]]
    writer.join()


def test_statements_and_data_cannot_share_standard_input():
    for args in ((), ("-f", "-")):
        ran = piped(b"FROM '/dev/stdin'", *args)
        assert ran.code == 2, ran.err
        assert "cannot read /dev/stdin: the statements are read from standard input" in ran.err and "-f FILE" in ran.err


def test_pipe_error_names_the_pipe(tmp_path):
    for text, query, words in (
        (b"a,b\n1,2\n3,4,5\n6,7\n", "FROM '-'", ["cannot read /dev/stdin, line 3", "expected 2 columns"]),
        (gzip.compress(b"PAR1"), "FROM '-'", ["cannot read a compressed parquet file"]),
        (b"PAR1xxxx", "FROM '-'", ["-"]),
    ):
        ran = piped(text, query)
        assert ran.code == 1 and all(word in ran.err for word in words), (text, ran.err)
        assert not binary.PANIC.search(ran.err), ran.err
    full = piped(PIPED["csv"], "FROM '-'", env=os.environ | {"TMPDIR": str(tmp_path / "missing")})
    assert full.code == 1 and "cannot read -" in full.err and "TMPDIR" in full.err, full.err


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """Parquet files of two writers."""
    folder = tmp_path_factory.mktemp("described")
    pq.write_table(
        pa.table(
            {
                "i8": pa.array([1, 2, None], pa.int8()),
                "s": ["a", "b", None],
                "b": pa.array([b"a\x00\xff", b"b", b"c"], pa.binary()),
                "d": pa.array([1, 2, 3], pa.date32()),
                "ts": pa.array([1, 2, 3], pa.timestamp("ns")),
                "tz": pa.array([1, 2, 3], pa.timestamp("ms", "UTC")),
                "f": [1.0, 2.5, 3.0],
                "dec": pa.array([decimal.Decimal("1.50")] * 3, pa.decimal128(20, 2)),
                "l": [[1], [2, 3], []],
                "st": [{"x": 1, "y": {"z": "q"}}] * 3,
                "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
                "bo": [True, False, None],
                "n": pa.array([None] * 3, pa.null()),
                "fb": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
            }
        ),
        folder / "arrow.parquet",
        row_group_size=2,
        compression="zstd",
    )
    duckdb = (
        "SELECT range::INTEGER a, 'x' || range b, range / 7.0 d, [range, 2] l, {'p': range, 'q': 'z'} s, 1.5::DECIMAL(9, 2) e, "
        "uuid() u, MAP {'k': 1} m, TIMESTAMP '2024-01-01' t, 3::UTINYINT ut FROM range(100)"
    )
    oracle.connect().execute(f"COPY ({duckdb}) TO '{folder}/duckdb.parquet' (KV_METADATA {{who: 'me', n: '1'}})")
    return folder


# Not kept by the Parquet library: deprecated bounds, whether a bound is exact, and the order of encodings.
METADATA = "* EXCLUDE (stats_min, stats_max, encodings, min_is_exact, max_is_exact)"


@pytest.mark.parametrize("writer", ["arrow", "duckdb"])
@pytest.mark.parametrize(
    ("function", "columns"),
    [
        ("parquet_metadata", METADATA),
        ("parquet_schema", "* EXCLUDE logical_type, CASE WHEN logical_type NOT LIKE 'IntType%' THEN logical_type END AS l"),
        ("parquet_file_metadata", "*"),
        ("parquet_kv_metadata", "file_name, key::VARCHAR AS key, value::VARCHAR AS value"),
    ],
)
def test_parquet_metadata_is_as_in_duckdb(described, writer, function, columns):
    query = f"SELECT {columns} FROM {function}('{described}/{writer}.parquet')"
    expected = oracle.connect().execute(query)
    found = breadth.results([query])[0]
    assert found.columns == [column[0] for column in expected.description]
    assert found.rows == [[oracle.as_json(value) for value in row] for row in expected.fetchall()]
    describe = f"SELECT column_name, column_type FROM (DESCRIBE FROM {function}('{described}/{writer}.parquet'))"
    types = {name: kind.replace('"', "") for name, kind in oracle.connect().execute(describe).fetchall()}
    assert {name: kind.replace('"', "") for name, kind in breadth.rows(describe)} == types


def test_parquet_metadata_of_several_files_and_bounds(described):
    query = f"SELECT file_name, count(*) FROM parquet_metadata('{described}/*.parquet') GROUP BY 1 ORDER BY 1"
    expected = [list(row) for row in oracle.connect().execute(query).fetchall()]
    assert breadth.rows(query) == expected
    query = f"SELECT stats_min, stats_max, min_is_exact FROM parquet_metadata('{described}/duckdb.parquet') WHERE column_id < 3"
    assert breadth.rows(query) == [list(row) for row in oracle.connect().execute(query).fetchall()]
    ran = binary.sql(f"FROM parquet_schema('{described}/arrow.parquet', compression = 'none')")
    assert ran.code == 2 and "cannot find option compression" in ran.err, ran.err


SNIFFED = [
    "a,b,c\n1,x,2024-01-01\n2,y,2024-01-02\n",
    "title\n\na;'b;x';c\n1;'y;z';31/01/2024\n2;'it''s';12/02/2024\n",
    '1\t"q\t1"\t2024-01-01 10:00:00\r\n2\tr\t2024-01-02 10:00:00\r\n',
    'a,b\n"x, ""y""",2\n',
]


@pytest.mark.parametrize("text", SNIFFED)
def test_sniffed_dialect_is_that_of_duckdb_and_its_prompt_runs(tmp_path, text):
    path = tmp_path / "f.csv"
    path.write_bytes(text.encode())
    query = f"FROM sniff_csv('{path}')"
    expected = oracle.connect().execute(query)
    found = breadth.results([query])[0]
    assert found.columns == [column[0] for column in expected.description]
    assert found.rows == [[oracle.as_json(value) for value in row] for row in expected.fetchall()]
    prompt = found.rows[0][-1].rstrip(";")
    found, expected = breadth.results([prompt, f"FROM '{path}'"])
    assert (found.columns, found.rows) == (expected.columns, expected.rows)


def test_sniffing_takes_options_and_one_file(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("a,b\n1,2\n")
    query = f"SELECT HasHeader, UserArguments FROM sniff_csv('{tmp_path}/a.csv', header = false, delim = ',')"
    assert breadth.rows(query) == [list(row) for row in oracle.connect().execute(query).fetchall()]
    ran = binary.sql(f"FROM sniff_csv('{tmp_path}/*.csv')")
    assert ran.code == 2 and "cannot sniff 2 files at once" in ran.err, ran.err


@pytest.mark.parametrize("ending", ["arrow", "feather", "ipc", "arrows", "parquet"])
def test_large_strings_are_text(tmp_path, ending):
    words = pa.array(["a", None, "x" * 40], pa.large_string())
    lists = pa.array([["a"], [], None], pa.list_(pa.large_string()))
    records = pa.array([{"k": "b"}, None, {"k": None}], pa.struct([("k", pa.large_string())]))
    table = pa.table({"w": words, "l": lists, "r": records, "v": pa.array(["p", "q", None], pa.string_view()), "n": [1, 2, 3]})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        writer = pa.ipc.new_stream if ending == "arrows" else pa.ipc.new_file
        with writer(str(path), table.schema) as out:
            out.write_table(table)
    types = breadth.rows(f"SELECT column_type FROM (DESCRIBE '{path}')")
    assert types == [["VARCHAR"], ["VARCHAR[]"], ["STRUCT(k VARCHAR)"], ["VARCHAR"], ["BIGINT"]]
    assert breadth.rows(f"SELECT n, l, r FROM '{path}' WHERE w = 'a'") == [[1, ["a"], {"k": "b"}]]
    assert breadth.rows(f"SELECT v FROM '{path}' ORDER BY n DESC") == [[None], ["q"], ["p"]]
    assert breadth.rows(f"SELECT count(*) FROM '{path}' WHERE w IS NULL") == [[1]]


def test_old_feather_files_and_lists_in_json_files_are_refused(tmp_path):
    (tmp_path / "old.feather").write_bytes(b"FEA1" + bytes(40) + b"FEA1")
    ran = binary.run("sql", f"FROM '{tmp_path}/old.feather'")
    assert ran.code != 0 and "it is a file of Feather version 1; write it as version 2, which is Arrow IPC" in ran.err, ran.err
    ran = binary.run("sql", f"COPY (SELECT 1 AS a) TO '{tmp_path}/a.json' (ARRAY)")
    assert ran.code == 2 and "cannot use the option ARRAY: JSON files have one object in each line; remove it" in ran.err, ran.err
    binary.run("sql", f"COPY (SELECT 1 AS a) TO '{tmp_path}/b.json' (FORMAT json, ARRAY false)").check()
    assert (tmp_path / "b.json").read_text() == '{"a":1}\n'
