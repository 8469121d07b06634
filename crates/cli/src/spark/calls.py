"""How the calls of functions are written for Spark, where its own function differs, or has another name.

Each writer takes a `Call` and gives an expression of Spark's; it refuses arguments for which there is none.
`functions.py` says which function has which.
"""

import re
from typing import Callable, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from kinds import BIGINT, Kind, decimal
from refused import Refused

# Constructs with a syntax of their own; every other call is read as one, by its name.
PARSED = {
    name: parse for name, parse in sqlglot.Parser.FUNCTION_PARSERS.items()
    if name in ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
}  # fmt: skip


# Expressions that need no parentheses.
WHOLE = (exp.Column, exp.Literal, exp.Func, exp.Paren, exp.Null, exp.Boolean, exp.Window, exp.Filter)


class Plain(Spark):
    """Spark's SQL with its functions left as they are: sqlglot would take those of other dialects for Spark's."""

    class Parser(Spark.Parser):
        FUNCTIONS = {}
        FUNCTION_PARSERS = PARSED
        NO_PAREN_FUNCTION_PARSERS = {"CASE": sqlglot.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


def written(template, **parts):
    """Spark's SQL with these expressions for the columns of their names."""
    tree = sqlglot.parse_one(template, read=Plain)

    def put(node):
        part = parts.get(node.name) if isinstance(node, exp.Column) and not node.table else None
        if part is None:
            return node
        return part.copy() if isinstance(part, WHOLE) else exp.Paren(this=part.copy())

    return tree.transform(put)


def to_date(of):
    return written("CAST(x AS DATE)", x=of.arguments[0])


def to_timestamp(of):
    """A time with an offset is brought to UTC, as the session's zone is."""
    return written("CAST(CAST(x AS TIMESTAMP_LTZ) AS TIMESTAMP_NTZ)", x=of.arguments[0])


def call(name, *arguments):
    """A call as Spark is to read it."""
    return exp.Anonymous(this=name, expressions=list(arguments))


class Call(NamedTuple):
    """A call that is to be written for Spark."""

    name: str
    arguments: list
    kinds: list
    kind: Kind  # of the result
    text: str  # as the user wrote it, for errors
    wrapped: Callable  # puts another aggregate in this one's place in FILTER and OVER
    over: bool  # with a window

    def refuse(self, why):
        """An error that names the call."""
        raise Refused(f"cannot run `{self.text}` on Spark: {why}")

    def literal(self, number):
        """An argument's value where it is written out, else None."""
        return constant(self.arguments[number]) if number < len(self.arguments) else None

    def word(self, number, what):
        """An argument that has to be a text written out."""
        found = self.arguments[number]
        if not (isinstance(found, exp.Literal) and found.is_string):
            self.refuse(f"the {what} must be written out there; use a text, not an expression")
        return found.this


def constant(node):
    """The number that an expression of literals has; None for any other. Floats are computed as floats."""
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return int(node.this) if node.this.isdigit() else float(node.this)
    if isinstance(node, exp.Var) and node.name[-1:] == "D":  # a float, as Spark has it
        return float(node.name[:-1])
    if isinstance(node, exp.Neg):
        inner = constant(node.this)
        return None if inner is None else -inner
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        a, b = constant(node.left), constant(node.right)
        if a is None or b is None:
            return None
        return a + b if isinstance(node, exp.Add) else a - b if isinstance(node, exp.Sub) else a * b
    return None


def as_text(call_of, node, kind):
    """A value as the text that it is here."""
    if kind.name == "text":
        return node
    if kind.name in ("int", "decimal", "bool", "date", "null"):
        return written("CAST(x AS STRING)", x=node)
    call_of.refuse(f"the text of {named(kind)} is another there; CAST it to DECIMAL, DATE or a whole number first")
    return None


def named(kind):
    """A kind in words."""
    words = {
        "int": "a whole number", "bool": "a boolean", "null": "NULL", "other": "a value of this type",
        "unknown": "a value of unknown type",
    }  # fmt: skip
    return words.get(kind.name) or f"a {kind.name}"


def concat(of):
    """Leaves out NULLs, as the engine does; Spark's own is NULL then."""
    parts = [written("coalesce(x, '')", x=as_text(of, node, kind)) for node, kind in zip(of.arguments, of.kinds)]
    return call("concat", *parts)


def concat_ws(of):
    return call("concat_ws", *(as_text(of, node, kind) for node, kind in zip(of.arguments, of.kinds)))


def rounded_up_or_down(of):
    """`ceil` and `floor` keep the type here; Spark's are whole numbers."""
    x, kind = of.arguments[0], of.kinds[0]
    if kind.name == "decimal":
        return written(f"CAST({of.name}(x) AS DECIMAL({kind.precision}, {kind.scale}))", x=x)
    if kind.name == "int":
        return written("CAST(x AS DOUBLE)", x=x)
    # From 2^52 on every float is whole; Spark's whole numbers end before the floats do.
    return written(f"IF(abs(x) < 4503599627370496, CAST({of.name}(x) AS DOUBLE), x)", x=x)


def cut(of):
    if of.kinds[0].name != "float" or len(of.arguments) > 1:
        of.refuse("only a float can be cut there, to a whole number; use CAST, or round")
    return written("IF(abs(x) < 4503599627370496, CAST(CAST(x AS BIGINT) AS DOUBLE), x)", x=of.arguments[0])


def rounded(of):
    """Floats are scaled, rounded and scaled back here; Spark rounds what they look like as decimals."""
    digits = of.literal(1) if len(of.arguments) > 1 else 0
    if not isinstance(digits, int):
        of.refuse("the number of digits must be written out there")
    if of.kinds[0].name != "float":
        return call("round", *of.arguments)
    if digits == 0:
        return written("round(x)", x=of.arguments[0])
    factor = f"CAST('{10.0**digits!r}' AS DOUBLE)"
    return written(f"round(x * {factor}) / {factor}", x=of.arguments[0])


def logarithm(of):
    """Minus infinity of zero; Spark's is NULL. Below, a NaN that sorts first here. `log` of one number is to base 10."""
    function, x = {"log": "log10"}.get(of.name, of.name), of.arguments[-1]
    if len(of.arguments) == 2:
        base = of.literal(0)
        if not base or base <= 1:
            of.refuse("the base must be a number above 1, written out")
        function = f"log({base!r}, x)"
    else:
        function = f"{function}(x)"
    if (value := constant(x)) is not None and value > 0:
        return written(function, x=x)
    template = (
        f"CASE WHEN x > 0 THEN {function} WHEN x = 0 THEN CAST('-Infinity' AS DOUBLE) "
        "WHEN x < 0 THEN raise_error('cannot take the logarithm of a negative number') END"
    )
    return written(template, x=x if of.kinds[-1].name == "float" else written("CAST(x AS DOUBLE)", x=x))


def is_nan(of):
    return written("CASE WHEN x IS NOT NULL THEN isnan(x) END", x=of.arguments[0])


def square_root(of):
    """Of a negative number an error here, NaN there."""
    return written("IF(x < 0, raise_error('cannot take the square root of a negative number'), sqrt(x))", x=of.arguments[0])


def power(of):
    if "decimal" in {kind.name for kind in of.kinds}:
        of.refuse("powers of decimals have other digits there; CAST to DOUBLE")
    return call("power", *of.arguments)


def side(of):
    """`left` and `right`: a negative number leaves out as many characters; on Spark all."""
    count = of.literal(1)
    if count is not None and count >= 0:
        return call(of.name, *of.arguments)
    template = f"IF(n >= 0, {of.name}(s, n), {of.name}(s, greatest(char_length(s) + n, 0)))"
    return written(template, s=of.arguments[0], n=of.arguments[1])


def substring(of):
    """Counts from before the first character where the start is below 1; Spark counts from the end."""
    s, start, *count = of.arguments
    at, length = of.literal(1), of.literal(2)
    if length is not None and length < 0:
        of.refuse("the length is negative")
    if at is not None and at >= 1 and (not count or length is not None):
        return call("substr", *of.arguments)
    if at is not None and not count:
        return s
    if at is not None and length is not None:
        return call("substr", s, exp.Literal.number(1), exp.Literal.number(max(at + length - 1, 0)))
    if not count:
        return written("CASE WHEN p >= 1 THEN substr(s, p) WHEN p < 1 THEN s END", s=s, p=start)
    template = (
        "CASE WHEN n < 0 THEN raise_error('a negative length of substr') WHEN p >= 1 THEN substr(s, p, n) "
        "WHEN p + n > 1 THEN substr(s, 1, p + n - 1) WHEN p + n <= 1 THEN substr(s, 1, 0) END"
    )
    return written(template, s=s, p=start, n=count[0])


def trimmed(of):
    where = {"ltrim": "LEADING", "rtrim": "TRAILING"}.get(of.name, "BOTH")
    if len(of.arguments) == 1:
        return call({"btrim": "trim"}.get(of.name, of.name), *of.arguments)
    return exp.Trim(this=of.arguments[0], expression=of.arguments[1], position=where)


def character(of):
    """Of any code point; Spark's own takes the lowest byte."""
    return written("decode(unhex(lpad(hex(x), 8, '0')), 'UTF-32')", x=of.arguments[0])


def hexadecimal(of):
    return written("lower(hex(x))", x=of.arguments[0])


PARTS = {
    "year": "year(x)", "quarter": "quarter(x)", "month": "month(x)", "week": "weekofyear(x)", "day": "day(x)",
    "doy": "dayofyear(x)", "dow": "dayofweek(x) - 1", "isodow": "weekday(x) + 1", "isoyear": "EXTRACT(YEAROFWEEK FROM x)",
    "hour": "hour(x)", "minute": "minute(x)", "second": "second(x)",
}  # fmt: skip


def date_part(of):
    unit = of.word(0, "part").lower()
    if unit not in PARTS:
        of.refuse(f"`{unit}` is none of {', '.join(PARTS)}")
    return exp.Paren(this=written(PARTS[unit], x=of.arguments[1])) if " " in PARTS[unit] else written(PARTS[unit], x=of.arguments[1])


def date_trunc(of):
    unit = of.word(0, "unit").lower()
    units = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
    if unit not in units:
        of.refuse(f"`{unit}` is none of {', '.join(units)}")
    return call("date_trunc", *of.arguments)


# Patterns with the same meaning in Rust and Java: no letter classes, special groups or look-around.
SAME_PATTERN = re.compile(
    r"(?:[^\\\[\](){}*+?|$&^.]|\\[.*+?()|{}^$\[\]\\/-]|\[\^?[^\\\[\]&^]+\]|\((?!\?)|\)|[*+?](?![*+?])"
    r"|\{\d+(?:,\d*)?\}(?![*+?{])|\||\.|\^)*"
)


def pattern(of, number, flags=None):
    """A pattern as Java is to read it."""
    text = of.word(number, "pattern")
    if not SAME_PATTERN.fullmatch(text):
        of.refuse(
            "this pattern may match otherwise there; use literals, `.`, classes such as [a-z], groups, `|`, `^`, `*`, "
            "`+`, `?`, {n}"
        )
    known = of.word(flags, "flags") if flags is not None and flags < len(of.arguments) else ""
    if set(known) - set("gi"):
        of.refuse("of the flags, `g` and `i` are the same there")
    # UNIX lines: a dot does not match a newline, and matches everything else.
    return f"(?d{'iu' if 'i' in known else ''})", text, known


def regexp_like(of):
    mode, text, _ = pattern(of, 1, 2)
    return exp.Paren(this=exp.RegexpLike(this=of.arguments[0], expression=exp.Literal.string(mode + text)))


def regexp_replace(of):
    """The first match only, unless `g` is among the flags; Spark replaces all."""
    mode, text, flags = pattern(of, 1, 3)
    replacement = of.word(2, "replacement")
    if "\\" in replacement or "$" in replacement:
        of.refuse("`\\` and `$` in the replacement mean something else there")
    if re.search(text, ""):
        of.refuse("the pattern matches the empty text, which is replaced elsewhere there")
    if "g" not in flags:
        if "(" in text or "^" in text:
            of.refuse("without the flag `g`, a pattern with groups or `^` cannot be translated")
        text, replacement = rf"\A((?s:.*?))(?:{text})", "$1" + replacement
    return call("regexp_replace", of.arguments[0], exp.Literal.string(mode + text), exp.Literal.string(replacement))


def truncated_quotient(a, b, of_a, of_b):
    """`a / b` for decimals, cut after the digits that the engine keeps; Spark rounds, after others.

    What is divided is made a multiple of the divisor first, so that nothing is left to round.
    """
    result, digits = of_a.scale + 4, max(of_a.scale, of_b.scale)
    whole = 36 - result - digits
    if whole < 6:
        return None
    precision = min(38, max(of_a.precision - of_a.scale, 1) + of_b.scale + result)
    scaled = f"CAST(a AS DECIMAL({whole + of_a.scale}, {of_a.scale})) * {10**result}BD"
    quotient = f"CAST(({scaled} - ({scaled}) % d) / d AS DECIMAL({37 - result}, 0))"
    divisor = written(f"CAST(b AS DECIMAL({of_b.precision}, {of_b.scale}))", b=b)
    return written(f"CAST({quotient} * {10.0**-result:.{result}f}BD AS DECIMAL({precision}, {result}))", a=a, d=divisor)


def average(of):
    """Of decimals: cut here, rounded there."""
    kind = of.kinds[0]
    if kind.name != "decimal":
        return of.wrapped("avg", of.arguments)
    if isinstance(of.arguments[0], exp.Distinct):
        of.refuse("averages of decimals are rounded there; CAST to DOUBLE")
    count = written("nullif(x, 0)", x=of.wrapped("count", of.arguments))
    total = decimal(kind.precision + 10, kind.scale)
    made = truncated_quotient(of.wrapped("sum", of.arguments), count, total, BIGINT)
    if made is None:
        of.refuse("its digits are too many there; CAST to a DECIMAL of fewer, or to DOUBLE")
    return written(f"CAST(x AS DECIMAL({of.kind.precision}, {of.kind.scale}))", x=made)


def array_agg(of):
    """Keeps NULLs, and is NULL of no rows; Spark's drops them, and is empty then."""
    if of.over or isinstance(of.arguments[0], exp.Distinct):
        of.refuse("with OVER or DISTINCT it drops NULLs there")
    rows = of.wrapped("array_agg", [call("named_struct", exp.Literal.string("v"), of.arguments[0])])
    return written("nullif(transform(x, r -> r.v), slice(transform(x, r -> r.v), 1, 0))", x=rows)


def string_agg(of):
    """Returns NULL for no values; neither engine guarantees an order."""
    if of.over or isinstance(of.arguments[0], exp.Distinct):
        of.refuse("OVER and DISTINCT are not the same there")
    texts = of.wrapped("array_agg", [of.arguments[0]])
    return written("CASE WHEN size(x) > 0 THEN array_join(x, d) END", x=texts, d=of.arguments[1])


def only_over(of):
    if not of.over:
        of.refuse("which row is the first or the last is not certain without OVER (… ORDER BY …)")
    return of.wrapped(of.name, of.arguments)


def median(of):
    if of.kinds[0].name == "decimal":
        of.refuse("it has other digits there; CAST to DOUBLE")
    return of.wrapped("median", of.arguments)


def counted(of):
    if len(of.arguments) > 1:
        of.refuse("it takes one argument")
    return of.wrapped("count", of.arguments)
