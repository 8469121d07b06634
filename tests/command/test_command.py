"""The command line apart from answers: every statement prints something, errors have a cause, output fits the screen."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from harness import binary, traces
from harness.binary import FAILED, USAGE
from harness.sql import breadth, oracle
from harness.terminal import on_terminal


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with `t.csv` (a: 1 to 3, b: x to z) and the folder `part` of two Parquet files (k: 0 to 9)."""
    found = tmp_path_factory.mktemp("command")
    (found / "t.csv").write_text("a,b\n1,x\n2,y\n3,z\n")
    (found / "part").mkdir()
    for first in (0, 5):
        oracle.connect().execute(f"COPY (SELECT i AS k FROM range({first}, {first + 5}) r(i)) TO '{found}/part/{first}.parquet'")
    return found


# Statements that start with FROM, and their complete forms.
FROM_FIRST = {
    "FROM 't.csv' LIMIT 2": "SELECT * FROM 't.csv' LIMIT 2",
    "FROM 't.csv' WHERE a > 1 ORDER BY a DESC": "SELECT * FROM 't.csv' WHERE a > 1 ORDER BY a DESC",
    "FROM 't.csv' SELECT b, a WHERE a = 2": "SELECT b, a FROM 't.csv' WHERE a = 2",
    "FROM 't.csv' x JOIN 'part' p ON x.a = p.k ORDER BY a": "SELECT * FROM 't.csv' x JOIN 'part/' p ON x.a = p.k ORDER BY a",
    "SELECT sum(a) FROM (FROM 't.csv' WHERE a < 3)": "SELECT sum(a) FROM 't.csv' WHERE a < 3",
    "WITH c AS (FROM 't.csv') FROM c WHERE a = 3": "SELECT * FROM 't.csv' WHERE a = 3",
    "(FROM 't.csv' WHERE a = 1) UNION ALL FROM 't.csv' WHERE a = 1": "SELECT 1, 'x' UNION ALL SELECT 1, 'x'",
    "CREATE VIEW v AS FROM 't.csv' WHERE a = 1; FROM v": "SELECT 1, 'x'",
    "SELECT extract(year FROM DATE '2026-01-02'), 1 IS DISTINCT FROM 2": "SELECT 2026, true",
}


@pytest.mark.parametrize("statement", FROM_FIRST)
def test_from_first_query_selects_all_columns(folder, statement):
    got = breadth.rows(statement, cwd=folder)
    assert got == breadth.rows(FROM_FIRST[statement], cwd=folder) and got


def test_from_first_query_can_be_written_to_files(folder, tmp_path):
    binary.run("sql", "FROM 't.csv' WHERE a > 1", "-o", tmp_path / "o.parquet", cwd=folder).check()
    assert breadth.rows(f"COPY (FROM 't.csv') TO '{tmp_path}/c.csv'", cwd=folder) == [[3]]
    assert breadth.rows(f"SELECT sum(a) FROM '{tmp_path}/o.parquet' UNION ALL SELECT sum(a) FROM '{tmp_path}/c.csv'") == [[5], [6]]
    wrong = binary.run("sql", "SELECT 1;\nFROM 't.csv' WHERE a > 1 LIMIT 1 oops", cwd=folder)
    assert wrong.code == USAGE and "line 2, column 34" in wrong.err, wrong.err


@pytest.mark.parametrize("statement", ["SELECT FROM 't.csv'", "CREATE VIEW v AS SELECT FROM 't.csv'", "COPY (SELECT FROM 't.csv') TO 'x.csv'"])
def test_query_without_columns_is_an_error(folder, statement):
    ran = binary.run("sql", statement, cwd=folder)
    assert ran.code == USAGE and "no columns" in ran.err and ran.out == "", ran.err
    assert not (folder / "x.csv").exists()


