"""The functions that a statement may call on Spark: those whose answers are the same there.

A function is on this list if Pellucid's engine and Spark were compared on it with ordinary and with
odd arguments (`tests/spark_checks.py` has a check for every name here). Where Spark has the same function
under another name, or one that differs for some arguments only, the call is written otherwise. A function
that is not on the list is refused, also where Spark has one of its name: `initcap`, `log`, `isnan` and many
others have one, and other answers.

`parameters` has a letter for each parameter: `t` text, `i` a whole number, `n` a number, `f` a number that
becomes a float, `d` a date or a timestamp, `b` a boolean, `a` anything; `?` after those that may be left
out, `*` after the one that repeats.
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
    """What a function takes, what it gives, and how Spark is to be told."""

    parameters: str
    returns: Kind | Callable
    write: str | Callable | None = None  # Spark's name, or what writes it; None: the same name


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
    "trunc": Function("ni?", FLOAT, calls.cut),
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
    **same("t", TEXT, "lower upper reverse md5"),
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
    **same("tti", TEXT, "split_part substring_index"),
    "substr_index": Function("tti", TEXT, "substring_index"),
    **dict.fromkeys(("substr", "substring"), Function("tii?", TEXT, calls.substring)),
    "chr": Function("i", TEXT, calls.character),
    "to_hex": Function("i", TEXT, calls.hexadecimal),
    "concat": Function("aa*", TEXT, calls.concat),
    "concat_ws": Function("taa*", TEXT, calls.concat_ws),
    "regexp_like": Function("ttt?", BOOL, calls.regexp_like),
    "regexp_replace": Function("tttt?", TEXT, calls.regexp_replace),
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
    """What is wrong with the kinds of a call's arguments, in words; None: nothing."""
    letters = re.findall(r"([a-z])([?*]?)", parameters)
    least = sum(1 for _, many in letters if not many)
    if len(kinds) < least or (len(kinds) > len(letters) and not parameters.endswith("*")):
        return f"it takes {least if least == len(letters) else f'{least} arguments or more'}, not {len(kinds)}"
    for number, kind in enumerate(kinds):
        letter = letters[min(number, len(letters) - 1)][0]
        if letter != "a" and kind.name not in (*FITS[letter], "null", "unknown"):
            return f"argument {number + 1} is {named(kind)}, which is turned into another type there; CAST it"
    return None


def returned(node, kinds):
    """The kind that a call gives."""
    function = FUNCTIONS.get(node.name.lower())
    if function is None:
        return UNKNOWN
    given = [kinds.of(one) for one in node.expressions]
    if callable(function.returns):
        return function.returns(given) if given else UNKNOWN
    return function.returns
