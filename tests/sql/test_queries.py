"""Constructs of queries that DataFusion does not plan, beside DuckDB: random statements over random tables.

The tables have NULLs, no rows, names in mixed case, and lists. Statements and tables are seeded: a failure prints the
statement, and `PELLUCID_SEED=SEED` repeats the run. Forty statements of each construct by default, 400 with PELLUCID_FULL=1.
"""

import os
import random

import pytest

from harness import binary, traces
from harness.sql import breadth, compare, oracle

SEED = os.environ.get("PELLUCID_SEED", "1")
QUERIES = 400 if os.environ.get("PELLUCID_FULL") == "1" else 40
# Columns by type, as the tables name them.
NUMBERS, TEXTS, OTHERS = ("Id", "k", "v"), ("Name", "Tag"), ("d", "f")
COLUMNS = NUMBERS + TEXTS + OTHERS


def rows_of(r: random.Random, count: int) -> str:
    """Returns VALUES of a table with the columns `COLUMNS`."""

    def null_or(value: str) -> str:
        return "NULL" if r.random() < 0.15 else value

    def row(number: int) -> str:
        texts = [null_or("'" + r.choice(["a", "A", "b", "B", "é", "É", "", "x y"]) + "'") for _ in TEXTS]
        day = null_or(f"DATE '2024-01-01' + {r.randrange(40)}")
        values = [number, null_or(r.randrange(5)), null_or(r.randrange(-50, 50)), *texts, day, null_or(r.choice(["true", "false"]))]
        return f"({', '.join(map(str, values))})"

    return ", ".join(row(number) for number in r.sample(range(1, 2 * count + 1), count))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A DuckDB connection with the tables, and the command's options for them."""
    folder, duck, r = tmp_path_factory.mktemp("queries"), oracle.connect(), random.Random(f"tables {SEED}")
    types = "Id BIGINT, k INTEGER, v INTEGER, Name VARCHAR, Tag VARCHAR, d DATE, f BOOLEAN"
    for name, count in (("t", 60), ("u", 25), ("none", 0)):
        duck.execute(f"CREATE TABLE {name} ({types})")
        if count:
            duck.execute(f"INSERT INTO {name} VALUES {rows_of(r, count)}")
    lists = ", ".join(f"({n}, {r.choice(['NULL', '[]', '[1]', '[3, NULL, 1]', '[2, 2]', '[NULL]'])}::INTEGER[])" for n in range(12))
    duck.execute(f"CREATE TABLE lists AS SELECT n::BIGINT AS Id, items AS Items FROM (VALUES {lists}) x(n, items)")
    options = []
    for name in ("t", "u", "none", "lists"):
        duck.execute(f"COPY {name} TO '{folder}/{name}.parquet'")
        options += ["--table", f"{name}={folder}/{name}.parquet"]
    return duck, options