# Statements without rows, each of which must be acknowledged.
WITHOUT_ROWS = [
    "SET datafusion.execution.batch_size = 100",
    "CREATE VIEW v AS SELECT 1",
    "CREATE TABLE n AS SELECT 1 AS x",
    "CREATE TABLE n (x INT)",
    "CREATE SCHEMA s",
    "PREPARE p AS SELECT 1",
    "DROP TABLE IF EXISTS nothing",
    "CREATE EXTERNAL TABLE e STORED AS CSV LOCATION 't.csv'",
]


@pytest.mark.parametrize("statement", WITHOUT_ROWS)
def test_statement_without_rows_is_acknowledged(folder, statement):
    ran = binary.run("sql", statement, cwd=folder).check()
    assert ran.out == "" and ran.err == f"done: {statement}\n", ran.err
    assert binary.run("sql", statement, "-q", cwd=folder).check().err == ""


def test_every_statement_prints_something_or_fails(folder):
    statements = ["BEGIN", "COMMIT", "ROLLBACK", "CREATE INDEX i ON t (a)", "TRUNCATE TABLE t", "ANALYZE TABLE t", "USE s", "VACUUM"]
    statements += ["RESET datafusion.execution.batch_size", "SHOW TABLES", "DESCRIBE 't.csv'", "EXPLAIN FROM 't.csv'"]
    for statement in statements:
        ran = binary.run("sql", statement, "--table", "t=t.csv", cwd=folder)
        assert (ran.out or ran.err) and ran.code in (0, FAILED, USAGE), f"{statement}: {ran.code}"


def test_bare_name_resolves_to_tables_before_folders(folder):
    assert breadth.rows("SELECT count(*), sum(part.k) FROM 'part'", cwd=folder) == [[10, 45]]
    assert breadth.rows("DESCRIBE 't.csv'; WITH part AS (SELECT 7 AS k) SELECT k FROM 'part'", cwd=folder)[-1] == [7]
    assert breadth.rows("SELECT * FROM 'part'", "--table", "part=t.csv", cwd=folder) == [[1, "x"], [2, "y"], [3, "z"]]
    # A folder does not prevent a new table of the same name.
    assert breadth.rows("CREATE TABLE part AS SELECT 1 AS x; SELECT x FROM part", cwd=folder) == [[1]]
    ran = binary.run("sql", "SELECT * FROM part", cwd=folder)
    assert ran.code == USAGE and "cannot find table part" in ran.err, ran.err


@pytest.mark.parametrize("name", ["UpperT", '"UpperT"', "uppert", "UPPERT"])
def test_table_names_ignore_case(folder, name):
    assert breadth.rows(f"SELECT sum({name}.a) FROM {name}", "--table", "UpperT=t.csv", cwd=folder) == [[6]]
    quoted = binary.run("sql", "-q", "--format", "csv", f"SELECT sum(a) AS s FROM {name}", "--table", '"UpperT"=t.csv', cwd=folder)
    assert quoted.check().out == "s\n6\n"


def test_division_by_zero_is_infinity_and_the_rest_is_null(folder):
    text = "SELECT a / 0 > 1e308, 5 % (a - 1) IS NULL, a // 0 IS NULL FROM 't.csv' WHERE a = 1"
    assert breadth.rows(text, cwd=folder) == [[True, True, True]]


def test_failed_cast_is_not_blamed_on_decoding(folder):
    ran = binary.run("sql", "SELECT CAST(b AS INT) FROM 't.csv'", cwd=folder)
    assert ran.code == FAILED and "while computing over" in ran.err and "'x'" in ran.err, ran.err


def test_missing_cast_does_not_name_a_rule_of_the_planner(folder):
    ran = binary.run("sql", "SELECT a::DATE FROM 't.csv'", cwd=folder)
    assert ran.code == USAGE and ran.err.startswith("error: cannot cast BIGINT to DATE: this cast does not exist; "), ran.err


