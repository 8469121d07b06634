"""Generates SELECTs on which DuckDB and DataFusion agree, from a seed.

Each query is made of typed expressions over two small tables, so that nearly all are valid. Constructs with different
semantics are left out: integer division, date arithmetic, the order of rows that tie, frames by rows over ties, and
products of floats. The last make a -0.0, which differs from 0.0 in DataFusion only.
"""

import random
from collections.abc import Callable
from typing import Any

TYPES = ("int", "text", "date", "decimal", "float", "bool")
COLUMNS = {"i": "int", "j": "int", "s": "text", "d": "date", "m": "decimal", "f": "float", "b": "bool"}
TABLES = {
    "x": """SELECT n::BIGINT AS id, (CASE WHEN n % 7 <> 3 THEN n * 31 % 12 END)::BIGINT AS i,
        (n * 17 % 40 - 20)::BIGINT AS j, CASE WHEN n % 5 <> 1 THEN 'k' || (n * 13 % 9) END AS s,
        CASE WHEN n % 11 <> 4 THEN DATE '2021-03-01' + (n * 7 % 30)::INT END AS d,
        CASE WHEN n % 6 <> 2 THEN ((n * 53 % 400) / 100 - 1)::DECIMAL(9, 2) END AS m,
        CASE WHEN n % 8 <> 5 THEN (n * 29 % 32) / 4 - 2 END::DOUBLE AS f,
        CASE WHEN n % 9 <> 7 THEN n % 2 = 0 END AS b FROM range(400) r(n)""",
    "y": """SELECT n::BIGINT AS id, (CASE WHEN n % 5 <> 2 THEN n * 37 % 15 END)::BIGINT AS i,
        (n * 11 % 30 - 10)::BIGINT AS j, CASE WHEN n % 4 <> 1 THEN 'k' || (n * 5 % 11) END AS s,
        CASE WHEN n % 6 <> 3 THEN DATE '2021-03-10' + (n * 3 % 30)::INT END AS d,
        CASE WHEN n % 7 <> 2 THEN ((n * 47 % 300) / 100)::DECIMAL(9, 2) END AS m,
        CASE WHEN n % 3 <> 1 THEN (n * 23 % 24) / 4 END::DOUBLE AS f,
        CASE WHEN n % 10 <> 6 THEN n % 3 = 0 END AS b FROM range(150) r(n)""",
}
LITERALS = {
    "int": ["0", "1", "3", "-2", "7"],
    "text": ["'k1'", "'k3'", "''", "'zz'", "'k'"],
    "date": ["DATE '2021-03-05'", "DATE '2021-03-20'"],
    "decimal": ["CAST(0.50 AS DECIMAL(9, 2))", "CAST(-1.25 AS DECIMAL(9, 2))"],
    "float": ["CAST(0.5 AS DOUBLE)", "CAST(-1.75 AS DOUBLE)"],
    "bool": ["true", "false"],
}


