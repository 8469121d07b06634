"""The prompt in a real terminal: editing, completion, history, errors, cancelling, and answers about the last query."""

import os
import re
import stat

import pytest

from harness import binary, tmux
from harness.binary import USAGE
from harness.tmux import terminal

pytestmark = pytest.mark.skipif(bool(tmux.missing()), reason=str(tmux.missing()))

# Ends each result.
BOTTLENECK = r"^{rows} in \S+ \S+ · (limited by|not limited by)"
# Runs for hours, and emits batches throughout.
LONG = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.value * b.value % 7 = 3;"
SALES = "id,country,amount\n1,NO,10\n2,SE,20\n3,NO,30\n"


@pytest.fixture
def folder(tmp_path):
    """The folder of the terminal, with `sales.csv` and a folder of two tables."""
    (tmp_path / "sales.csv").write_text(SALES)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "items.csv").write_text("item,price\npen,1.5\n")
    (tmp_path / "shop" / "Staff 1.csv").write_text("name\nAda\n")
    return tmp_path


@pytest.fixture
def prompt(folder):
    """A prompt without arguments."""
    with terminal(folder) as made:
        made.ready()
        yield made


def test_result_ends_with_its_bottleneck(prompt):
    answer = prompt.answer("SELECT country, sum(amount) AS total FROM 'sales.csv' GROUP BY 1 ORDER BY 1;")
    assert "│ NO      │    40 │" in answer, answer
    # A warning may follow on a busy machine.
    assert re.search(BOTTLENECK.format(rows="2 rows"), answer.split("┘\n")[1]), answer
    assert "done: CREATE VIEW" in prompt.answer("CREATE VIEW v AS SELECT 1;")


def test_statement_continues_until_its_semicolon(prompt):
    prompt.type("SELECT 40")
    prompt.keys("Enter")
    prompt.shows(r"^ +\.\.\.>")
    assert "│     42 │" in prompt.answer_of("+ 2 AS answer;")
    assert "a;\\nb" in prompt.answer("SELECT 'a;\nb' AS text;")
    assert "│ 3 │" in prompt.answer("SELECT (1 -- ; )\n+ 2\n) AS x;")
    two = prompt.answer("SELECT 1 AS one; SELECT 2 AS two;")
    assert "│ one │" in two and "│ two │" in two


def test_names_words_and_paths_are_completed(prompt):
    prompt.answer("CREATE TABLE customers (id INT, country VARCHAR);")
    prompt.type("sel")
    prompt.keys("Tab")
    prompt.shows(r"^pellucid> select$")
    prompt.type(" * FROM cust")
    prompt.keys("Tab")
    prompt.shows(r"^pellucid> select \* FROM customers$")
    prompt.type(" WHERE countr")
    prompt.keys("Tab")
    prompt.shows(r"WHERE country$")
    prompt.clear()
    prompt.type("SELECT levenshte")
    prompt.keys("Tab")
    prompt.shows(r"^pellucid> SELECT levenshtein\($")
    prompt.clear()
    # The columns of a file are read for it.
    prompt.type("FROM 'sal")
    prompt.keys("Tab")
    prompt.shows(r"^pellucid> FROM 'sales\.csv'$")
    prompt.type(" SELECT amo")
    prompt.keys("Tab")
    prompt.shows(r"SELECT amount$")
    assert "│     10 │" in prompt.answer_of(";")


def test_several_completions_are_listed_in_a_menu(prompt):
    prompt.type(".re")
    prompt.keys("Tab")
    prompt.shows(r"\.read +\.report$")
    prompt.type("ad sal")
    prompt.keys("Tab")
    prompt.shows(r"^pellucid> \.read sales\.csv$")


def test_history_is_kept_private_and_searched(folder):
    with terminal(folder) as first:
        first.answer("SELECT 'needle'\nAS found;")
        first.answer("SELECT 2 AS two;")
        first.answer(" SELECT 'secret' AS hidden;")
        first.keys("C-d")
        assert first.ended() == 0
    path = folder / "state" / "pellucid" / "history"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert "needle" in path.read_text() and "secret" not in path.read_text()
    with terminal(folder) as second:
        second.ready()
        second.keys("Up")
        second.shows(r"^pellucid> SELECT 2 AS two;$")
        second.clear()
        second.keys("C-r")
        second.type("needl")
        second.shows(r"history: needl\) SELECT 'needle'")
        # Takes it, then runs it.
        second.keys("Enter")
        second.shows(r"^pellucid> SELECT 'needle'$")
        second.keys("Enter")
        second.shows(r"│ needle │")