def test_inserted_values_are_cast_as_by_cast(folder):
    create = "CREATE TABLE i (n INT, d DATE, t TIMESTAMP, l INT[]);"
    text = "INSERT INTO i VALUES (' 2 ', '2024/1/5', '2024-01-05 10:30', '[1, 2]'); SELECT n, d::VARCHAR, t::VARCHAR, l[2] FROM i"
    assert breadth.rows(f"{create} {text}")[-1] == [2, "2024-01-05", "2024-01-05 10:30:00", 2]
    ran = binary.run("sql", f"{create} INSERT INTO i (n) VALUES ('x')")
    assert ran.code == FAILED and "cannot cast 'x' of column n to INTEGER" in ran.err, ran.err
    ran = binary.run("sql", f"{create} INSERT INTO i (d) VALUES (1)")
    assert ran.code == FAILED and "column d of type DATE: they have type BIGINT; cast them" in ran.err, ran.err


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_unwritable_folder_is_named(folder, tmp_path, ending):
    for target in (folder / "t.csv" / f"o.{ending}", f"/proc/o.{ending}"):
        for args in (["SELECT 1 AS x", "-o", target], [f"COPY (SELECT 1 AS x) TO '{target}'"]):
            ran = binary.run("sql", *args, "--trace", tmp_path / "failed.trace", cwd=folder)
            assert ran.code == FAILED and re.match(f"error: cannot (write|create) {re.escape(str(target))}: ", ran.err), ran.err
            assert "bug" not in ran.err and "Partial" not in ran.err, ran.err
            (end,) = traces.read(tmp_path / "failed.trace").of["job_end"]
            assert str(target) in end["error"] and "bug" not in end["error"], end


def test_map_without_json_form_is_refused_with_remedy(tmp_path):
    ran = binary.run("sql", "SELECT MAP {1: 'a'} AS m", "-o", tmp_path / "m.json")
    assert ran.code == FAILED and "a MAP with keys of type Int64" in ran.err and "--format json" in ran.err, ran.err
    assert '{"1":"a"}' in binary.run("sql", "SELECT MAP {1: 'a'} AS m", "--format", "json").check().out


@pytest.mark.parametrize("place", ["out/", "out"])
def test_copy_refuses_a_folder_that_has_files(tmp_path, place):
    copy = f"COPY (SELECT value AS x FROM range(25)) TO '{tmp_path}/{place}' STORED AS PARQUET"
    assert breadth.rows(copy) == [[25]]
    again = binary.run("sql", copy)
    assert again.code == FAILED and f"cannot write to {tmp_path}/{place}: the folder is not empty" in again.err, again.err
    parted = binary.run("sql", copy.replace("AS x", "AS x, value % 2 AS p") + " PARTITIONED BY (p)")
    assert parted.code == FAILED and "INSERT INTO" in parted.err, parted.err
    assert breadth.rows(f"SELECT count(*) FROM '{tmp_path}/out/'") == [[25]]
    # COPY replaces an existing file.
    for _ in range(2):
        assert breadth.rows(f"COPY (SELECT 1 AS x) TO '{tmp_path}/o.parquet'") == [[1]]


def test_trace_labels_runs_not_on_the_bare_machine(folder, tmp_path):
    path = tmp_path / "query.trace"
    core_count = len(os.sched_getaffinity(0))
    labelled = {
        ("--cores", str(2 * core_count)): f"{2 * core_count} compute threads on {core_count} core",
        ("--input", "memory"): "tables read into the page cache before the job",
        ("--input", "memory-decoded"): "tables decoded into memory before the job",
    }
    for options, label in labelled.items():
        ran = binary.run("sql", "SELECT sum(k) FROM 'part'", "--trace", path, *options, cwd=folder).check()
        assert label in ran.err and any(label in text for text in traces.read(path).header["labels"]), ran.err
    for cores in (1, core_count):
        binary.run("sql", "SELECT 1", "--trace", path, "--cores", str(cores)).check()
        trace = traces.read(path)
        assert "labels" not in trace.header and trace.of["resource"][0]["capacity_from"] in ("set", "quota")
    binary.run("sql", "SELECT 1", "--trace", path).check()
    assert traces.read(path).of["resource"][0]["capacity_from"] in ("counted", "quota")


