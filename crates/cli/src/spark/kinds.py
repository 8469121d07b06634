"""Computes the types that Pellucid's engine gives to the expressions of a statement.

`dialect.py` needs them because many operators differ on Spark for some types only: `/` between whole
numbers, `avg` of a decimal, a decimal compared with a float. Types are computed on sqlglot's tree, from
the types of the tables' columns and of the functions in `functions.py`. Decimals have the precision and
scale of DataFusion.

An expression whose type cannot be determined is `UNKNOWN`, and is rejected where its type matters.
"""

import re
from itertools import repeat
from typing import NamedTuple

from sqlglot import exp

# Precision and scale to which DataFusion coerces a float next to a decimal, and digits of whole numbers.
OF_FLOAT = (30, 15)
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
MAX_DIGITS = 38


class Kind(NamedTuple):
    """A type family, with the digits of decimals and whole numbers."""

    name: str  # int, decimal, float, text, bool, date, timestamp, interval, null, other or unknown
    precision: int = 0
    scale: int = 0


UNKNOWN, OTHER, NULL = Kind("unknown"), Kind("other"), Kind("null")
TEXT, FLOAT, BOOL, DATE = Kind("text"), Kind("float"), Kind("bool"), Kind("date")
TIMESTAMP, INTERVAL, INT, BIGINT = Kind("timestamp"), Kind("interval"), Kind("int", 10), Kind("int", 20)
NUMBERS = ("int", "decimal", "float")
NAMED = {
    "string": TEXT, "float": FLOAT, "double": FLOAT, "boolean": BOOL, "date": DATE, "void": NULL,
    "timestamp": TIMESTAMP, "timestamp_ntz": TIMESTAMP, "integer": INT, **{name: Kind("int", n) for name, n in DIGITS.items()},
}  # fmt: skip


def of_spark(name):
    """Returns the kind of a type by its Spark name."""
    if found := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", name):
        return Kind("decimal", int(found[1]), int(found[2]))
    return NAMED.get(name, OTHER)


def of_cast(to):
    """Returns the kind of a CAST's result."""
    kinds = exp.DataType.Type
    if to.this in (kinds.DECIMAL, kinds.BIGDECIMAL):
        digits = [int(one.name) for one in to.expressions]
        return Kind("decimal", *(digits + [0])[:2]) if digits else Kind("decimal", 18, 3)
    if to.this in exp.DataType.TEXT_TYPES:
        return TEXT
    if to.this in (kinds.TIMESTAMP, kinds.TIMESTAMPNTZ):
        return TIMESTAMP
    return NAMED.get(to.this.value.lower(), OTHER)


def decimal(precision, scale):
    """Returns a decimal kind, limited to the maximum number of digits."""
    return Kind("decimal", min(precision, MAX_DIGITS), min(scale, MAX_DIGITS))


def as_decimal(kind):
    """Returns the decimal kind to which a number is coerced next to a decimal."""
    return Kind("decimal", *OF_FLOAT) if kind.name == "float" else Kind("decimal", kind.precision, kind.scale)


def common(kinds):
    """Returns the common kind to which values of these kinds are coerced."""
    known = [kind for kind in kinds if kind != NULL]
    if not known:
        return NULL
    names = {kind.name for kind in known}
    if len(names) == 1 and known[0].name not in ("decimal", "int"):
        return known[0]
    if names == {"int"}:
        return max(known)
    if names <= set(NUMBERS):
        if "decimal" not in names:
            return FLOAT
        made = [as_decimal(kind) for kind in known]
        scale = max(kind.scale for kind in made)
        return decimal(max(kind.precision - kind.scale for kind in made) + scale, scale)
    if names == {"date", "timestamp"}:
        return TIMESTAMP
    return UNKNOWN


