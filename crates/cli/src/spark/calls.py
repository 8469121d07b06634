"""Rewrites function calls for Spark, where its own function differs or has another name.

Each writer takes a `Call` and returns an expression for Spark. It rejects arguments that cannot be translated.
`functions.py` maps functions to writers.
"""

import re
from typing import Callable, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from kinds import BIGINT, Kind, decimal
from refused import Refused

# Constructs with special syntax; all other calls are parsed as plain calls.
PARSED = {
    name: parse for name, parse in sqlglot.Parser.FUNCTION_PARSERS.items()
    if name in ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
}  # fmt: skip


# Texts that both engines read as the same value, by the kind of the value.
_TIME = r"\s*\d{1,4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,6})?)?([+-]\d{2}:\d{2})?)?\s*"
TEXTS = {"date": _TIME, "timestamp": _TIME, "float": r"\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))\s*"}
# Expressions that need no parentheses.
WHOLE = (exp.Column, exp.Literal, exp.Func, exp.Paren, exp.Null, exp.Boolean, exp.Window, exp.Filter)


class Plain(Spark):
    """Spark's dialect with unmodified function calls, since sqlglot would replace those it knows."""

    class Parser(Spark.Parser):
        FUNCTIONS = {}
        FUNCTION_PARSERS = PARSED
        NO_PAREN_FUNCTION_PARSERS = {"CASE": sqlglot.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


def written(template, **parts):
    """Parses a template of Spark's SQL, replacing columns with the expressions of the same names."""
    tree = sqlglot.parse_one(template, read=Plain)

    def put(node):
        part = parts.get(node.name) if isinstance(node, exp.Column) and not node.table else None
        if part is None:
            return node
        return part.copy() if isinstance(part, WHOLE) else exp.Paren(this=part.copy())

    return tree.transform(put)


def read(text, goal, to, refuse):
    """Reads a text as a value, with an error for those that only Spark reads, such as the date `2024` and the number `1d`."""
    if isinstance(text, exp.Literal) and text.is_string:
        if not re.fullmatch(TEXTS[goal], text.this):
            refuse(f"Spark may read `{text.this}` as another value; write it as 2024-01-07, 2024-01-07 10:00:00 or 1.5")
        return written(f"CAST(x AS {to})", x=text)
    pattern = f"^({TEXTS[goal]})$".replace("\\", "\\\\")
    template = (
        f"CASE WHEN CAST(x AS STRING) RLIKE '{pattern}' THEN CAST(x AS {to}) "
        f"WHEN x IS NOT NULL THEN raise_error(concat('cannot cast this text to {to} on Spark: ', CAST(x AS STRING))) END"
    )
    return written(template, x=text)


def to_date(of):
    return read(of.arguments[0], "date", "DATE", of.refuse)


def to_timestamp(of):
    """Converts a time with an offset to UTC, the session's zone."""
    return written("CAST(CAST(x AS TIMESTAMP_LTZ) AS TIMESTAMP_NTZ)", x=of.arguments[0])


def call(name, *arguments):
    """Returns a call that is written to Spark unchanged."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def as_usual(node):
    """Converts a construct with special syntax, such as EXTRACT, to a usual one; None for other nodes."""
    if isinstance(node, exp.Extract):
        return call("date_part", exp.Literal.string(node.this.name.lower()), node.expression)
    if isinstance(node, exp.Substring):
        parts = [node.this, node.args.get("start") or exp.Literal.number(1), node.args.get("length")]
        return call("substr", *(part for part in parts if part is not None))
    if isinstance(node, exp.StrPosition) and not node.args.get("position"):
        return call("strpos", node.this, node.args["substr"])
    if isinstance(node, exp.Trim):
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get((node.args.get("position") or "").upper(), "btrim")
        return call(name, node.this, *([node.expression] if node.args.get("expression") else []))
    if isinstance(node, exp.RegexpLike):
        return call("regexp_full_match", node.this, node.expression)
    if isinstance(node, exp.Pow):
        return call("power", node.this, node.expression)
    if isinstance(node, exp.Fetch) and not any(
        (node.args.get("limit_options") or exp.LimitOptions()).args.get(one) for one in ("percent", "with_ties")
    ):
        return exp.Limit(expression=node.args.get("count") or exp.Literal.number(1))
    if isinstance(node, (exp.CurrentDate, exp.CurrentTimestamp)) and not node.this:
        return call("current_date" if isinstance(node, exp.CurrentDate) else "current_timestamp")
    return None


class Call(NamedTuple):
    """A call to rewrite for Spark."""

    name: str
    arguments: list
    kinds: list
    kind: Kind  # of the result
    text: str  # the user's SQL, for errors
    wrapped: Callable  # replaces the aggregate within FILTER and OVER
    over: bool  # has an OVER clause

    def refuse(self, why):
        """Raises an error that names the call."""
        raise Refused(f"cannot run `{self.text}` on Spark: {why}")

    def literal(self, number):
        """Returns the value of a numeric literal argument; None for an expression."""
        return constant(self.arguments[number]) if number < len(self.arguments) else None

    def text_literal(self, number, name):
        """Returns the value of an argument that must be a text literal."""
        found = self.arguments[number]
        if not (isinstance(found, exp.Literal) and found.is_string):
            self.refuse(f"the {name} must be a text literal")
        return found.this


def constant(node):
    """Evaluates an expression of numeric literals; None for others. Floats are computed as floats."""
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return int(node.this) if node.this.isdigit() else float(node.this)
    if isinstance(node, exp.Var) and node.name[-1:] == "D":  # a float literal of Spark
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
    """Converts a value to the same text as in the engine."""
    if kind.name == "text":
        return node
    if kind.name in ("int", "decimal", "bool", "date", "null"):
        return written("CAST(x AS STRING)", x=node)
    call_of.refuse(f"the text of {named(kind)} differs in Spark; CAST it to DECIMAL, DATE or a whole number first")
    return None


def named(kind):
    """Returns the name of a kind for messages."""
    words = {
        "int": "a whole number", "bool": "a boolean", "null": "NULL", "other": "a value of this type",
        "unknown": "a value of unknown type",
    }  # fmt: skip
    return words.get(kind.name) or f"a {kind.name}"


def concat(of):
    """Skips NULLs like the engine; Spark's own returns NULL."""
    parts = [written("coalesce(x, '')", x=as_text(of, node, kind)) for node, kind in zip(of.arguments, of.kinds)]
    return call("concat", *parts)


def concat_ws(of):
    return call("concat_ws", *(as_text(of, node, kind) for node, kind in zip(of.arguments, of.kinds)))


def rounded_up_or_down(of):
    """Keeps the type of `ceil` and `floor`; Spark's return whole numbers."""
    x, kind = of.arguments[0], of.kinds[0]
    if kind.name == "decimal":
        return written(f"CAST({of.name}(x) AS DECIMAL({kind.precision}, {kind.scale}))", x=x)
    if kind.name == "int":
        return written("CAST(x AS DOUBLE)", x=x)
    # From 2^52 on, every float is whole, and it may exceed Spark's whole numbers.
    return written(f"IF(abs(x) < 4503599627370496, CAST({of.name}(x) AS DOUBLE), x)", x=x)


def truncated(of):
    if of.kinds[0].name != "float" or len(of.arguments) > 1:
        of.refuse("only floats can be truncated, and only to whole numbers; use CAST or round")
    return written("IF(abs(x) < 4503599627370496, CAST(CAST(x AS BIGINT) AS DOUBLE), x)", x=of.arguments[0])


def rounded(of):
    """Scales, rounds and rescales floats like the engine; Spark rounds their decimal representation."""
    digits = of.literal(1) if len(of.arguments) > 1 else 0
    if not isinstance(digits, int):
        of.refuse("the number of digits must be a literal")
    if of.kinds[0].name != "float":
        return call("round", *of.arguments)
    if digits == 0:
        return written("round(x)", x=of.arguments[0])
    factor = f"CAST('{10.0**digits!r}' AS DOUBLE)"
    return written(f"round(x * {factor}) / {factor}", x=of.arguments[0])


def logarithm(of):
    """Raises an error for zero and negative numbers like the engine, where Spark's returns NULL. `log` with one argument
    has base 10."""
    function, x = {"log": "log10"}.get(of.name, of.name), of.arguments[-1]
    if len(of.arguments) == 2:
        base = of.literal(0)
        if not base or base <= 1:
            of.refuse("the base must be a literal above 1")
        function = f"log({base!r}, x)"
    else:
        function = f"{function}(x)"
    if (value := constant(x)) is not None and value > 0:
        return written(function, x=x)
    template = (
        f"CASE WHEN x > 0 THEN {function} WHEN x = 0 THEN raise_error('cannot take the logarithm of zero') "
        "WHEN x < 0 THEN raise_error('cannot take the logarithm of a negative number') END"
    )
    return written(template, x=x if of.kinds[-1].name == "float" else written("CAST(x AS DOUBLE)", x=x))


def is_nan(of):
    return written("CASE WHEN x IS NOT NULL THEN isnan(x) END", x=of.arguments[0])


def square_root(of):
    """Raises an error for a negative number like the engine; Spark's returns NaN."""
    return written("IF(x < 0, raise_error('cannot take the square root of a negative number'), sqrt(x))", x=of.arguments[0])


def power(of):
    if "decimal" in {kind.name for kind in of.kinds}:
        of.refuse("powers of decimals have other digits in Spark; CAST to DOUBLE")
    return call("power", *of.arguments)


def side(of):
    """Makes a negative count of `left` and `right` drop that many characters; Spark's drop all."""
    count = of.literal(1)
    if count is not None and count >= 0:
        return call(of.name, *of.arguments)
    template = f"IF(n >= 0, {of.name}(s, n), {of.name}(s, greatest(char_length(s) + n, 0)))"
    return written(template, s=of.arguments[0], n=of.arguments[1])


def substring(of):
    """Counts position 0 as the one before the first character; Spark counts it as the first."""
    s, start, *count = of.arguments
    at, length = of.literal(1), of.literal(2)
    if length is not None and length < 0:
        of.refuse("the length is negative")
    if at is not None and at != 0 and (not count or length is not None):
        return call("substr", *of.arguments)
    if at == 0 and not count:
        return s
    if at == 0 and length is not None:
        return call("substr", s, exp.Literal.number(1), exp.Literal.number(max(length - 1, 0)))
    if not count:
        return call("substr", s, start)
    template = (
        "CASE WHEN n < 0 THEN raise_error('the length of substr is negative') WHEN p <> 0 THEN substr(s, p, n) "
        "WHEN p = 0 THEN substr(s, 1, greatest(n - 1, 0)) END"
    )
    return written(template, s=s, p=start, n=count[0])


def trimmed(of):
    where = {"ltrim": "LEADING", "rtrim": "TRAILING"}.get(of.name, "BOTH")
    if len(of.arguments) == 1:
        return call({"btrim": "trim"}.get(of.name, of.name), *of.arguments)
    return exp.Trim(this=of.arguments[0], expression=of.arguments[1], position=where)


def character(of):
    """Supports any code point; Spark's own uses only the lowest byte."""
    return written("decode(unhex(lpad(hex(x), 8, '0')), 'UTF-32')", x=of.arguments[0])


def split_part(of):
    """Spark raises an error for part 0, and does not split at an empty text."""
    if of.literal(2) == 0:
        of.refuse("the number of the part is 0")
    if isinstance(of.arguments[1], exp.Literal) and not of.arguments[1].this:
        of.refuse("the separator is empty")
    return call("split_part", *of.arguments)


PARTS = {
    "year": "year(x)", "quarter": "quarter(x)", "month": "month(x)", "week": "weekofyear(x)", "day": "day(x)",
    "doy": "dayofyear(x)", "dow": "dayofweek(x) - 1", "isodow": "weekday(x) + 1", "isoyear": "EXTRACT(YEAROFWEEK FROM x)",
    "hour": "hour(x)", "minute": "minute(x)", "second": "second(x)",
}  # fmt: skip


def date_part(of):
    unit = of.text_literal(0, "part").lower()
    if unit not in PARTS:
        of.refuse(f"unsupported part `{unit}`; use one of {', '.join(PARTS)}")
    return exp.Paren(this=written(PARTS[unit], x=of.arguments[1])) if " " in PARTS[unit] else written(PARTS[unit], x=of.arguments[1])


def date_trunc(of):
    unit = of.text_literal(0, "unit").lower()
    units = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
    if unit not in units:
        of.refuse(f"unsupported unit `{unit}`; use one of {', '.join(units)}")
    return call("date_trunc", *of.arguments)


# Patterns with the same meaning in Rust and Java, without letter classes, special groups and look-around.
SAME_PATTERN = re.compile(
    r"(?:[^\\\[\](){}*+?|$&^.]|\\[.*+?()|{}^$\[\]\\/-]|\[\^?[^\\\[\]&^]+\]|\((?!\?)|\)|[*+?](?![*+?])"
    r"|\{\d+(?:,\d*)?\}(?![*+?{])|\||\.|\^)*"
)


def pattern(of, number, flags=None):
    """Returns the mode, text and flags of a pattern, for Java."""
    text = of.text_literal(number, "pattern")
    if not SAME_PATTERN.fullmatch(text):
        of.refuse("this pattern may match differently in Spark; use only literals, `.`, classes such as [a-z], groups, `|`, `^`, `*`, `+`, `?`, {n}")
    known = of.text_literal(flags, "flags") if flags is not None and flags < len(of.arguments) else ""
    if set(known) - set("gi"):
        of.refuse("unsupported flags; use `g` and `i` only")
    # UNIX lines: a dot matches everything except a newline.
    return f"(?d{'iu' if 'i' in known else ''})", text, known


def regexp_like(of):
    mode, text, _ = pattern(of, 1, 2)
    return exp.Paren(this=exp.RegexpLike(this=of.arguments[0], expression=exp.Literal.string(mode + text)))


def regexp_full_match(of):
    mode, text, _ = pattern(of, 1, 2)
    return exp.Paren(this=exp.RegexpLike(this=of.arguments[0], expression=exp.Literal.string(rf"{mode}\A(?:{text})\z")))


def regexp_replace(of):
    """Replaces only the first match without the flag `g`; Spark's replaces all."""
    mode, text, flags = pattern(of, 1, 3)
    replacement = of.text_literal(2, "replacement")
    if "\\" in replacement or "$" in replacement:
        of.refuse("`\\` and `$` in the replacement have another meaning in Spark")
    if re.search(text, ""):
        of.refuse("the pattern matches the empty text, which Spark replaces at other positions")
    if "g" not in flags:
        if "(" in text or "^" in text:
            of.refuse("without the flag `g`, a pattern with groups or `^` cannot be translated")
        text, replacement = rf"\A((?s:.*?))(?:{text})", "$1" + replacement
    return call("regexp_replace", of.arguments[0], exp.Literal.string(mode + text), exp.Literal.string(replacement))


def truncated_quotient(a, b, of_a, of_b):
    """Returns `a / b` for decimals, truncated to the engine's digits; Spark rounds to other digits.

    The dividend is first reduced to a multiple of the divisor, so that the division is exact.
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
    """Truncates averages of decimals like the engine; Spark rounds them."""
    kind = of.kinds[0]
    if kind.name != "decimal":
        return of.wrapped("avg", of.arguments)
    if isinstance(of.arguments[0], exp.Distinct):
        of.refuse("Spark rounds averages of decimals; CAST to DOUBLE")
    count = written("nullif(x, 0)", x=of.wrapped("count", of.arguments))
    total = decimal(kind.precision + 10, kind.scale)
    made = truncated_quotient(of.wrapped("sum", of.arguments), count, total, BIGINT)
    if made is None:
        of.refuse("the result has too many digits for Spark; CAST to a DECIMAL with fewer digits, or to DOUBLE")
    return written(f"CAST(x AS DECIMAL({of.kind.precision}, {of.kind.scale}))", x=made)


def array_agg(of):
    """Keeps NULLs, and returns NULL for no rows; Spark's drops NULLs, and returns an empty array."""
    if of.over or isinstance(of.arguments[0], exp.Distinct):
        of.refuse("with OVER or DISTINCT, Spark drops NULLs")
    rows = of.wrapped("array_agg", [call("named_struct", exp.Literal.string("v"), of.arguments[0])])
    return written("nullif(transform(x, r -> r.v), slice(transform(x, r -> r.v), 1, 0))", x=rows)


def string_agg(of):
    """Returns NULL for no values; neither engine guarantees an order."""
    if of.over or isinstance(of.arguments[0], exp.Distinct):
        of.refuse("OVER and DISTINCT give other results in Spark")
    texts = of.wrapped("array_agg", [of.arguments[0]])
    return written("CASE WHEN size(x) > 0 THEN array_join(x, d) END", x=texts, d=of.arguments[1])


def only_over(of):
    if not of.over:
        of.refuse("the order of rows is undefined without OVER (… ORDER BY …)")
    return of.wrapped(of.name, of.arguments)


def median(of):
    if of.kinds[0].name == "decimal":
        of.refuse("the result has other digits in Spark; CAST to DOUBLE")
    return of.wrapped("median", of.arguments)


def counted(of):
    if len(of.arguments) > 1:
        of.refuse("it takes one argument")
    return of.wrapped("count", of.arguments or [exp.Star()])
