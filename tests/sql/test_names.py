"""Names of columns in any case, names of results, and errors with their place in the statement."""

import re

import pytest

from harness import binary
from harness.binary import USAGE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    (folder / "people.csv").write_text("Id,City,Age\n1,Lyon,30\n2,Berlin,41\n3,Lyon,25\n")
    (folder / "cities.csv").write_text("City,Country\nLyon,FR\nBerlin,DE\n")
    return folder


def asked(folder, sql):
    """Returns the names of the columns and the rows."""
    result = binary.result(binary.run("sql", "--json", sql, cwd=folder))
    return result.columns, result.rows


@pytest.mark.parametrize(
    "sql, names, rows",
    [
        ("SELECT city, AGE, \"id\" FROM 'people.csv' ORDER BY AGE LIMIT 1", ["City", "Age", "Id"], [["Lyon", 25, 3]]),
        ("SELECT p.city FROM 'people.csv' p WHERE P.Id = 2", ["City"], [["Berlin"]]),
        ("SELECT country FROM 'people.csv' JOIN 'cities.csv' USING (city) WHERE id = 2", ["Country"], [["DE"]]),
        ("SELECT * EXCLUDE (age, CITY) FROM 'people.csv' ORDER BY id LIMIT 1", ["Id"], [[1]]),
        ("SELECT max(age) AS Oldest FROM 'people.csv' HAVING oldest > 1 ORDER BY OLDEST", ["Oldest"], [[41]]),
        ("SELECT upper(City) AS City FROM 'people.csv' WHERE Id = 1 ORDER BY city", ["City"], [["LYON"]]),
        ("SELECT total + 1 AS n FROM (SELECT sum(Age) AS Total FROM 'people.csv')", ["n"], [[97]]),
        ("WITH t(Key) AS (SELECT 7) SELECT key, t.KEY FROM t", ["Key", "Key"], [[7, 7]]),
        ("SELECT (SELECT max(country) FROM 'cities.csv' c WHERE c.city = p.CITY) AS c FROM 'people.csv' p WHERE id = 1", ["c"], [["FR"]]),
        ("SELECT (SELECT max(city) FROM 'people.csv' q WHERE q.Id = p.age - 29) AS c FROM 'people.csv' p WHERE id = 1", ["c"], [["Lyon"]]),
    ],
)
def test_names_are_found_in_any_case_and_keep_theirs(folder, sql, names, rows):
    assert asked(folder, sql) == (names, rows)


def test_alias_in_another_case_comes_before_a_column(folder):
    """`ORDER BY city` means the alias `City`, although the table has a column of this name."""
    sql = "SELECT 100 - Age AS AGE FROM (SELECT Age AS age FROM 'people.csv') ORDER BY age"
    assert asked(folder, sql) == (["AGE"], [[59], [70], [75]])


def test_columns_are_named_by_their_text_and_may_repeat(folder):
    columns, rows = asked(folder, "SELECT count(*), id, ID, *, age+1 FROM 'people.csv' GROUP BY ALL ORDER BY id LIMIT 1")
    assert columns == ["count(*)", "Id", "Id", "Id", "City", "Age", "age + 1"]
    assert rows == [[1, 1, 1, 1, "Lyon", 30, 31]]
    assert asked(folder, "SELECT * FROM (SELECT 1 AS a, 2 AS a)") == (["a", "a_1"], [[1, 2]])


@pytest.mark.parametrize(
    "sql, cause, place, marked",
    [
        ("SELECT id,\n  ctiy\nFROM 'people.csv'", "cannot find column ctiy; did you mean City?", (2, 3), "ctiy"),
        ("SELECT p.agee FROM 'people.csv' p", "did you mean Age?", (1, 8), "p.agee"),
        ("SELECT 1; SELECT id FROM 'people.csv' WHERE cit = 'x'", "did you mean City?", (1, 45), "cit"),
        ("SELECT uper(city) FROM 'people.csv'", "cannot find function uper; did you mean upper?", (1, 8), "uper"),
        ("SELECT id + (SELECT 1 WHERE city - 1 > 2) FROM 'people.csv'", "-", (1, 29), "city - 1"),
        ("SELECT id FROM 'people.csv' WHERE age > 30 AND city + date '2020-01-01' > 3", "+", (1, 48), "city + date"),
        ("SELECT a FROM pepole", "cannot find table pepole", (1, 15), "pepole"),
    ],
)
def test_error_shows_its_place_and_the_nearest_names(folder, sql, cause, place, marked):
    runs = [binary.run("sql", "--quiet", sql, cwd=folder) for _ in range(2)]
    message = runs[0].err
    assert runs[0].code == USAGE and runs[1].err == message
    found = re.search(r"^  line (\d+), column (\d+): (.*)\n( *)(\^+)$", message, re.MULTILINE)
    assert found and cause in message, message
    shown = found[0].splitlines()[0]
    start = len(found[4])
    assert (int(found[1]), int(found[2])) == place, message
    assert shown[start:].startswith(marked), message
