"""Generates queries whose CTEs several places name, from a seed: with other filters, in joins, subqueries and set operations.

CTEs have the columns a, b, s and x, and groups, grouping sets, distinct or joined rows, windows or the first rows of an order. They read
the tables of `random_sql`. No predicate is false for certain: DataFusion applies it before the grouping of an empty set, which
has a group nevertheless.
"""

import random


class Maker:
    """Generates one query from one seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def query(self) -> str:
        names: list[str] = []
        parts = []
        for number in range(self.random.choice([1, 2, 2, 3])):
            body = self.of_others(names) if names and self.random.random() < 0.4 else self.body()
            names.append(f"c{number}")
            parts.append(f"{names[-1]} AS ({body})")
        return f"WITH {', '.join(parts)} {self.places(names)}"

    def predicate(self, name: str) -> str:
        column, number = self.random.choice(["a", "b", "x"]), self.random.randrange(9)
        return self.random.choice([
            f"{name}.{column} = {number}",
            f"{name}.{column} > {number}",
            f"{name}.{column} IN ({number}, {number + 3})",
            f"{name}.{self.random.choice('ab')} IS NULL",
            f"{name}.s < 'k{number}'",
            f"{name}.a + {name}.b = {number}",
            "true",
        ])  # fmt: skip

    def body(self) -> str:
        columns = "i AS a, j AS b, s, id AS v"
        rows = self.random.choice([
            f"SELECT {columns} FROM x",
            f"SELECT {columns} FROM y",
            f"SELECT {columns} FROM x UNION ALL SELECT {columns} FROM y",
            "SELECT x.i AS a, y.j AS b, y.s, x.id AS v FROM x JOIN y ON x.id = y.id",
        ])  # fmt: skip
        rows = f"FROM ({rows}) r {self.random.choice(['', 'WHERE v > 90', 'WHERE b IS NOT NULL'])}"
        return self.random.choice([
            f"SELECT a, b, s, sum(v) AS x {rows} GROUP BY a, b, s",
            f"SELECT a, b, max(s) AS s, count(*) AS x {rows} GROUP BY ROLLUP (a, b)",
            f"SELECT a, b, s, sum(v) AS x {rows} GROUP BY CUBE (a, b, s)",
            f"SELECT DISTINCT a, b, s, v % 20 AS x {rows}",
            "SELECT x.i AS a, y.j AS b, y.s, x.id AS x FROM x JOIN y ON x.id = y.id WHERE x.i > 2",
            f"SELECT a, b, s, v AS x {rows} QUALIFY row_number() OVER (PARTITION BY a, s ORDER BY v, b) <= 2",
            f"SELECT a, min(b) AS b, s, max(v) AS x {rows} GROUP BY a, s HAVING count(*) > 3",
            f"SELECT a, b, s, sum(v) AS x {rows} GROUP BY a, b, s ORDER BY x DESC, a, b, s LIMIT {self.random.randrange(5, 80)}",
        ])  # fmt: skip

    def of_others(self, names: list[str]) -> str:
        name = self.random.choice(names)
        return self.random.choice([
            f"SELECT a, b, s, sum(x) AS x FROM {name} GROUP BY a, b, s",
            f"SELECT p.a, q.b, p.s, max(q.x) AS x FROM {name} p JOIN {name} q ON p.a = q.a AND p.s = q.s GROUP BY p.a, q.b, p.s",
            f"SELECT * FROM {name} WHERE x > 4",
        ])  # fmt: skip

    def places(self, names: list[str]) -> str:
        one, other = self.random.choice(names), self.random.choice(names)
        of_p, of_q, of_r = (self.predicate(name) for name in "pqr")
        return self.random.choice([
            f"SELECT p.a, p.b, q.s, p.x, q.x AS y FROM {one} p JOIN {other} q ON p.a = q.a AND p.s = q.s WHERE {of_p} AND {of_q}",
            f"SELECT p.a, q.x FROM {one} p LEFT JOIN {other} q ON p.a = q.a AND p.b = q.b AND {of_q} WHERE {of_p}",
            f"SELECT a, b, x FROM {one} p WHERE x > (SELECT avg(x) FROM {other} q WHERE {of_q})",
            f"SELECT a, b, x FROM {one} p WHERE x >= (SELECT max(x) FROM {other} q WHERE q.a = p.a)",
            f"SELECT s, x FROM {one} p WHERE EXISTS (SELECT 1 FROM {other} q WHERE q.s = p.s AND {of_q}) AND {of_p}",
            f"SELECT s, x FROM {one} p WHERE s NOT IN (SELECT s FROM {other} q WHERE {of_q} AND s IS NOT NULL)",
            f"SELECT a, x FROM {one} p WHERE {of_p} UNION ALL SELECT b, x FROM {other} q WHERE {of_q}",
            f"SELECT a, b FROM {one} p WHERE {of_p} EXCEPT SELECT a, b FROM {other} q WHERE {of_q}",
            f"SELECT p.a, count(*) AS n, sum(q.x) AS y FROM {one} p, {other} q WHERE p.a = q.a AND {of_p} GROUP BY p.a",
            f"SELECT (SELECT count(*) FROM {one} p WHERE {of_p}) AS n, (SELECT sum(x) FROM {other} q) AS y, (SELECT min(s) FROM {one} r WHERE {of_r}) AS z",
            f"SELECT p.s, p.x, lag(p.x) OVER (ORDER BY p.a, p.b, p.s, p.x) AS l FROM {one} p WHERE p.x IN (SELECT x FROM {other} q WHERE {of_q})",
            f"SELECT p.a, p.s FROM {one} p JOIN {one} q USING (a, b, s) JOIN {other} r ON r.s = q.s AND r.a = p.a WHERE {of_r}",
        ])  # fmt: skip