def test_closed_standard_output_is_a_failure(folder):
    def closed(command: str) -> tuple[int, str]:
        ran = subprocess.run(["sh", "-c", f"{shlex.quote(str(binary.binary()))} {command} >&-"], capture_output=True, text=True)
        return ran.returncode, ran.stderr

    for command in ("sql 'SELECT 1'", "sql --json 'SELECT 1'"):
        code, stderr = closed(command)
        assert code == FAILED and "cannot write to standard output: it is closed" in stderr, stderr
    # A command that prints nothing does not need stdout.
    assert closed(f"sql 'SELECT 1' -o {shlex.quote(str(folder / 'closed.csv'))}")[0] == 0
    with open(os.devnull, "r+") as nothing:
        assert binary.run("sql", "SELECT 1", stdout=nothing).code == 0


def test_color_option_applies_to_help_and_usage_errors():
    for args in (["sql", "--help"], ["sql", "--nope"]):
        coloured = binary.run("--color", "always", *args)
        assert "\x1b[" in coloured.out + coloured.err, args
        assert "\x1b[" in on_terminal(100, *args) and "\x1b[" not in on_terminal(100, "--color=never", *args)
        plain = binary.run(*args)
        assert "\x1b[" not in plain.out + plain.err


def test_version_names_the_program():
    assert re.fullmatch(r"pellucid \d+\.\d+\.\d+\n", binary.run("--version").check().out)


def commands() -> list[list[str]]:
    """Returns all commands and their subcommands."""

    def below(args: list[str]) -> list[list[str]]:
        help_text = binary.run(*args, "--help").check().out
        names = re.findall(r"^  ([a-z][a-z-]+)  ", help_text.partition("Commands:\n")[2].partition("\n\n")[0], re.MULTILINE)
        return [args] + [deeper for name in names if name != "help" for deeper in below([*args, name])]

    return below([])


def test_binary_names_no_folder_of_the_build():
    """`.cargo/rustc` replaces the machine's folders. A build folder that is older keeps them: delete it."""
    program = binary.binary().read_bytes()
    folders = ["/registry/src/", f"{Path.home()}/", f"{binary.ROOT}/", f"{binary.binary().resolve().parent}/"]
    assert [folder for folder in folders if folder.encode() in program] == []


def test_help_of_every_command_has_an_example_and_fits():
    every = commands()
    assert len(every) > 15, every
    for args in every:
        text = binary.run(*args, "--help").check().out
        assert re.search(r"^Examples?:\n  .*pellucid\b", text, re.MULTILINE), f"{args}: no example"
        for columns in (80, 100):
            shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in on_terminal(columns, *args, "--help").splitlines()]
            assert max(map(len, shown)) <= columns, args
            # A single word in the middle of a paragraph means that a line was wrapped twice.
            alone = [line for line, after in zip(shown, shown[1:]) if re.fullmatch(r"\S+[^:]", line) and after]
            assert not alone, f"{args}: {alone}"


def test_completions_offer_every_command():
    names = {name for args in commands() for name in args}
    for shell in ("bash", "elvish", "fish", "powershell", "zsh"):
        script = binary.run("completions", shell).check().out
        assert not [name for name in names if name not in script], shell
        document = binary.run("completions", shell, "--json").check().json()
        assert document == {"format": "pellucid.completions/1", "shell": shell, "script": script}
    complete = 'source <("$0" completions bash); COMP_WORDS=(pellucid "$1" "$2"); COMP_CWORD=2; _pellucid pellucid "$2" "$1"; echo "${COMPREPLY[@]}"'
    for word, start, offered in (("storage", "pro", "probe"), ("sql", "--disk", "--disk-rate")):
        ran = subprocess.run(["bash", "-c", complete, binary.binary(), word, start], capture_output=True, text=True)
        assert ran.stdout.split() == [offered], ran