def test_boxes_fit_80_columns(prompt):
    wide = "SELECT " + ", ".join(f"{i} + value AS column_{i}" for i in range(16)) + " FROM range(300);"
    prompt.answer(wide)
    lines = [line for line in prompt.screen().splitlines() if line[:1] in "┌│├└" and line]
    assert lines and {len(line) for line in lines} == {len(lines[0])} and len(lines[0]) <= 80, lines
    assert any("more columns (.mode csv prints all)" in line for line in lines), lines
    assert any("… 260 more rows" in line for line in lines), lines
    long = prompt.answer("SELECT repeat('x', 500) AS text;")
    assert "x…" in long, long


def test_ctrl_c_stops_the_query_and_not_the_session(prompt):
    prompt.answer("CREATE TEMP TABLE kept AS SELECT 7 AS seven;")
    for times in (1, 2):
        prompt.type(LONG)
        prompt.keys("Enter")
        prompt.shows(r"multitasks")
        prompt.keys("C-c")
        prompt.until(lambda text: len(re.findall(r"cancelled$", text, re.MULTILINE)) == times, "cancelled")
        assert "│     7 │" in prompt.answer("FROM kept;")


def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(prompt):
    prompt.type("SELECT 'not finished")
    prompt.shows("not finished$")
    prompt.clear()
    assert "│   1 │" in prompt.answer("SELECT 1 AS one;")
    prompt.keys("C-d")
    assert prompt.ended() == 0


def test_error_shows_its_place_and_the_session_goes_on(prompt):
    answer = prompt.answer("SELECT amount,\n  countri FROM 'sales.csv';")
    assert "did you mean country?" in answer, answer
    [line, mark] = answer.splitlines()[-2:]
    assert line.endswith("countri FROM 'sales.csv';") and mark.index("^") == line.index("countri"), answer
    assert mark.strip() == "^" * len("countri")
    assert "error:" in prompt.answer("SELECT 1 +;")
    assert "unknown command" in prompt.answer(".nothing")
    assert "│   1 │" in prompt.answer("SELECT 1 AS one;")


def test_dot_commands_answer_about_the_last_query(prompt, folder):
    for command in (".whatif", ".analyze", ".plan", ".report"):
        assert "no query has run" in prompt.answer(command)
    prompt.answer("SELECT country, sum(amount) AS total FROM 'sales.csv' GROUP BY 1;")
    # Statements that fail or are not queries do not replace it.
    prompt.answer("SELECT nothing;")
    prompt.answer("SET VARIABLE x = 1;")
    note = "last query: SELECT country, sum(amount)"
    answer = prompt.answer(".whatif")
    assert note in answer and re.search(r"^measured +\S+ \S+$", answer, re.MULTILINE), answer
    answer = prompt.answer(".whatif cores=1")
    assert re.search(r"^with +cores=1$", answer, re.MULTILINE) and "predicted" in answer, answer
    assert "cores takes a number" in prompt.answer(".whatif cores=many")
    assert note in prompt.answer(".analyze")
    answer = prompt.answer(".plan")
    assert "stage 0:" in answer and "Scan sales.csv" in answer and "rows out" in answer, answer
    for command in (".analyze", ".plan", ".whatif cores=1"):
        shown = prompt.answer(command)
        assert max(map(len, shown.splitlines())) <= 80, shown
    assert "wrote report.html" in prompt.answer(".report")
    assert "<html" in (folder / "report.html").read_text()[:1000]


def test_session_keeps_its_state_between_statements(prompt):
    prompt.answer("CREATE TEMP TABLE t AS SELECT 5 AS a;")
    prompt.answer("INSERT INTO t VALUES (6);")
    prompt.answer("SET VARIABLE factor = 10;")
    prompt.answer("CREATE MACRO times(x) AS x * getvariable('factor');")
    prompt.answer("PREPARE total AS SELECT sum(times(a)) + $1 AS total FROM t;")
    assert "│   111 │" in prompt.answer("EXECUTE total(1);")