class Maker:
    """Generates one query from one seed."""

    # Subclasses may add to each.
    columns, tables, literals = COLUMNS, TABLES, LITERALS

    def __init__(self, seed: str):
        self.random = random.Random(seed)
        self.names = 0

    def pick(self, *choices: Any) -> Any:
        """Picks one of the choices, and calls it if it is a function."""
        choice = self.random.choice(choices)
        return choice() if callable(choice) else choice

    def chance(self, share: float) -> bool:
        """Returns true with this probability."""
        return self.random.random() < share

    def name(self) -> str:
        """Returns a new name."""
        self.names += 1
        return f"n{self.names}"

    def value(self, type_name: str, scope: list[str], depth: int = 2) -> str:
        """Returns an expression of a type over the tables in scope."""
        if depth == 0 or self.chance(0.35):
            if not scope or self.chance(0.15):
                return self.pick(*self.literals[type_name])
            table = self.pick(*scope)
            return f"{table}.{self.pick(*[c for c, t in self.columns.items() if t == type_name])}"

        def of(t: str = type_name) -> str:
            return self.value(t, scope, depth - 1)

        common = [
            lambda: f"CASE WHEN {of('bool')} THEN {of()} ELSE {of()} END",
            lambda: f"coalesce({of()}, {self.pick(*self.literals[type_name])})",
            lambda: f"nullif({of()}, {of()})",
        ]
        return self.pick(*common, *(lambda f=f: f(of) for f in self.operations(type_name)))

    def operations(self, type_name: str) -> list:
        """Returns functions that build an expression of a type from others."""
        return OPERATIONS[type_name](self)

    def condition(self, scope: list[str]) -> str:
        """Returns a condition, sometimes with a subquery."""
        if self.chance(0.8):
            return self.value("bool", scope)
        source, names = self.subquery_source()
        kind = self.pick("int", "text", "date")
        column = self.pick(*[f"{name}.{c}" for name in names for c, t in self.columns.items() if t == kind])
        outer = self.value(kind, scope, 1)
        # DataFusion 55 treats a constant NOT IN (…) as certain even if the list has a NULL.
        plain = f"{self.pick(*scope)}.{self.pick(*[c for c, t in self.columns.items() if t == kind])}"
        where = self.value("bool", names, 1)
        return self.pick(
            f"{plain} NOT IN (SELECT {column} FROM {source} WHERE {where})",
            f"{outer} IN (SELECT {column} FROM {source} WHERE {where})",
            f"{self.pick('', 'NOT ')}EXISTS (SELECT 1 FROM {source} WHERE {column} = {outer} AND {where})",
            f"{self.value('int', scope, 1)} > (SELECT {self.pick('max', 'min', 'count')}({column}) "
            f"{'' if kind == 'int' else '+ 0'} FROM {source} WHERE {where})"
            if kind == "int"
            else f"{outer} = (SELECT max({column}) FROM {source} WHERE {where})",
        )

    def subquery_source(self) -> tuple[str, list[str]]:
        """Returns the FROM clause of a subquery, of a table or an outer join, and the names that it brings into scope."""
        first = self.name()
        text = f"{self.pick(*self.tables)} {first}"
        if self.chance(0.6):
            return text, [first]
        second, key = self.name(), self.pick("i", "j", "s", "d", "m")
        kind = self.pick("LEFT", "RIGHT", "FULL")
        return f"{text} {kind} JOIN {self.pick(*self.tables)} {second} ON {first}.{key} = {second}.{key}", [first, second]

    def source(self) -> tuple[str, list[str]]:
        """Returns a FROM clause and the names that it brings into scope."""

        def one() -> tuple[str, str]:
            alias, table = self.name(), self.pick(*self.tables)
            if self.chance(0.25):
                return f"(SELECT * FROM {table} WHERE {self.value('bool', [table], 1)}) {alias}", alias
            return f"{table} {alias}", alias

        text, first = one()
        scope = [first]
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            more, alias = one()
            kind = self.pick("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
            # A key matches some thirty rows; a second join on one key would give a million.
            keys = self.random.sample(["i", "j", "s", "d", "m"], self.pick(1, 1, 2) if len(scope) == 1 else 2)
            left = self.pick(*scope)
            on = " AND ".join(f"{left}.{key} = {alias}.{key}" for key in keys)
            if self.chance(0.3):
                on += f" AND {self.value('bool', [left, alias], 1)}"
            text += f" {kind} {more} ON {on}"
            scope.append(alias)
        return text, scope

    def aggregate(self, scope: list[str]) -> str:
        """Returns an aggregate of a type whose sums are exact in both engines."""
        of = self.pick("int", "text", "date", "decimal", "float", "bool")
        inner = self.value(of, scope, 1)
        number = self.value(self.pick("int", "decimal", "float"), scope, 1)
        call = self.pick(
            "count(*)",
            f"count({inner})",
            f"count(DISTINCT {inner})",
            f"sum({number})",
            f"avg({self.value('int', scope, 1)})",
            f"min({inner})" if of != "bool" else f"bool_or({inner})",
            f"max({inner})" if of != "bool" else f"bool_and({inner})",
        )
        filtered = f" FILTER (WHERE {self.value('bool', scope, 1)})" if self.chance(0.2) else ""
        return call + filtered

    def window(self, scope: list[str]) -> str:
        """Returns a window function whose result does not depend on the order of ties."""
        by = self.value(self.pick("int", "text"), scope, 1)
        order = self.value(self.pick("int", "date", "text"), scope, 1)
        over = f"OVER (PARTITION BY {by} ORDER BY {order} {self.pick('ASC', 'DESC')} NULLS FIRST)"
        number = self.value("int", scope, 1)
        return self.pick(f"rank() {over}", f"dense_rank() {over}", f"sum({number}) {over}", f"count(*) {over}",
                         f"max({number}) {over}", f"min({number}) OVER (PARTITION BY {by})")  # fmt: skip

    def select(self, types: list[str] | None = None) -> str:
        """Returns a SELECT without ORDER BY; of these types, if given."""
        source, scope = self.source()
        where = f" WHERE {self.condition(scope)}" if self.chance(0.6) else ""
        if types is None and self.chance(0.45):
            keys = [self.value(self.pick("int", "text", "date", "bool"), scope, 1) for _ in range(self.pick(0, 1, 1, 2))]
            outputs = keys + [self.aggregate(scope) for _ in range(self.pick(1, 2, 3))]
            group = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
            having = f" HAVING count(*) > {self.pick('0', '1', '3')}" if keys and self.chance(0.3) else ""
            return f"SELECT {self.named(outputs)} FROM {source}{where}{group}{having}"
        wanted = types or [self.pick(*TYPES) for _ in range(self.pick(1, 2, 3))]
        outputs = [self.value(t, scope) for t in wanted]
        if types is None and self.chance(0.25):
            outputs.append(self.window(scope))
        distinct = "DISTINCT " if self.chance(0.25) else ""
        return f"SELECT {distinct}{self.named(outputs)} FROM {source}{where}"

    @staticmethod
    def named(outputs: list[str]) -> str:
        """Returns a select list with column names."""
        return ", ".join(f"{output} AS c{i}" for i, output in enumerate(outputs))

    def ordered(self, column: str) -> str:
        """Returns a key of ORDER BY."""
        return f"{column} {self.pick('ASC', 'DESC')} NULLS {self.pick('FIRST', 'LAST')}"

    def first_ranks(self, text: str, columns: list[str]) -> str:
        """Returns the first rows of a query by rank, in all or for each value of a column."""
        by = self.pick("", f"PARTITION BY {self.pick(*columns)} ")
        keys = ", ".join(map(self.ordered, self.random.sample(columns, self.pick(1, len(columns)))))
        ranked = f"SELECT *, {self.pick('rank', 'dense_rank')}() OVER ({by}ORDER BY {keys}) AS r FROM ({text}) p"
        return f"SELECT * FROM ({ranked}) o WHERE {self.pick('r <= 1', 'r < 4', '10 >= r', 'r = 2', 'r BETWEEN 2 AND 5', 'r > 3')}"

    def query(self) -> str:
        """Returns a complete query."""
        if self.chance(0.15):
            types = [self.pick("int", "text", "date") for _ in range(self.pick(1, 2))]
            operator = self.pick("UNION", "UNION ALL", "INTERSECT", "EXCEPT")
            text = f"{self.select(types)} {operator} {self.select(types)}"
        else:
            text = self.select()
        if self.chance(0.15):
            text = f"WITH w AS ({text}) SELECT * FROM w"
        columns = [f"c{i}" for i in range(text.count(" AS c")) if f" AS c{i}" in text]
        if self.chance(0.12):
            text = self.first_ranks(text, columns)
        if self.chance(0.3):
            # Ordered by all outputs, so that LIMIT keeps determined rows.
            text = f"SELECT * FROM ({text}) q ORDER BY {', '.join(map(self.ordered, columns))}"
            if self.chance(0.6):
                text += f" LIMIT {self.pick('1', '5', '20')}" + self.pick("", "", " OFFSET 3")
        return text


def _operations_on_bool(maker: Maker) -> list[Callable[..., str]]:
    """Returns functions that build conditions."""
    kinds = ["int", "text", "date", "decimal", "float"]

    def compared(of: Callable[..., str]) -> str:
        kind = maker.pick(*kinds)
        return f"{of(kind)} {maker.pick('=', '<>', '<', '<=', '>', '>=', 'IS DISTINCT FROM')} {of(kind)}"

    return [
        lambda of: f"({compared(of)})",
        lambda of: f"({compared(of)})",
        lambda of: f"({of('bool')} AND {of('bool')})",
        lambda of: f"({of('bool')} OR {of('bool')})",
        lambda of: f"(NOT {of('bool')})",
        lambda of: f"({of(maker.pick(*kinds))} IS {maker.pick('', 'NOT ')}NULL)",
        lambda of: f"({of('int')} BETWEEN {of('int')} AND {of('int')})",
        lambda of: f"({of('int')} {maker.pick('IN', 'NOT IN')} (1, 3, {of('int')}))",
        lambda of: f"({of('text')} {maker.pick('LIKE', 'NOT LIKE')} {maker.pick(repr('k%'), repr('%1'), repr('k_'))})",
    ]


OPERATIONS: dict[str, Callable[[Maker], list[Callable[..., str]]]] = {
    "int": lambda maker: [
        lambda of: f"({of()} {maker.pick('+', '-', '*')} {of()})",
        lambda of: f"({of()} % {maker.pick('3', '7')})",
        lambda of: f"abs({of()})",
        lambda of: f"CAST(length({of('text')}) AS BIGINT)",
        lambda of: f"CAST({of('bool')} AS BIGINT)",
    ],
    "text": lambda maker: [
        lambda of: f"({of()} || {of()})",
        lambda of: f"{maker.pick('upper', 'lower', 'trim', 'reverse')}({of()})",
        lambda of: f"substr({of()}, {maker.pick('1', '2')}, {maker.pick('1', '3')})",
        lambda of: f"CAST({of('int')} AS VARCHAR)",
    ],
    "date": lambda maker: [lambda of: f"greatest({of()}, {of()})"],
    "decimal": lambda maker: [lambda of: f"({of()} {maker.pick('+', '-')} {of()})", lambda of: f"(-{of()})"],
    "float": lambda maker: [lambda of: f"({of()} {maker.pick('+', '-')} {of()})", lambda of: f"abs({of()})"],
    "bool": _operations_on_bool,
}  # fmt: skip
