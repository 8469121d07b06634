"""Translates Pellucid's SQL to Spark's, or rejects it.

sqlglot parses a statement and writes Spark's SQL. In between, `adapted` visits every node of the tree. It
rejects constructs and functions that are not known to have the same meaning, and rewrites those that differ
for some types (`functions.py` lists the functions, `calls.py` rewrites them, `kinds.py` computes the types).
sqlglot's own translations of functions are not used, because many of them assume other values for unusual arguments.

A statement that has the same meaning in Spark runs unchanged.
"""

import logging
import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError, UnsupportedError

import functions
from calls import PARSED, TEXTS, Call, Plain, as_usual, call, constant, named, read, written
from functions import AGGREGATES, FUNCTIONS, SCALARS
from kinds import FLOAT, NUMBERS, OF_FLOAT, TIMESTAMP, Kinds, as_decimal, common, is_star, of_spark
from refused import Refused, mark
from statements import check_numbers, query_of

# sqlglot also raises an error for everything that it logs.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

# The nodes that have the same meaning in both dialects, or are handled below; others are rejected.
SUPPORTED = set(
    "Select From Where Group Having Order Ordered Limit Offset With CTE Subquery Table TableAlias Column Identifier Star "
    "Alias Literal Null Boolean Paren And Or Not EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is In Between Like ILike Case "
    "If Cast TryCast DataType DataTypeParam Interval Var Window WindowSpec Filter Exists Tuple Values Distinct Union "
    "Intersect Except Join Add Sub Mul Div Mod Neg BitwiseAnd BitwiseOr BitwiseLeftShift BitwiseRightShift DPipe "
    "Anonymous IgnoreNulls Rollup Cube GroupingSets Array Bracket RegexpLike Escape".split()
)  # fmt: skip
# Parts of these nodes that Spark has not, or that sqlglot would drop.
UNSUPPORTED = {
    "Star": ("replace", "rename"), "Union": ("by_name",), "Except": ("by_name",), "Intersect": ("by_name",),
    "Between": ("symmetric",),
}  # fmt: skip
# The parents of lists of expressions that are not rows to compare.
ROWS = (exp.Values, exp.Group, exp.GroupingSets, exp.Rollup, exp.Cube)
WHOLE_NUMBER = re.compile(r"\s*[+-]?\d+\s*")
EXACT = Context(prec=76)
# An escape character that no pattern has.
NO_ESCAPE = "\x01"
COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
WRAPPERS = (exp.Filter, exp.Window, exp.IgnoreNulls)
CAST_TO = set("TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL BOOLEAN DATE TIMESTAMP TIMESTAMPNTZ".split())