def test_tables_formats_scripts_and_times(prompt, folder):
    assert "no tables" in prompt.answer(".tables")
    assert "tables: staff_1, items" in prompt.answer(".open shop")
    assert "tables: sales" in prompt.answer(".open sales.csv")
    shown = prompt.answer(".tables")
    assert all(f"│ {name} " in shown for name in ("items", "sales", "staff_1")), shown
    assert "amount" in prompt.answer(".schema sales")
    assert "price" in prompt.answer(".schema")
    assert prompt.answer(".mode csv") == ""
    assert "item,price\npen,1.5\n1 row in" in prompt.answer("FROM items;")
    assert prompt.answer(".mode") == "csv"
    (folder / "both.sql").write_text("SELECT 1 AS one;\nSELECT nothing;\nSELECT 3 AS three;")
    answer = prompt.answer(".read both.sql")
    assert "one\n1\n" in answer and "line 2" in answer and "three" not in answer, answer
    prompt.answer(".timer on")
    assert re.search(r"^time: .* wall clock, .* user, .* system$", prompt.answer("SELECT 1 AS one;"), re.MULTILINE)
    assert ".whatif" in prompt.answer(".help")
    prompt.type("exit")
    prompt.keys("Enter")
    assert prompt.ended() == 0


def test_options_are_those_of_sql(folder):
    with terminal(folder, "sql", "--table", "s=sales.csv", "--format", "csv", "--memory", "1GiB") as prompt:
        assert "n\n3\n" in prompt.answer("SELECT count(*) AS n FROM s;")
    for options, why in ((["--json"], "--json"), (["-o", "x.csv"], "-o"), (["--trace", "x.trace"], "--trace")):
        with terminal(folder, "sql", *options) as refused:
            assert refused.ended() == USAGE
            refused.shows(f"does not take {why}")
    with terminal(folder, "sql", "--table", "s=nothing.csv") as refused:
        assert refused.ended() == 1
        refused.shows("nothing.csv")


def test_traces_are_removed_when_the_session_ends(folder):
    for leave in (lambda made: made.keys("C-d"), lambda made: made.tmux("kill-server")):
        with terminal(folder) as made:
            made.answer("SELECT count(*) FROM 'sales.csv';")
            [traces] = (folder / "tmp").glob("pellucid-prompt-*")
            assert stat.S_IMODE(os.stat(traces).st_mode) == 0o700 and list(traces.iterdir())
            leave(made)
            binary.wait_for(lambda: not traces.exists())


def test_colours_only_where_they_are_wanted(folder):
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    with terminal(folder) as coloured:
        coloured.ready()
        coloured.type("SELECT")
        coloured.until(lambda _: "SELECT" in coloured.screen("-e"))
        coloured.until(lambda _: colour.search(coloured.screen("-e").splitlines()[-1]), "colour")
    with terminal(folder, NO_COLOR="1") as plain:
        plain.answer("SELECT 1 AS one;")
        plain.answer(".analyze")
        assert not colour.search(plain.screen("-e"))


def test_terminal_that_cannot_move_its_cursor_is_enough(folder):
    with terminal(folder, TERM="dumb") as prompt:
        assert "│   3 │" in prompt.answer("SELECT 1\n+ 2 AS sum;")
        prompt.keys("C-d")
        assert prompt.ended() == 0


def test_standard_input_is_a_script(folder, tmp_path):
    def script(text):
        path = tmp_path / "script.sql"
        path.write_text(text)
        with open(path) as file:
            return binary.run(stdin=file, cwd=folder)

    ran = script("CREATE TABLE t AS FROM 'sales.csv';\nSELECT sum(amount) AS total FROM t;").check()
    assert "│    60 │" in ran.out
    for text in ("SELECT 1;\nSELECT nothing;", "SELECT CAST('x' AS INT);"):
        ran = script(text)
        assert ran.code == binary.run("sql", "-f", tmp_path / "script.sql", cwd=folder).code != 0, ran.err
    assert script("").code == USAGE