class Maker:
    """Makes one statement."""

    def __init__(self, seed: str):
        self.r = random.Random(seed)

    def pick(self, *choices: str) -> str:
        return self.r.choice(choices)

    def table(self) -> str:
        return self.pick("t", "u", "T", '"t"', "none", "(SELECT * FROM t WHERE k IS NOT NULL)", "(FROM u)")

    def name(self, column: str) -> str:
        """Returns a column's name in any case, perhaps in quotes."""
        other = self.pick(column, column.lower(), column.upper(), column.swapcase())
        return self.pick(other, f'"{other}"')

    def number(self) -> str:
        return self.name(self.pick(*NUMBERS))

    def column(self) -> str:
        return self.name(self.pick(*COLUMNS))

    def columns(self, of=COLUMNS, least: int = 1) -> list[str]:
        """Returns several columns, as the table names them."""
        return self.r.sample(of, self.r.randint(least, min(3, len(of))))

    def aggregates(self) -> str:
        # Without an alias, the name is the text here, and that of the parsed expression in DuckDB.
        calls = ["sum(v)", f"count({self.column()}) AS n", f"max({self.number()}) AS Top", "count(*) AS All", f"min({self.name('Name')}) AS low"]
        return ", ".join(self.r.sample(calls, self.r.randint(1, 2)))

    def pivot(self) -> str:
        on = self.pick("k", "Name", "f")
        values = {"k": "(0, 1, 3)", "Name": "('a', 'B', 'zz')", "f": "(true, false)"}[on]
        several = f"{self.name('k')} IN (0, 2), {self.name('f')} IN (true)"
        group = self.pick("", " GROUP BY Tag", f" GROUP BY {self.name('Tag')}, {self.name('d')}")
        using = self.aggregates()
        return self.pick(
            # The values differ in more than case: DuckDB numbers names that do not.
            f"PIVOT {self.table()} ON {self.name(self.pick('k', 'f'))} USING {using}{group}",
            f"PIVOT {self.table()} ON {self.name(on)} IN {values} USING {using}{group}",
            f"PIVOT {self.table()} ON {several} USING {using}{group}",
            f"FROM {self.table()} PIVOT ({using} FOR {self.name(on)} IN {values}{group})",
            f"PIVOT (SELECT {self.name('k')}, v, Tag FROM {self.table()}) ON {self.name('k')} USING sum(v)",
            f"PIVOT {self.table()} ON {self.name('k')} || '_' || {self.name('f')} USING count(*) GROUP BY d",
        )

    def unpivot(self) -> str:
        of = self.columns(self.pick(NUMBERS, TEXTS), 2)  # type: ignore[arg-type]
        listed = ", ".join(self.name(one) for one in of)
        table = f"(SELECT * EXCLUDE (d) FROM {self.table()})"
        nulls = self.pick("", " INCLUDE NULLS")
        return self.pick(
            f"UNPIVOT {table} ON {listed} INTO NAME what VALUE amount",
            f"UNPIVOT {table} ON {listed} INTO NAME What VALUE Amount",
            f"FROM {table} UNPIVOT{nulls} (Amount FOR what IN ({listed}))",
            f"SELECT what, count(*) AS n FROM {table} UNPIVOT{nulls} (a FOR what IN ({listed})) GROUP BY what",
            "UNPIVOT (SELECT k, v, Tag FROM t) ON COLUMNS(* EXCLUDE Tag) INTO NAME n VALUE x",
            f"UNPIVOT (SELECT k, v, Id, Tag FROM {self.table()}) ON (k, v), (v, k) INTO NAME pair VALUES (a, b)",
        )

    def asof(self) -> str:
        # Unique, so that one row is the last.
        left = f"(SELECT Id, k, v, d FROM {self.table()}) a"
        right = f"(SELECT k, d, max(Id) AS Id FROM {self.table()} WHERE d IS NOT NULL GROUP BY ALL) b"
        operator, outer = self.pick(">=", ">", "<", "<="), self.pick("", " LEFT")
        condition = self.pick(f"a.k = b.k AND a.{self.name('d')} {operator} b.d", f"b.d {operator} a.d AND a.{self.name('k')} = b.k")
        return self.pick(
            f"SELECT a.Id, a.d, b.d AS bd, b.Id AS other FROM {left} ASOF{outer} JOIN {right} ON {condition}",
            f"SELECT a.Id, k, b.Id AS other FROM {left} ASOF{outer} JOIN {right} USING (k, d)",
            f"SELECT count(*) AS n, sum(b.Id) AS s FROM {left} ASOF{outer} JOIN (SELECT d, max(Id) AS Id FROM {right} GROUP BY d) b ON a.d {operator} b.d",
        )

    def positional(self) -> str:
        one, other = (f"(SELECT Id, {self.pick('v', 'Name')} AS x FROM {self.table()} ORDER BY Id) {alias}" for alias in "ab")
        return self.pick(
            f"SELECT a.Id, b.Id AS other, a.x, b.x AS y FROM {one} POSITIONAL JOIN {other}",
            f"SELECT * FROM {one} POSITIONAL JOIN {other}",
            f"SELECT count(*) AS n, count(a.Id) AS a, count(b.Id) AS b FROM {one} POSITIONAL JOIN {other}",
        )

    def semi(self) -> str:
        kind, key = self.pick("SEMI", "ANTI"), self.pick("Id", "k", "Name")
        condition = self.pick(
            f"USING ({self.name(key)})", f"ON a.{self.name(key)} = b.{self.name(key)}", f"ON a.v > b.v AND a.{self.name(key)} = b.{key}"
        )
        return f"SELECT a.*, {self.name('Name')} AS again FROM {self.table()} a {kind} JOIN {self.table()} b {condition}"

    def stars(self) -> str:
        some = self.columns()
        listed, pattern = ", ".join(self.name(one) for one in some), self.pick("k|v", "^[A-Z]", "a", "[df]$", ".*")
        return self.pick(
            f"SELECT COLUMNS('{pattern}') FROM {self.table()}",
            f"SELECT COLUMNS(* EXCLUDE ({listed})) FROM {self.table()}",
            f"SELECT COLUMNS(c -> c LIKE '%{self.pick('a', 'd', 'e')}%') FROM {self.table()}",
            f"SELECT min(COLUMNS(*)), count(*) AS n FROM {self.table()}",
            f"SELECT COLUMNS([{', '.join(repr(one) for one in some)}]) FROM {self.table()}",
            f"SELECT * EXCLUDE ({listed}) FROM {self.table()}",
            f"SELECT * REPLACE ({self.name('v')} + 1 AS v) FROM {self.table()}",
            f"SELECT * RENAME ({self.name('k')} AS Other) FROM {self.table()}",
            f"SELECT * LIKE '%{self.pick('a', 'd', 'N')}%' FROM {self.table()}",
            f"SELECT coalesce(*COLUMNS('^(k|v)$')) AS c FROM {self.table()}",
            f"SELECT a.k, b.* EXCLUDE ({listed}) FROM {self.table()} a JOIN {self.table()} b USING (Id)",
            f"SELECT Id FROM {self.table()} WHERE COLUMNS('^(k|v)$') > 0",
            f"SELECT COLUMNS('(k|v)') AS 'new_\\1' FROM {self.table()}",
        )

    def aliases(self) -> str:
        number = self.number()
        return self.pick(
            f"SELECT {number} + 1 AS x, X * 2 AS y, y - x AS z FROM {self.table()}",
            f"SELECT {number} + 1 AS x FROM {self.table()} WHERE x > 3",
            f"SELECT {number} % 3 AS grp, count(*) AS n FROM {self.table()} GROUP BY Grp HAVING n > 2",
            f"SELECT {number} + 1 AS k, k * 2 AS y FROM {self.table()}",
            f"SELECT {number} AS v FROM {self.table()} WHERE v > 0",
            f"SELECT Id, {number} AS x FROM {self.table()} ORDER BY x DESC, Id",
            f"SELECT Id, -{number} AS k FROM {self.table()} ORDER BY k, Id",
            f"SELECT Id, row_number() OVER (ORDER BY Id) AS r FROM {self.table()} QUALIFY r <= 3",
            f"SELECT x: {number}, k FROM {self.table()} ORDER BY ALL",
            f"SELECT max({number}) AS m, m + 1 AS n FROM {self.table()}",
            f"SELECT lower(Name) AS name, count(*) AS n FROM {self.table()} GROUP BY lower(Name)",
            f"SELECT a, a_1 FROM (SELECT {number} AS a, Name AS a FROM {self.table()})",
            f"SELECT * FROM (SELECT {number} AS a, Name AS A FROM {self.table()})",
        )

    def bags(self) -> str:
        some = ", ".join(self.columns())
        parts = [f"SELECT {some} FROM {self.table()}" for _ in range(3)]
        one, other = self.pick("EXCEPT ALL", "INTERSECT ALL"), self.pick("EXCEPT ALL", "INTERSECT ALL", "UNION ALL", "EXCEPT", "UNION")
        column = self.pick("k", "Name", "f")
        return self.pick(
            f"{parts[0]} {one} {parts[1]}",
            f"{parts[0]} {one} {parts[1]} {other} {parts[2]}",
            f"SELECT {column} FROM {self.table()} {one} SELECT {column} FROM {self.table()} ORDER BY ALL",
            f"SELECT count(*) AS n FROM (SELECT {column} FROM {self.table()} {one} SELECT {column} FROM {self.table()})",
            f"SELECT k, v FROM {self.table()} UNION ALL BY NAME SELECT v, Name FROM {self.table()}",
            f"SELECT {self.name('k')}, v FROM {self.table()} UNION BY NAME SELECT V, K FROM {self.table()}",
        )

    def limits(self) -> str:
        percent = self.pick("0%", "10%", "33.3%", "50 PERCENT", "100%", "12.5%")
        tail = self.pick("", " OFFSET 2")
        return self.pick(
            f"SELECT Id, v FROM {self.table()} ORDER BY Id LIMIT {percent}{tail}",
            f"SELECT Id, v FROM {self.table()} ORDER BY v DESC NULLS FIRST, Id LIMIT {percent}{tail}",
            f"SELECT count(*) AS n FROM (SELECT * FROM {self.table()} LIMIT {percent})",
            f"SELECT k, count(*) AS n FROM {self.table()} GROUP BY k ORDER BY ALL LIMIT {percent}",
            f"SELECT Id FROM {self.table()} ORDER BY ALL{self.pick('', ' DESC')} FETCH FIRST {self.pick('', '3 ')}ROWS ONLY",
            f"SELECT Id FROM {self.table()} ORDER BY Id OFFSET 3 ROWS FETCH NEXT 2 ROWS ONLY",
            f"SELECT Id FROM (SELECT Id FROM {self.table()} ORDER BY v DESC, Id) LIMIT 4{tail}",
            f"WITH c AS (SELECT Id, v FROM {self.table()} ORDER BY v, Id) SELECT Id, row_number() OVER () AS r FROM c WHERE v > 0",
            f"SELECT k, list(v)::VARCHAR AS l, string_agg(Name, '-') AS s FROM (SELECT * FROM {self.table()} ORDER BY v DESC, Id) GROUP BY k",
            f"SELECT first(Id) AS a, last(Id) AS z FROM (SELECT v, Id FROM {self.table()} WHERE v IS NOT NULL ORDER BY v, Id) x",
            f"SELECT k, v, Id FROM {self.table()} ORDER BY ALL DESC NULLS FIRST LIMIT 5{tail}",
        )

    def collations(self) -> str:
        collation, text = self.pick("NOCASE", "nocase", "C", "POSIX"), self.name(self.pick(*TEXTS))
        return self.pick(
            f"SELECT Id FROM {self.table()} WHERE {text} COLLATE {collation} = '{self.pick('A', 'É', 'b')}'",
            f"SELECT Id, {text} AS s FROM {self.table()} ORDER BY {text} COLLATE {collation}, Id",
            f"SELECT Id FROM {self.table()} WHERE {text} COLLATE {collation} < 'b' COLLATE {collation} ORDER BY Id",
            f"SELECT Id FROM {self.table()} WHERE {text} COLLATE {collation} IN ('A', 'b')",
            f"SELECT count(DISTINCT {text} COLLATE C) AS n FROM {self.table()}",
            f"SELECT a.Id, b.Id AS other FROM {self.table()} a JOIN {self.table()} b ON a.Name = b.Name COLLATE {collation}",
            f"SELECT {text} COLLATE {collation} AS s FROM {self.table()} WHERE {text} COLLATE {collation} NOT IN ('A', {text})",
        )

    def unnested(self) -> str:
        items = self.name("Items")
        return self.pick(
            f"SELECT l.Id, x FROM lists l, unnest(l.{items}) u(x)",
            f"SELECT Id, x FROM lists, unnest({items}) AS u(x) WHERE x > 1",
            f"SELECT Id, unnest({items}) AS x FROM lists",
            f"SELECT Id, x FROM lists LEFT JOIN unnest({items}) u(x) ON true",
            f"SELECT Id, x FROM lists CROSS JOIN LATERAL unnest({items}) u(x)",
            f"SELECT sum(x) AS s FROM (SELECT unnest({items}) AS x FROM lists)",
            "SELECT t.Id, x FROM t, unnest([t.k, t.v]) u(x)",
            "SELECT x, count(*) AS n FROM none, unnest([1, k]) u(x) GROUP BY x",
            "SELECT * FROM unnest([3, NULL, 1]) u(x)",
        )

    def marks(self) -> str:
        """EXISTS and IN among the columns."""
        subquery = self.pick("SELECT v FROM u", "SELECT u.v FROM u WHERE u.k = t.k", "SELECT v FROM none", "SELECT k FROM u WHERE v IS NOT NULL")
        return self.pick(
            f"SELECT Id, t.{self.number()} IN ({subquery}) AS b FROM t ORDER BY Id",
            f"SELECT Id, CASE WHEN k NOT IN ({subquery}) THEN 'x' ELSE Name END AS b FROM t ORDER BY Id",
            f"SELECT Id, {self.pick('', 'NOT ')}EXISTS ({subquery}) AS b FROM t ORDER BY Id",
            f"SELECT count(*) AS n, EXISTS (SELECT 1 FROM u WHERE v > {self.r.randrange(50)} LIMIT 1) AS b FROM t",
        )

    def correlated(self) -> str:
        """Subqueries with columns of the query around them."""
        where = self.pick("u.k = t.k", "u.k < t.k", "u.k = t.k AND u.v > t.v", "u.v + 1 > t.v", "u.k = t.k AND u.f", "u.Id = t.Id")
        order = self.pick("u.v DESC, u.Id", "u.Id", "u.v NULLS FIRST, u.Id DESC", "u.k + t.v, u.Id")
        limit = f"LIMIT {self.r.randrange(4)}{self.pick('', ' OFFSET 1')}"
        body = self.pick(
            f"SELECT u.Id AS x FROM u WHERE {where} ORDER BY {order} {limit}",
            f"SELECT DISTINCT u.v % 3 AS x FROM u WHERE {where}",
            f"SELECT row_number() OVER (ORDER BY u.v, u.Id)::BIGINT + t.Id AS x FROM u WHERE {where}",
            f"SELECT u.v AS x FROM u WHERE {where} UNION ALL SELECT t.v",
            f"SELECT count(*) AS x FROM (SELECT 1 FROM u WHERE {where} {limit})",
            "SELECT u.k + t.k AS x FROM u JOIN none n ON n.Id = u.Id RIGHT JOIN u w ON w.Id = u.Id WHERE w.k = t.k",
        )
        first = self.pick(
            f"SELECT u.v FROM u WHERE {where} ORDER BY {order} LIMIT 1{self.pick('', ' OFFSET 2')}",
            f"SELECT u.v FROM u WHERE {where}",
            "SELECT u.Name FROM u WHERE u.Id = t.Id",
            f"SELECT max(u.v) + t.k FROM u WHERE {where}",
            f"SELECT count(*) FROM u WHERE {where} HAVING count(*) > 1",
        )
        items = "SELECT max(x) FROM unnest(l.Items) i(x)"
        return self.pick(
            f"SELECT t.Id, s.x FROM t, LATERAL ({body}) s",
            f"SELECT t.Id, s.x FROM t LEFT JOIN LATERAL ({body}) s ON s.x > 1",
            f"SELECT t.Id, ({first}) AS x FROM t",
            f"SELECT t.Id FROM t WHERE ({first}) IS NOT NULL ORDER BY t.Id",
            f"SELECT t.Id FROM t WHERE {self.pick('', 'NOT ')}EXISTS ({body}) ORDER BY t.Id",
            f"SELECT t.Id FROM t WHERE t.v {self.pick('', 'NOT ')}IN ({body}) ORDER BY t.Id",
            f"SELECT l.Id, ({items}) AS m FROM lists l ORDER BY l.Id",
        )

    def counts(self) -> str:
        """LIMIT and OFFSET of a subquery."""
        limit = self.pick("(SELECT count(*) FROM u)", "(SELECT min(k) FROM u)", "(SELECT NULL)", str(self.r.randrange(9)))
        offset = self.pick("", " OFFSET (SELECT max(k) FROM u)", " OFFSET 2")
        return f"SELECT Id, {self.number()} AS n FROM t ORDER BY {self.pick('Id', 'Id DESC', 'n, Id')} LIMIT {limit}{offset}"