def test_manual_page_of_every_command_has_its_options(tmp_path):
    binary.run("man", "-o", tmp_path / "man1").check()
    every = commands()
    assert {path.name for path in (tmp_path / "man1").iterdir()} == {"-".join(["pellucid", *args]) + ".1" for args in every}
    for args in every:
        page = (tmp_path / "man1" / ("-".join(["pellucid", *args]) + ".1")).read_text().replace("\\-", "-")
        options = re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", binary.run(*args, "--help").check().out, re.MULTILINE)
        assert not [option for option in options if option not in page], args
    again = binary.run("man", "-o", tmp_path / "man1")
    assert again.code == USAGE and "it already exists" in again.err


def test_table_fits_the_screen_and_says_what_it_hides():
    wide = "SELECT " + ", ".join(f"{i} + value AS column_{i}" for i in range(16)) + " FROM range(300)"
    many = "SELECT " + ", ".join(f"{i} AS c{i}" for i in range(3000))
    for columns in (120, 80, 40):
        for query, notes in ((wide, ["… 260 more rows", "more columns"]), (many, ["more columns"])):
            shown = on_terminal(columns, "sql", "-q", query)
            lines = shown.splitlines()
            assert len({len(line) for line in lines}) == 1 and len(lines[0]) <= columns, shown
            for words in notes:
                assert [line for line in lines if words in line and line.startswith("│ …")], shown
    # When not on a terminal, nothing is hidden.
    assert "column_8" in binary.run("sql", "-q", wide).check().out


@pytest.mark.parametrize(("most", "shown"), [("0", 300), ("3", 3), ("1000", 300)])
def test_number_of_rows_of_a_box_can_be_set(most, shown):
    """On a terminal and elsewhere; other formats are complete."""
    query = "SELECT value FROM range(300) ORDER BY value"
    arguments = ("sql", "-q", query, "--max-rows", most)
    for text in (on_terminal(80, *arguments), binary.run(*arguments).check().out):
        assert len(re.findall(r"^│ +\d+ ", text, re.MULTILINE)) == shown, text
        assert (f"… {300 - shown} more rows (--max-rows 0 shows all)" in text) == (shown < 300), text
    assert binary.run(*arguments, "--format", "csv").check().out.count("\n") == 301


def test_folder_of_mixed_formats_suggests_a_pattern(tmp_path):
    (tmp_path / "a.txt").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n1\n")
    (tmp_path / "c.csv").write_text("x\n1\n")
    assert "ends in *.csv" in binary.run("sql", f"SELECT * FROM '{tmp_path}/'").err
    binary.run("sql", "SELECT 1 AS x", "-o", tmp_path / "z.parquet").check()
    assert "ends in *.parquet" in binary.run("sql", f"SELECT * FROM '{tmp_path}/'").err
    (tmp_path / "a.tbl").write_text("1|2|\n")
    ran = binary.run("sql", f"SELECT * FROM '{tmp_path}/a.tbl'")
    assert ".txt" in ran.err and ".feather" in ran.err, ran.err


def test_demo_commands_can_be_pasted(tmp_path):
    home = tmp_path / "d'ir $x"
    output = binary.run("demo", "--scale", "0.01", "--dir", home).check().err
    pasted = re.findall(r"^  (pellucid .*)$", output, re.MULTILINE)
    assert len(pasted) == 2, output
    environment = os.environ | {"PATH": f"{binary.binary().parent}:{os.environ['PATH']}"}
    for command in pasted:
        ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment)
        assert ran.returncode == 0 and ran.stdout, f"{command}: {ran.stderr}"