def arithmetic(operator, a, b):
    """Returns the kind of `a operator b`."""
    if NULL in (a, b):
        a, b = (b, b) if a == NULL else (a, a)
    names = {a.name, b.name}
    if names <= set(NUMBERS):
        if "float" in names or operator is exp.Div:
            return FLOAT
        if names == {"int"}:
            return max(a, b)
        a, b = as_decimal(a), as_decimal(b)
        if operator is exp.Mul:
            return decimal(a.precision + b.precision + 1, a.scale + b.scale)
        scale, whole = max(a.scale, b.scale), max(a.precision - a.scale, b.precision - b.scale)
        return decimal(whole + scale + (operator is not exp.Mod), scale)
    if names == {"date"}:
        return BIGINT if operator is exp.Sub else UNKNOWN
    if "interval" in names and len(names) == 2:
        # A date plus an interval is a timestamp.
        other = b if a.name == "interval" else a
        return TIMESTAMP if other == DATE else other
    if a.name == "date" and b.name == "int":
        return DATE
    return INTERVAL if names <= {"date", "timestamp"} else UNKNOWN


def columns_of_alias(source):
    """Returns the column names of `AS t(a, b)`."""
    alias = source.args.get("alias")
    return [column.name for column in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []


def is_star(output):
    """Returns whether an output is `*` or `table.*`."""
    return isinstance(output.this if isinstance(output, exp.Column) else output, exp.Star)


def argument(node, name):
    """Returns an argument whose name has a trailing underscore in newer versions of sqlglot."""
    return node.args.get(name) or node.args.get(name + "_")


class Kinds:
    """The kinds of a tree's expressions, computed before the tree is changed."""

    def __init__(self, columns_of, returns):
        self.columns_of = columns_of  # of a table's name: [(column, kind)], or None
        self.returns = returns  # of a function's call: its kind
        self.known = {}

    def of(self, node):
        """Returns the kind of an expression."""
        if node is None:
            return UNKNOWN
        if id(node) not in self.known:
            self.known[id(node)] = UNKNOWN  # ends the recursion of a self-referential expression
            self.known[id(node)] = self.found(node)
        return self.known[id(node)]

    def found(self, node):
        """Computes the kind by the node's class."""
        if isinstance(node, exp.Literal):
            if node.is_string:
                return TEXT
            return BIGINT if node.this.isdigit() else FLOAT
        if isinstance(node, exp.Null):
            return NULL
        if isinstance(node, exp.Column):
            return self.of_column(node)
        if isinstance(node, (exp.Cast, exp.TryCast)):
            return of_cast(node.to)
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)):
            return arithmetic(type(node), self.of(node.left), self.of(node.right))
        if isinstance(node, (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift)):
            return BIGINT
        if isinstance(node, exp.DPipe):
            return TEXT
        if isinstance(node, exp.Interval):
            return INTERVAL
        if isinstance(node, exp.Case):
            return common([self.of(one) for one in [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default") or exp.Null()]])
        if isinstance(node, (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)):
            return BOOL
        if isinstance(node, exp.Anonymous):
            return self.returns(node, self)
        if isinstance(node, (exp.Subquery, exp.Query)):
            outputs = self.outputs(node)
            return outputs[0][1] if outputs else UNKNOWN
        if isinstance(node, (exp.Paren, exp.Alias, exp.Neg, exp.Window, exp.Filter, exp.IgnoreNulls, exp.Ordered, exp.WithinGroup)):
            return self.of(node.this)
        if isinstance(node, exp.Distinct) and len(node.expressions) == 1:
            return self.of(node.expressions[0])
        return OTHER

    def of_column(self, column):
        """Resolves a column in the sources of the enclosing queries, or to an output with its name."""
        query, below = column.find_ancestor(exp.Select), column
        while query is not None:
            for alias, columns in self.sources(query):
                if columns is not None and column.table.lower() in ("", alias):
                    for name, kind in columns():
                        if name.lower() == column.name.lower():
                            return kind
            if not column.table:
                for output in query.expressions:
                    if isinstance(output, exp.Alias) and output.alias.lower() == column.name.lower():
                        return self.of(output)
            below = query
            query = below.find_ancestor(exp.Select)
        return UNKNOWN

    def sources(self, query):
        """Yields the name of each source of a SELECT, with a function that returns its columns."""
        first = argument(query, "from")
        found = [first.this] if first else []
        for one in [*found, *(join.this for join in query.args.get("joins") or [])]:
            yield one.alias_or_name.lower(), lambda one=one: self.columns_of_source(one)
            for join in one.args.get("joins") or []:
                yield join.this.alias_or_name.lower(), lambda one=join.this: self.columns_of_source(one)

    def columns_of_source(self, source):
        """Returns the columns of a table, a query or VALUES, with their kinds."""
        if isinstance(source, exp.Table):
            columns = self.of_common_table(source) if isinstance(source.this, exp.Identifier) else None
            columns = columns if columns is not None else self.columns_of(source.name) or []
        else:
            columns = self.outputs(source)
        names = columns_of_alias(source)
        return [(names[i] if i < len(names) else name, kind) for i, (name, kind) in enumerate(columns)]

    def of_common_table(self, table):
        """Returns the columns of a common table expression; None if no enclosing WITH defines the name."""
        above = table
        while (above := above.parent) is not None:
            for one in (argument(above, "with") or exp.With()).expressions:
                if one.alias.lower() == table.name.lower() and one is not table.find_ancestor(exp.CTE):
                    names = columns_of_alias(one)
                    outputs = self.outputs(one.this)
                    return [(names[i] if i < len(names) else name, kind) for i, (name, kind) in enumerate(outputs)]
        return None

    def outputs(self, query):
        """Returns the output columns of a query, with their kinds."""
        if isinstance(query, exp.Subquery):
            return self.outputs(query.this)
        if isinstance(query, exp.SetOperation):
            sides = self.outputs(query.left), self.outputs(query.right)
            return [(name, common([kind, other])) for (name, kind), (_, other) in zip(*sides)]
        if isinstance(query, exp.Values):
            rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in query.expressions]
            return [(f"column{i + 1}", common([self.of(one) for one in column])) for i, column in enumerate(zip(*rows))]
        found = []
        for output in query.expressions if isinstance(query, exp.Select) else []:
            if is_star(output):
                found += [(name, kind) for _, name, kind in self.columns_of_star(query, output)]
            else:
                found.append((output.alias_or_name, self.of(output)))
        return found

    def columns_of_star(self, query, output):
        """Returns the table, name and kind of each column of `*` or `table.*`; a column of USING or NATURAL has no table."""
        star, table = (output.this, output.table.lower()) if isinstance(output, exp.Column) else (output, "")
        left_out = {one.name.lower() for one in argument(star, "except") or []}
        sources = list(self.joined_sources(query))
        merged = {key for _, _, keys in sources for key in keys}
        found = []
        for alias, columns, keys in sources:
            for name, kind in columns if table in ("", alias) else []:
                if name.lower() not in left_out and (table or name.lower() not in keys):
                    found.append((alias if table or name.lower() not in merged else "", name, kind))
        return found

    def joined_sources(self, query):
        """Yields the name, the columns and the keys of USING or NATURAL of each source that `*` stands for, keys in their order."""
        joins = query.args.get("joins") or []
        plain = not any(join.this.args.get("joins") for join in joins)
        before = []
        for (alias, columns_of), join in zip(self.sources(query), [None, *joins] if plain else repeat(None)):
            columns, keys = columns_of(), []
            if join is not None:
                keys = [key.name.lower() for key in join.args.get("using") or []]
                if join.method == "NATURAL":
                    keys = [name for name in before if name in {name.lower() for name, _ in columns}]
                if join.kind in ("SEMI", "ANTI"):
                    columns = []
            before += [name.lower() for name, _ in columns if name.lower() not in keys]
            yield alias, columns, keys