CONSTRUCTS = (
    "pivot", "unpivot", "asof", "positional", "semi", "stars", "aliases", "bags", "limits", "collations", "unnested", "marks", "counts",
    "correlated",
)  # fmt: skip


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_construct_gives_the_rows_of_duckdb(construct, tables):
    duck, options = tables
    queries, answers = [], []
    for number in range(QUERIES):
        query = getattr(Maker(f"{construct} {SEED} {number}"), construct)()
        try:
            answers.append(breadth.expected(duck, query, breadth.is_ordered(query)))
        except oracle.duckdb.Error as error:
            answers.append(error)
        queries.append(query)
    differences = []
    for query, expected, got in zip(queries, answers, breadth.answers(queries, options), strict=True):
        if isinstance(expected, Exception):
            if not isinstance(got, binary.Ran):
                differences.append(f"{query}\n  here: {got.rows[:5]}\n  DuckDB: {expected}")
        elif isinstance(got, binary.Ran):
            differences.append(f"{query}\n  here: {got.err}  DuckDB: {expected.rows[:5]}")
        elif got.columns != expected.columns:
            differences.append(f"{query}\n  here: {got.columns}\n  DuckDB: {expected.columns}")
        elif wrong := compare.difference(expected, got.columns, got.types, got.rows):
            differences.append(f"{query}\n  {wrong}")
    print(f"seed {SEED}: {QUERIES} statements, DuckDB refuses {sum(isinstance(one, Exception) for one in answers)}")
    assert not differences, f"PELLUCID_SEED={SEED}, {len(differences)} of {QUERIES}:\n" + "\n".join(differences)


