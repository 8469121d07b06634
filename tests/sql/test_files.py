"""Tables from text files: dialects, types, errors and options, beside DuckDB."""

import pytest

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
