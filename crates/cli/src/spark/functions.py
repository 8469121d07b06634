"""The functions that statements may call on Spark, because they give the same results as in Pellucid's engine.

`harness/spark/checks.py` compares every function here on both engines, with ordinary and unusual arguments.
If Spark has the same function under another name, or one that differs only for some arguments, the call is
rewritten. Other functions are rejected even if Spark has one with the same name, since `initcap` and many
others give different results.

`parameters` has one letter per parameter: `t` text, `i` a whole number, `n` a number, `f` a number that
is converted to a float, `d` a date or a timestamp, `b` a boolean, `a` any type; `?` follows an optional
parameter, `*` one that repeats.
"""

import re
from typing import Callable, NamedTuple

import calls
from calls import named
from kinds import BIGINT, BOOL, DATE, FLOAT, INT, NUMBERS, OTHER, TEXT, TIMESTAMP, UNKNOWN, Kind, common, decimal


def first(kinds):
    return kinds[0]


def summed(kinds):
    kind = kinds[0]
    return decimal(kind.precision + 10, kind.scale) if kind.name == "decimal" else BIGINT if kind.name == "int" else kind


def averaged(kinds):
    kind = kinds[0]
    return decimal(kind.precision + 4, kind.scale + 4) if kind.name == "decimal" else FLOAT


def round_kind(kinds):
    return kinds[0] if kinds[0].name in ("float", "int") else UNKNOWN


def ceil_kind(kinds):
    return kinds[0] if kinds[0].name == "decimal" else FLOAT


class Function(NamedTuple):
    """A function's parameters, result type, and translation to Spark."""

    parameters: str
    returns: Kind | Callable
    write: str | Callable | None = None  # Spark's name, or a function that writes the call; None: the same name


def same(parameters, returns, names):
    return {name: Function(parameters, returns) for name in names.split()}