@pytest.mark.parametrize("variant", breadth.VARIANTS)
def test_order_of_a_subquery_is_kept(tmp_path, variant):
    """Also where several partitions are sorted and read."""
    duck = oracle.connect()
    duck.execute(f"COPY (SELECT (hash(i) % 1000003)::BIGINT AS x, i FROM range(50000) r(i)) TO '{tmp_path}/big.parquet' (ROW_GROUP_SIZE 5000)")
    duck.execute(f"CREATE VIEW big AS FROM '{tmp_path}/big.parquet'")
    ordered = "(SELECT x, i FROM big ORDER BY x DESC, i)"
    queries = [
        f"SELECT x + 1 AS y, i FROM {ordered} WHERE x % 2 = 0",
        f"SELECT x, i FROM {ordered} LIMIT 7",
        f"WITH c AS {ordered} SELECT i FROM c WHERE i % 3 = 1 LIMIT 5 OFFSET 2",
        f"SELECT i, row_number() OVER () AS r FROM {ordered} o WHERE i % 7 = 0",
        f"SELECT i % 3 AS k, list(x)[:3]::VARCHAR AS l, first(i) AS a, last(i) AS z FROM {ordered} GROUP BY k ORDER BY k",
        f"SELECT a.i, b.i AS j FROM {ordered} a POSITIONAL JOIN (SELECT i FROM big ORDER BY i) b",
    ]
    options = ["--table", f"big={tmp_path}/big.parquet", *breadth.VARIANTS[variant]]
    for query, got in zip(queries, breadth.results(queries, *options), strict=True):
        assert got.rows == [list(row) for row in duck.execute(query).fetchall()], query