class Pellucid(DuckDB):
    """Pellucid's dialect for sqlglot: DuckDB's, without its functions."""

    NULL_ORDERING = "nulls_are_last"
    TYPED_DIVISION = True
    SAFE_DIVISION = False
    INDEX_OFFSET = 0  # of the parser: `element` counts

    class Parser(DuckDB.Parser):
        FUNCTIONS = {}
        FUNCTION_PARSERS = PARSED
        NO_PAREN_FUNCTION_PARSERS = {"CASE": sqlglot.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        TYPE_CONVERTERS = {}


def place_of(error):
    """Formats the location and cause of a sqlglot parse error."""
    found = error.errors[0] if getattr(error, "errors", None) else {}
    if not found.get("line"):
        return str(error).strip().splitlines()[0]
    return f"line {found['line']}, column {found['col']}: {found['description']}, near `{found['highlight']}`"


def translated(text, columns_of, view_of, ours=True, line=1):
    """Returns a statement in Spark's SQL, and whether the original text has the same meaning in Spark.

    `columns_of` returns a table's columns as (name, Spark's type), or None. `view_of` returns the view of a path.
    `ours` tells whether the engine knows the statement, and `line` on which line of the script its first word is.
    """
    tokens = sqlglot.tokenize(text, read=Pellucid)
    tree = sqlglot.parse_one(text, read=Pellucid)
    line -= text.count("\n", 0, tokens[0].start)  # comments come before the first word
    try:
        check_numbers(tokens)
        query = query_of(tree, [token.text.upper() for token in tokens], ours)
    except Refused as error:
        raise Refused(f"{error}{mark(text, [token.start for token in tokens[:1]], line)}") from None
    if query is not None:
        replace_paths(query, view_of)
        Adapter(kinds_of(columns_of), text, line).run(query)
    try:
        made = tree.sql(dialect="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
        plain = (sqlglot.parse_one(one, read=Plain).sql(dialect="spark") for one in (text, made))
        return made, len(set(plain)) == 1
    except UnsupportedError as error:
        raise Refused(f"cannot translate this to Spark SQL: {str(error).splitlines()[0]}") from None
    except SqlglotError:
        return made, False  # the original text is not valid in Spark's dialect


def kinds_of(columns_of):
    """Returns the kinds of expressions over tables, whose columns have Spark's types."""

    def columns(name):
        found = columns_of(name)
        return found and [(column, of_spark(kind)) for column, kind in found]

    return Kinds(columns, functions.returned)


def replace_paths(query, view_of):
    """Replaces paths by views."""
    for node in list(query.find_all(exp.Table)):
        if isinstance(node.this, exp.Identifier) and not node.args.get("db") and node.this.quoted:
            if view := view_of(node.name):
                node.set("this", exp.to_identifier(view))


def name_columns(values, number):
    """Gives the columns of VALUES the engine's names: col0, col1, …"""
    alias = values.args.get("alias")
    if (alias and alias.args.get("columns")) or not values.find_ancestor(exp.From, exp.Join):
        return
    first = values.expressions[0]
    width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    name = alias.this if alias else exp.to_identifier(f"values_{number}")
    columns = [exp.to_identifier(f"col{i}") for i in range(width)]
    values.set("alias", exp.TableAlias(this=name, columns=columns))


def plain_decimal(node):
    """Returns the value of a number with a point and without an exponent, which a CAST reads as a decimal; None for others."""
    if isinstance(node, exp.Paren):
        return plain_decimal(node.this)
    if isinstance(node, exp.Neg):
        inner = plain_decimal(node.this)
        return None if inner is None else -inner
    plain = isinstance(node, exp.Literal) and not node.is_string and re.fullmatch(r"\d*\.\d*", node.this)
    return Decimal(node.this) if plain else None


def as_engine_decimal(value, digits, precision):
    """Converts a float to a decimal like the engine: scales it, and rounds half away from zero."""
    scaled = abs(value) * 10.0**digits
    if not math.isfinite(scaled) or scaled >= 10.0**precision:
        raise Refused(f"cannot run this on Spark: {value} does not fit DECIMAL({precision}, {digits})")
    whole = int(scaled) + (scaled - int(scaled) >= 0.5)
    text = f"{Decimal(whole).scaleb(-digits):f}"
    number = exp.Literal.number(text.rstrip("0").rstrip(".") if "." in text else text)
    return exp.Neg(this=number) if value < 0 else number


class Adapter:
    """Adapts one statement, visiting the children of each node before the node."""

    def __init__(self, kinds, text, line):
        self.kinds = kinds
        self.text, self.line = text, line  # for places in messages
        self.kept = []  # keeps removed nodes alive, so that Python does not reuse their ids

    def run(self, query):
        """Adapts the query in place."""
        for node in reversed(list(query.walk())):
            if (made := as_usual(node)) is not None:
                self.put(node, made)
        nodes = list(query.walk())
        texts = {id(node): node.sql(dialect=Pellucid) for node in nodes if isinstance(node, exp.Anonymous)}
        for node in nodes:
            self.placed(self.check, node)
            self.kinds.of(node)
        for number, values in enumerate(query.find_all(exp.Values)):
            name_columns(values, number)
        for select in query.find_all(exp.Select):
            self.name_stars(select)
        for node in reversed(nodes):
            made = self.placed(self.changed, node, texts)
            if made is not None and made is not node:
                self.kinds.known[id(made)] = self.kinds.known[id(node)]
                self.put(node, made)

    def placed(self, work, node, *given):
        """Does some work on a node, and adds the place of the node if it is refused."""
        try:
            return work(node, *given)
        except Refused as error:
            starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
            raise Refused(f"{error}{mark(self.text, starts, self.line)}") from None

    def put(self, node, made):
        """Replaces a node in the tree."""
        self.kept += [node, made]
        if node.parent is not None:
            node.replace(made)

    def name_stars(self, query):
        """Names the columns of `*` where Spark would move those of USING and NATURAL to the front."""
        orders = [keys for _, _, keys in self.kinds.joined_sources(query) if keys]
        for output in [one for one in query.expressions if orders and is_star(one)]:
            columns = self.kinds.columns_of_star(query, output)
            keys = [name for _, name, _ in columns if any(name.lower() in order for order in orders)]
            first = [name for _, name, _ in columns[: len(keys)]]
            # Spark reports tables without known columns as missing.
            if columns and (any(order != [key.lower() for key in keys] for order in orders) or first != keys):
                self.kept.append(output)
                output.replace([exp.column(name, table=table or None, quoted=True) for table, name, _ in columns])

    def refuse(self, node, why):
        """Raises an error that names the construct."""
        raise Refused(f"cannot run `{node.sql(dialect=Pellucid) or type(node).__name__.upper()}` on Spark: {why}")

    def check(self, node):
        """Rejects a node that is not known to have the same meaning."""
        name = type(node).__name__
        if name not in SUPPORTED:
            self.refuse(node, "it was not checked to give the same results")
        if part := next((part for part in UNSUPPORTED.get(name, ()) if node.args.get(part)), None):
            self.refuse(node, f"{part.strip('_').upper().replace('_', ' ')} was not checked to give the same results")
        if isinstance(node, exp.With) and node.args.get("recursive"):
            self.refuse(node, "WITH RECURSIVE was not checked to give the same results")
        if isinstance(node, exp.Distinct) and node.args.get("on"):
            self.refuse(node, "Spark may keep different rows; use row_number()")
        if isinstance(node, exp.Join) and node.method in ("ASOF", "POSITIONAL"):
            # Spark reads the word as the alias of the table before it, and joins all rows that match.
            self.refuse(node, f"Spark has no {node.method} JOIN; join the rows with row_number()")
        if isinstance(node, exp.If) and not isinstance(node.parent, exp.Case):
            self.refuse(node, "`if` was not checked to give the same results; use CASE")
        if isinstance(node, exp.In) and node.args.get("field"):
            self.refuse(node, "Spark has no IN for lists; use array_contains or EXISTS")
        if isinstance(node, exp.Anonymous) and isinstance(node.parent, exp.Table):
            self.refuse(node.parent, "table functions were not checked to give the same results")
        if isinstance(node, exp.Anonymous) and node.name.lower() not in FUNCTIONS:
            self.refuse(node, f"`{node.name}` was not checked to give the same results (docs/spark.md lists the supported functions)")
        if isinstance(node, exp.Anonymous) and any(isinstance(one, (exp.Order, exp.Ordered)) for one in node.expressions):
            self.refuse(node, "Spark SQL does not support ORDER BY within an aggregate")
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit() and int(node.this) > 2**63 - 1:
            self.refuse(node, "whole numbers beyond 2^63 have another type in Spark; CAST to DECIMAL or DOUBLE")
        if isinstance(node, exp.Anonymous) and any(isinstance(one, exp.IgnoreNulls) for one in node.expressions):
            self.refuse(node, "Spark takes IGNORE NULLS behind the parentheses only; move it there")
        if isinstance(node, exp.Tuple) and not isinstance(node.parent, ROWS):
            self.refuse(node, "rows with NULLs compare differently in Spark; compare the columns one by one")
        if isinstance(node, exp.Having):
            self.check_having(node)
        if isinstance(node, exp.Escape) and node.expression.name not in ("\\", NO_ESCAPE):
            self.refuse(node, "the only escape character of LIKE is a backslash")

    def check_having(self, node):
        """Rejects names of HAVING that mean a column here, and an alias in Spark."""
        query = node.parent
        aliases = {one.alias.lower() for one in query.expressions if isinstance(one, exp.Alias)}
        columns = {name.lower() for _, columns in self.kinds.sources(query) for name, _ in columns()}
        for column in node.find_all(exp.Column):
            if not column.table and column.name.lower() in aliases & columns:
                self.refuse(column, "in HAVING it is a column of the table here, and the alias in Spark; use another alias")

    def changed(self, node, texts):
        """Returns the replacement of a node; None if it stays."""
        if isinstance(node, exp.Literal):
            return self.literal(node)
        if isinstance(node, (exp.Anonymous, *WRAPPERS)):
            return self.call(node, texts)
        if isinstance(node, exp.Div):
            return self.division(node)
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Mod)):
            return self.arithmetic(node)
        if isinstance(node, (exp.BitwiseLeftShift, exp.BitwiseRightShift)):
            name = "shiftleft" if isinstance(node, exp.BitwiseLeftShift) else "shiftright"
            return written(f"{name}(CAST(a AS BIGINT), CAST(b AS INT))", a=node.left, b=node.right)
        if isinstance(node, exp.DPipe):
            return self.joined(node)
        if isinstance(node, COMPARED):
            self.coerce([node.left, node.right], node)
        if isinstance(node, exp.Between):
            self.coerce([node.this, node.args["low"], node.args["high"]], node)
        if isinstance(node, exp.In):
            query = node.args.get("query")
            self.coerce([node.this, *(node.expressions or ([query] if query else []))], node)
        if isinstance(node, exp.Case):
            branches = node.args["ifs"]
            self.coerce([one.args["true"] for one in branches] + [one for one in [node.args.get("default")] if one], node)
            if node.this:
                self.coerce([node.this, *(one.this for one in branches)], node)
            kinds = {self.kinds.of(one.args["true"]).name for one in branches} | {self.kinds.of(node.args.get("default") or exp.Null()).name}
            if "text" in kinds and kinds - {"text", "null", "unknown"}:
                self.refuse(node, "Spark converts a text next to another value; CAST one")
        if isinstance(node, exp.Bracket):
            return self.element(node)
        if isinstance(node, (exp.Like, exp.ILike)):
            for side in (node.this, node.expression):
                if not isinstance(side, exp.Escape) and self.kinds.of(side).name not in ("text", "null", "unknown"):
                    self.refuse(node, "only text can be compared with a pattern; CAST to VARCHAR")
        if isinstance(node, exp.ILike):
            pattern = node.expression.this if isinstance(node.expression, exp.Escape) else node.expression
            if not (isinstance(pattern, exp.Literal) and pattern.name.isascii()):
                self.refuse(node, "the pattern of ILIKE must be an ASCII literal; Spark folds the case of other letters differently")
        if isinstance(node, (exp.Like, exp.ILike)) and not isinstance(node.expression, exp.Escape):
            # In Spark, a backslash escapes unless another character does.
            if not isinstance(node.expression, exp.Literal) or "\\" in node.expression.name:
                node.set("expression", exp.Escape(this=node.expression, expression=exp.Literal.string(NO_ESCAPE)))
        if isinstance(node, exp.Interval) and not isinstance(node.parent, (exp.Add, exp.Sub, exp.WindowSpec)):
            self.refuse(node, "intervals differ in Spark; add them to a date or a timestamp")
        if isinstance(node, exp.SetOperation):
            self.check_set_operation(node)
        if isinstance(node, (exp.Cast, exp.TryCast)):
            return self.cast(node)
        return None

    def literal(self, node):
        """Marks a number with a decimal point as a float, since Spark would read it as a decimal."""
        around = node.parent
        while isinstance(around, (exp.Neg, exp.Paren)):
            around = around.parent
        if node.is_string or node.this.isdigit() or isinstance(around, (exp.Cast, exp.DataTypeParam)):
            return None
        return exp.Var(this=node.this + "D")

    def coerce(self, nodes, around):
        """Coerces values that are compared or combined to a common type like the engine."""
        kinds = [self.kinds.of(node) for node in nodes]
        names = {kind.name for kind in kinds}
        if not names <= {"unknown", "null", "text", "int", "float", "bool", "date", "timestamp", "decimal", "other"}:
            self.refuse(around, "intervals compare differently in Spark")
        if "text" in names and "decimal" in names:
            self.refuse(around, "Spark coerces a text and a decimal to another type; CAST one")
        if not {"decimal", "float"} <= names:
            return
        for node, kind in zip(nodes, kinds):
            if kind.name != "float":
                continue
            value = constant(node)
            if value is None:
                self.refuse(around, "a decimal and a float become a float in Spark, but a decimal in Pellucid; CAST one")
            digits, precision = OF_FLOAT[1], OF_FLOAT[0]
            made = as_engine_decimal(float(value), digits, precision)
            if isinstance(around, (exp.Case, exp.Anonymous)):
                made = exp.cast(made, f"DECIMAL({precision}, {digits})")
            self.kinds.known[id(made)] = as_decimal(kind)
            self.put(node, made)

    def check_set_operation(self, node):
        """Rejects outputs of set operations that Spark would coerce to other types."""
        sides = self.kinds.outputs(node.left), self.kinds.outputs(node.right)
        for (name, a), (_, b) in zip(*sides):
            if {a.name, b.name} == {"decimal", "float"} or {a.name, b.name} & {"text"} and {a.name, b.name} & {*NUMBERS, "date", "timestamp", "bool"}:
                self.refuse(node, f"`{name}` is {named(a)} on one side and {named(b)} on the other; CAST one")

    def arithmetic(self, node):
        """Adapts arithmetic with dates and intervals; numbers behave the same."""
        a, b = self.kinds.of(node.left), self.kinds.of(node.right)
        names = {a.name, b.name}
        if "text" in names:
            self.refuse(node, "a text is not a number; CAST it")
        if isinstance(node, exp.Sub) and a.name == b.name == "date":
            return call("datediff", node.left, node.right)
        if names <= {"date", "timestamp"} or names == {"interval"}:
            self.refuse(node, "intervals differ in Spark; subtract dates, or use extract")
        for side, other in ((node.left, b), (node.right, a)):
            if isinstance(side, exp.Interval):
                unit = side.args.get("unit")
                unit = unit.name.upper().rstrip("S") if unit else ""
                units = ("YEAR", "MONTH", "WEEK", "DAY") + (() if other.name == "date" else ("HOUR", "MINUTE", "SECOND"))
                if other.name not in ("date", "timestamp", "unknown") or unit not in units or not side.this.name.lstrip("-").isdigit():
                    self.refuse(node, f"only a whole number of {', '.join(units)} can be added to {named(other)}")
        around = node.parent
        while isinstance(around, exp.Paren):
            around = around.parent
        if names == {"date", "interval"} and not isinstance(around, (*COMPARED, exp.Between)):
            # Spark's result is a date; compared with another one, it is the same as midnight.
            date = node.left if a.name == "date" else node.right
            made = written("CAST(x AS TIMESTAMP_NTZ)", x=date)
            self.kinds.known[id(made)] = TIMESTAMP
            self.put(date, made)
        if isinstance(node, exp.Mod) and names <= {"int", "decimal", "null"} and not constant(node.right):
            # Spark raises an error for zero.
            return written("a % nullif(b, 0)", a=node.left, b=node.right)
        return None

    def division(self, node):
        """Converts both sides of `/` to DOUBLE like the engine; Spark's quotients of decimals are decimals."""
        names = {self.kinds.of(side).name for side in (node.left, node.right)}
        if "interval" in names:
            self.refuse(node, "intervals differ in Spark; divide before making the interval")
        for side in (node.left, node.right):
            if not ("float" in names and names <= set(NUMBERS)):
                made = exp.Cast(this=side.copy(), to=exp.DataType.build("DOUBLE"))
                self.kinds.known[id(made)] = FLOAT
                self.put(side, made)
        return None

    def element(self, node):
        """Translates `list[i]`, which counts from 1 and is NULL beyond the ends; Spark's counts from 0."""
        index = node.expressions[0]
        of_index, of_list = self.kinds.of(index).name, self.kinds.of(node.this).name
        if of_index == "text" and of_list != "text":
            return None  # a field of a struct, or a key of a map
        if of_list == "text" or of_index != "int":
            self.refuse(node, "Spark takes elements of lists only, by whole numbers; use substr for a text, or CAST the index")
        return call("try_element_at", node.this.copy(), exp.cast(index.copy(), "INT"))

    def joined(self, node):
        """Checks the operands of `||`, which is NULL in both engines if an operand is."""
        for side in (node.left, node.right):
            kind = self.kinds.of(side)
            if kind.name not in ("text", "int", "decimal", "bool", "date", "null", "unknown"):
                self.refuse(node, f"the text of {named(kind)} differs in Spark; CAST it to DECIMAL, DATE or a whole number first")
        return None

    def cast(self, node):
        """Rewrites or rejects casts that give other values or texts in Spark."""
        kind, to = self.kinds.of(node.this), node.to
        literal = isinstance(node.this, exp.Literal) and node.this.is_string
        if to.this in exp.DataType.TEXT_TYPES:
            if kind.name not in ("text", "int", "decimal", "bool", "date", "null", "unknown"):
                self.refuse(node, f"the text of {named(kind)} differs in Spark; CAST it to DECIMAL, DATE or a whole number first")
            to.set("expressions", None)  # the engine ignores the length
            return None
        if to.this.value not in CAST_TO:
            self.refuse(node, f"the type {to.sql(dialect=Pellucid)} was not checked to give the same results")
        if isinstance(node, exp.TryCast) and kind.name == "text" and to.this not in exp.DataType.INTEGER_TYPES:
            self.refuse(node, "Spark accepts more texts; TRY_CAST to a whole number, or use CAST")
        goal = self.kinds.of(node)
        if literal and goal.name == "int" and not WHOLE_NUMBER.fullmatch(node.this.name):
            self.refuse(node, "Spark reads only digits as a whole number; write the number without quotes")
        if goal.name == "int" and kind.name in ("float", "decimal"):
            return self.rounded(node, kind)
        if (kind.name == "timestamp" and goal.name in NUMBERS) or (kind.name in NUMBERS and goal.name in ("timestamp", "date")):
            self.refuse(node, "Spark counts times in other units; use extract")
        if goal.name in TEXTS and kind.name in ("text", "unknown", "other"):
            return read(node.this, goal.name, node.to.sql(dialect="spark"), lambda why: self.refuse(node, why))
        if goal.name == "decimal" and not to.expressions:
            to.set("expressions", [exp.DataTypeParam(this=exp.Literal.number(n)) for n in (goal.precision, goal.scale)])
        if goal.name == "decimal" and kind.name == "float" and not literal:
            return self.float_to_decimal(node, goal)
        value = constant(node.this)
        return exp.cast(self.of_number(value), to) if isinstance(value, float) and goal.name != "float" else None

    @staticmethod
    def of_number(value):
        """Writes a float for Spark."""
        number = exp.Var(this=f"{abs(value)!r}D")
        return exp.Neg(this=number) if value < 0 else number

    def rounded(self, node, kind):
        """Rounds to a whole number like the engine, floats half to even and decimals half away from zero; Spark truncates."""
        made = node.copy()
        if (number := plain_decimal(node.this)) is not None:
            made.set("this", written(f"round({number:f}BD, 0)"))
        elif kind.name == "decimal":
            made.set("this", written("round(x, 0)", x=node.this))
        else:
            value = constant(node.this)
            made.set("this", written("rint(x)", x=self.of_number(value) if isinstance(value, float) else node.this))
        return made

    def float_to_decimal(self, node, goal):
        """Scales and rounds the float like the engine; Spark would round its decimal representation."""
        if (number := plain_decimal(node.this)) is not None and abs(number) < 10 ** (goal.precision - goal.scale):
            made = number.quantize(Decimal(1).scaleb(-goal.scale), ROUND_HALF_UP, EXACT)
            return exp.cast(exp.Literal.number(f"{made:f}"), node.to)
        value = constant(node.this)
        if value is not None:
            number = as_engine_decimal(float(value), goal.scale, goal.precision)
            return exp.cast(number, node.to)
        if isinstance(node, exp.TryCast):
            self.refuse(node, "Spark rounds floats differently; use CAST")
        factor, limit = 10**goal.scale, 2**53
        template = (
            f"IF(abs(x * {factor}D) < {limit}D, CAST(CAST(round(x * {factor}D) AS DECIMAL(20, 0)) * {Decimal(1).scaleb(-goal.scale):f}BD "
            f"AS DECIMAL({goal.precision}, {goal.scale})), IF(x IS NULL, NULL, raise_error('cannot cast a float of more than 15 digits to a decimal')))"
        )
        return written(template, x=node.this)

    def call(self, node, texts):
        """Rewrites a call for Spark, with its FILTER and OVER."""
        if isinstance(node.parent, WRAPPERS) and node.parent.this is node:
            return None
        inner, over = node, False
        while isinstance(inner, WRAPPERS):
            over = over or isinstance(inner, exp.Window)
            inner = inner.this
        if not isinstance(inner, exp.Anonymous):
            return None
        name = inner.name.lower()
        function = FUNCTIONS[name]
        arguments = inner.expressions
        kinds = [self.kinds.of(one) for one in arguments]
        text = texts[id(inner)]
        if over and name in SCALARS or not over and name not in SCALARS and name not in AGGREGATES and function.write is None:
            raise Refused(f"cannot run `{text}` on Spark: a window function needs OVER, and other functions take none")
        if wrong := functions.misfit(function.parameters, kinds):
            raise Refused(f"cannot run `{text}` on Spark: {wrong}")
        if name in ("coalesce", "nvl", "nvl2", "ifnull", "nullif", "greatest", "least"):
            if common(kinds).name == "unknown" and "unknown" not in {kind.name for kind in kinds}:
                raise Refused(f"cannot run `{text}` on Spark: Spark coerces its arguments to another type; CAST them")
            self.coerce(arguments, inner)
        arguments = self.fitted(function, inner.expressions, kinds)

        def wrapped(new, given):
            made = call(new, *given)
            if inner is node:
                return made
            whole = node.copy()
            place = whole
            while isinstance(place, WRAPPERS):
                place = place.this
            place.replace(made)
            return whole

        if function.write is None or isinstance(function.write, str):
            return wrapped(function.write or name, arguments)
        of = Call(name, list(arguments), kinds, self.kinds.of(inner), text, wrapped, over)
        return function.write(of)

    @staticmethod
    def fitted(function, arguments, kinds):
        """Casts 64-bit arguments to 32 bits where Spark requires it."""
        letters = [letter for letter in function.parameters if letter.isalpha()]
        aggregate = function in AGGREGATES.values()

        def one(number, node):
            letter = letters[min(number, len(letters) - 1)] if letters else "a"
            wide = kinds[number].name == "int" and kinds[number].precision > 10 and constant(node) is None
            return exp.cast(node.copy(), "INT") if letter == "i" and wide and not aggregate else node.copy()

        return [one(number, node) for number, node in enumerate(arguments)]