SCALARS = {
    **same("f", FLOAT, "cbrt exp sin cos tan cot asin acos atan sinh cosh tanh asinh acosh atanh degrees radians signum"),
    **same("ff", FLOAT, "atan2 nanvl"),
    **same("", FLOAT, "pi"),
    "abs": Function("n", first),
    "sqrt": Function("f", FLOAT, calls.square_root),
    "ceil": Function("n", ceil_kind, calls.rounded_up_or_down),
    "floor": Function("n", ceil_kind, calls.rounded_up_or_down),
    "round": Function("ni?", round_kind, calls.rounded),
    "trunc": Function("ni?", FLOAT, calls.truncated),
    "ln": Function("f", FLOAT, calls.logarithm),
    "log2": Function("f", FLOAT, calls.logarithm),
    "log10": Function("f", FLOAT, calls.logarithm),
    "log": Function("ff?", FLOAT, calls.logarithm),
    **dict.fromkeys(("power", "pow"), Function("nn", FLOAT, calls.power)),
    "isnan": Function("f", BOOL, calls.is_nan),
    **same("aa*", common, "coalesce greatest least"),
    **same("aa", common, "nvl ifnull"),
    "nullif": Function("aa", first),
    "nvl2": Function("aaa", common),
    **same("t", INT, "ascii bit_length octet_length char_length character_length length"),
    **same("t", TEXT, "lower upper reverse md5 lcase ucase"),
    **same("tt", BOOL, "contains"),
    "starts_with": Function("tt", BOOL, "startswith"),
    "ends_with": Function("tt", BOOL, "endswith"),
    **same("tt", INT, "find_in_set instr levenshtein"),
    **dict.fromkeys(("strpos", "position"), Function("tt", INT, "instr")),
    **dict.fromkeys(("btrim", "trim", "ltrim", "rtrim"), Function("tt?", TEXT, calls.trimmed)),
    **dict.fromkeys(("left", "right"), Function("ti", TEXT, calls.side)),
    **same("tit?", TEXT, "lpad rpad"),
    **same("ti", TEXT, "repeat"),
    **same("ttt", TEXT, "replace translate"),
    "split_part": Function("tti", TEXT, calls.split_part),
    "substring_index": Function("tti", TEXT),
    "substr_index": Function("tti", TEXT, "substring_index"),
    **dict.fromkeys(("substr", "substring"), Function("tii?", TEXT, calls.substring)),
    "chr": Function("i", TEXT, calls.character),
    **dict.fromkeys(("hex", "to_hex"), Function("i", TEXT, "hex")),
    "concat": Function("aa*", TEXT, calls.concat),
    "concat_ws": Function("taa*", TEXT, calls.concat_ws),
    **dict.fromkeys(("regexp_like", "regexp_matches"), Function("ttt?", BOOL, calls.regexp_like)),
    "regexp_full_match": Function("ttt?", BOOL, calls.regexp_full_match),
    "regexp_replace": Function("tttt?", TEXT, calls.regexp_replace),
    **same("d", INT, "year quarter month day hour minute second dayofmonth dayofyear weekofyear"),
    **dict.fromkeys(("date_part", "datepart"), Function("td", INT, calls.date_part)),
    **dict.fromkeys(("date_trunc", "datetrunc"), Function("td", TIMESTAMP, calls.date_trunc)),
    "to_date": Function("t", DATE, calls.to_date),
    "to_timestamp": Function("t", TIMESTAMP, calls.to_timestamp),
    "make_date": Function("iii", DATE),
    **dict.fromkeys(("current_date", "today"), Function("", DATE, "current_date")),
    **dict.fromkeys(("current_timestamp", "now"), Function("", TIMESTAMP, "current_timestamp")),
}
AGGREGATES = {
    "count": Function("a*", BIGINT, calls.counted),
    "sum": Function("n", summed),
    "avg": Function("n", averaged, calls.average),
    "mean": Function("n", averaged, calls.average),
    **same("a", first, "min max"),
    **same("b", BOOL, "bool_and bool_or"),
    **same("i", BIGINT, "bit_and bit_or bit_xor"),
    **same("f", FLOAT, "stddev stddev_samp stddev_pop var_samp var_pop"),
    "var": Function("f", FLOAT, "var_samp"),
    **same("ff", FLOAT, "corr covar_samp covar_pop"),
    "median": Function("n", FLOAT, calls.median),
    "grouping": Function("a", INT),
    "array_agg": Function("a", OTHER, calls.array_agg),
    "string_agg": Function("tt", TEXT, calls.string_agg),
}
WINDOWS = {
    **same("", BIGINT, "row_number rank dense_rank"),
    **same("", FLOAT, "percent_rank cume_dist"),
    **same("i", BIGINT, "ntile"),
    **same("ai?a?", first, "lag lead"),
    **dict.fromkeys(("first_value", "last_value"), Function("a", first, calls.only_over)),
    "nth_value": Function("ai", first, calls.only_over),
}
FUNCTIONS = {**SCALARS, **AGGREGATES, **WINDOWS}
FITS = {
    "t": ("text",), "i": ("int",), "n": NUMBERS, "f": NUMBERS, "d": ("date", "timestamp"), "b": ("bool",),
}  # fmt: skip


def misfit(parameters, kinds):
    """Describes a mismatch between a call's arguments and the parameters; None if they match."""
    letters = re.findall(r"([a-z])([?*]?)", parameters)
    required = sum(1 for _, many in letters if not many)
    if len(kinds) < required or (len(kinds) > len(letters) and not parameters.endswith("*")):
        arguments = f"{required} argument{'s' * (required != 1)}{'' if required == len(letters) else ' or more'}"
        return f"it takes {arguments}, not {len(kinds)}"
    for number, kind in enumerate(kinds):
        letter = letters[min(number, len(letters) - 1)][0]
        if letter != "a" and kind.name not in (*FITS[letter], "null", "unknown"):
            return f"argument {number + 1} is {named(kind)}, which Spark converts to another type; CAST it"
    return None


def returned(node, kinds):
    """Returns the kind of a call's result."""
    function = FUNCTIONS.get(node.name.lower())
    if function is None:
        return UNKNOWN
    given = [kinds.of(one) for one in node.expressions]
    if callable(function.returns):
        return function.returns(given) if given else UNKNOWN
    return function.returns