@pytest.mark.parametrize("variant", breadth.VARIANTS)
def test_joins_with_a_divided_build_side(tmp_path, variant):
    """Of every kind; rows come in the same order in each run, those of the build side at the end."""
    duck = oracle.connect()
    duck.execute("CREATE TABLE few AS SELECT i, nullif(i * 7919 % 5000, 17)::BIGINT AS k, 'v' || i % 900 AS s FROM range(6000) r(i)")
    duck.execute("CREATE TABLE many AS SELECT i, nullif(hash(i) % 7000, 3)::BIGINT AS k, 'v' || i % 1100 AS s FROM range(20000) r(i)")
    options = []
    for table in ("few", "many"):
        (tmp_path / table).mkdir()
        for part in range(3):
            duck.execute(f"COPY (FROM {table} WHERE i % 3 = {part}) TO '{tmp_path / table}/{part}.parquet'")
        options += ["--table", f"{table}={tmp_path / table}"]
    both = "SELECT few.i, many.i AS j, few.s FROM few"
    queries = [
        *(f"{both} {kind} JOIN many ON few.k = many.k" for kind in ("", "LEFT", "RIGHT", "FULL")),
        *(f"{both} {kind} JOIN many ON few.s = many.s AND few.i < many.i - 15000" for kind in ("", "LEFT", "RIGHT", "FULL")),
        f"{both} JOIN many USING (k, s)",
        f"{both} LEFT JOIN many ON few.k IS NOT DISTINCT FROM many.k",
        "SELECT i FROM few WHERE EXISTS (FROM many WHERE many.k = few.k)",
        "SELECT i FROM few WHERE NOT EXISTS (FROM many WHERE many.k = few.k AND many.i > few.i)",
        "SELECT i FROM many WHERE k IN (SELECT k FROM few WHERE i % 2 = 0)",
        "SELECT i FROM few WHERE k IN (SELECT k FROM many) OR i % 5 = 0",
        "SELECT count(*) FROM few JOIN many ON few.k = many.k",
        "SELECT few.s, count(*), sum(many.i), count(many.i) FROM few LEFT JOIN many ON few.k = many.k GROUP BY few.s",
        f"{both} FULL JOIN many ON few.k = many.k LEFT JOIN few AS third ON third.k = many.i WHERE third.i IS NULL",
        f"{both} LEFT JOIN many ON few.k = many.k UNION ALL SELECT i, i, s FROM many WHERE i < 7",
    ]
    options += breadth.VARIANTS[variant]
    first, second = (breadth.results([breadth.DIVIDED_JOINS, *queries], *options)[1:] for _ in range(2))
    for query, got, again in zip(queries, first, second, strict=True):
        assert not compare.difference(breadth.expected(duck, query, False), got.columns, got.types, got.rows), query
        assert got.rows == again.rows, query


@pytest.mark.parametrize("memory", [None, "16MiB"])
@pytest.mark.parametrize("variant", breadth.VARIANTS)
def test_shared_plans_and_grouping_sets(tmp_path, variant, memory):
    """CTEs that several places name, with other filters and columns, and sets that are computed from groups."""
    duck = oracle.connect()
    row = "i, i % 7 AS a, nullif(i % 11, 5) AS b, 'v' || hash(i) % 30 AS s, (hash(i) % 1000)::BIGINT AS v"
    duck.execute(f"COPY (SELECT {row} FROM range(60000) r(i)) TO '{tmp_path}/t.parquet' (ROW_GROUP_SIZE 5000)")
    duck.execute(f"CREATE VIEW t AS FROM '{tmp_path}/t.parquet'")
    groups = "WITH c AS (SELECT a, b, s, sum(v) AS x, count(*) AS n, avg(i) AS m FROM t GROUP BY a, b, s)"
    ranked = f"{groups}, w AS (SELECT *, row_number() OVER (PARTITION BY a ORDER BY x DESC, b, s) AS r FROM c)"
    queries = [
        f"{groups} SELECT f.a, f.b, f.s, f.x - g.x AS d FROM c f JOIN c g ON f.b = g.b AND f.s = g.s WHERE f.a = 1 AND g.a = 2",
        f"{groups} SELECT (SELECT count(*) FROM c), (SELECT sum(n) FROM c WHERE a = 3), max(m) FROM c WHERE b > 2",
        f"{groups} SELECT a, b, s FROM c WHERE x > (SELECT 1.2 * avg(x) FROM c o WHERE o.b = c.b)",
        f"{groups} SELECT s FROM c WHERE a IN (SELECT b FROM c WHERE x > 1000) AND NOT EXISTS (FROM c o WHERE o.x = c.n AND o.s = c.s)",
        f"{groups} SELECT 'all' AS k, a, x FROM c UNION ALL SELECT 'one', b, n FROM c WHERE a = 1 UNION ALL SELECT s, 1, 2 FROM c WHERE a = 9",
        f"{ranked} SELECT p.a, p.r, p.x, q.x AS y FROM w p JOIN w q ON p.a = q.a AND p.r = q.r + 1 WHERE p.r < 9",
        f"{ranked} SELECT w.a, c.n, w.r FROM w JOIN c USING (a, b, s) JOIN w l ON l.a = w.a AND l.r = w.r + 1 WHERE l.b = 3",
        f"{groups} SELECT k.s, k.x FROM (SELECT s, sum(x) AS x FROM c GROUP BY s) k, (SELECT s, sum(x) AS x FROM c GROUP BY s) l WHERE k.x = l.x",
        f"{groups} SELECT count(*) FROM c, (SELECT a FROM c LIMIT 3)",
        "WITH j AS (SELECT t.a, o.b, t.v FROM t JOIN t o ON t.i = o.i WHERE o.s = 'v3') SELECT 9, sum(v) FROM j UNION ALL SELECT a, count(*) FROM j GROUP BY a",
        "SELECT a, b, s, count(*), sum(v), min(i), avg(v), grouping(a, b, s) AS g FROM t GROUP BY ROLLUP (a, b, s)",
        "SELECT a, b, count(b), sum(v) FILTER (WHERE i % 2 = 0), max(s), bool_or(b = 3) FROM t GROUP BY CUBE (a, b)",
        "SELECT a, s, count(*), stddev(v) FROM t GROUP BY GROUPING SETS ((a, s), (s), (a, s), ())",
        "SELECT i, s, sum(v) FROM t GROUP BY ROLLUP (i, s) HAVING i IS NULL OR i % 5000 = 1",
        "SELECT a, count(DISTINCT s), max(b) FROM t GROUP BY ROLLUP (a)",
        "SELECT a, b, sum(v) FROM t WHERE i < 0 GROUP BY ROLLUP (a, b)",
    ]
    options = ["--table", f"t={tmp_path}/t.parquet", *breadth.VARIANTS[variant], *(("--memory", memory) if memory else ())]
    for query, got in zip(queries, breadth.results(queries, *options), strict=True):
        assert not compare.difference(breadth.expected(duck, query, False), got.columns, got.types, got.rows), query


def test_cte_reads_its_table_once(tmp_path):
    """However many places name it."""
    oracle.connect().execute(f"COPY (SELECT i % 100 AS a, i AS v FROM range(500000) r(i)) TO '{tmp_path}/t.parquet'")
    groups = f"WITH c AS (SELECT a, sum(v) AS x FROM '{tmp_path}/t.parquet' GROUP BY a)"

    def read(query: str) -> int:
        binary.run("sql", f"{groups} {query}", "--trace", tmp_path / "job.trace").check()
        job = traces.read(tmp_path / "job.trace")
        return job.total("bytes", "disk") + job.total("cached_bytes", "cpu")

    once = read("SELECT * FROM c WHERE a < 9")
    assert once > 1_000_000
    assert read("SELECT p.x FROM c p, c q WHERE p.a < 9 AND q.a = p.a + 1 AND q.x > (SELECT avg(x) FROM c)") == once


def number(r: random.Random, depth: int) -> str:
    """Returns a number made of functions, arithmetic and comparisons of the columns x and i."""
    if depth == 0:
        return r.choice(["length(x::VARCHAR)", "abs(i - 100)", "i % 7", "x", "i", "-x", "coalesce(x % 5, i)", "3"])
    one, other = number(r, depth - 1), number(r, depth - 1)
    return r.choice([
        f"({one} {r.choice('+-*')} {other})",
        f"CASE WHEN {compared(r, depth - 1)} THEN {one} ELSE {other} END",
        f"({one} BETWEEN 2 AND {other})::INTEGER + {one}",
        f"greatest({one}, {other})",
    ])  # fmt: skip


def compared(r: random.Random, depth: int) -> str:
    return f"({number(r, depth)} {r.choice(['<', '<=', '>', '>=', '='])} {number(r, depth)})"


def key(r: random.Random, depth: int = 2) -> str:
    """Returns a key to sort by."""
    return r.choice([number, compared])(r, depth)


def test_keys_are_any_expressions(tmp_path):
    """Of ORDER BY, windows, aggregates and DISTINCT ON, over several partitions."""
    duck, r = oracle.connect(), random.Random(f"keys {SEED}")
    duck.execute(f"COPY (SELECT (hash(i) % 97)::BIGINT AS x, i FROM range(20000) r(i)) TO '{tmp_path}/big.parquet' (ROW_GROUP_SIZE 2048)")
    duck.execute(f"CREATE VIEW big AS FROM '{tmp_path}/big.parquet'")
    uses = (
        "SELECT i FROM big ORDER BY {}, i LIMIT 9",
        "SELECT {} AS k, i FROM big WHERE i % 11 = 3 ORDER BY {} DESC, i",
        "SELECT i, row_number() OVER (PARTITION BY {} ORDER BY {}, i) AS r FROM big QUALIFY r = 2 ORDER BY i",
        "SELECT i, (sum(x) OVER (PARTITION BY {}, x % 3 ORDER BY i))::BIGINT AS s, rank() OVER (ORDER BY {}, i) AS r FROM big ORDER BY i LIMIT 50",
        "SELECT DISTINCT ON ({}) i FROM big ORDER BY {}, i DESC",
        "SELECT x, list(i ORDER BY {}, i)[:3]::VARCHAR AS l FROM big GROUP BY x ORDER BY x",
        "SELECT {} AS k, count(*) AS n FROM big GROUP BY 1 ORDER BY n, 1",
    )
    queries = []
    for number in range(QUERIES):
        use = uses[number % len(uses)]
        # DISTINCT ON and its ORDER BY have the same key.
        same = key(r, 1 + number % 2)
        queries.append(use.replace("{}", same) if number % 2 or "DISTINCT ON" in use or "{} AS k" in use else use.format(same, key(r)))
    for query, got in zip(queries, breadth.answers(queries, ["--table", f"big={tmp_path}/big.parquet"]), strict=True):
        try:
            expected = [list(row) for row in duck.execute(query).fetchall()]
        except oracle.duckdb.Error as error:
            assert isinstance(got, binary.Ran), f"PELLUCID_SEED={SEED}: {query}\n  here: {got.rows[:5]}\n  DuckDB: {error}"
            continue
        assert not isinstance(got, binary.Ran), f"PELLUCID_SEED={SEED}: {query}\n  {got.err}"
        assert got.rows == expected, f"PELLUCID_SEED={SEED}: {query}"
