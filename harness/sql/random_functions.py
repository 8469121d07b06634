"""Generates SELECTs that call the functions and operators on which engines differ, from a seed.

The SELECTs of `random_sql` are valid in DuckDB too. These are for the two engines that implement Pellucid's SQL: its own,
and `pellucid sql --on spark`. Arguments are unusual on purpose: negative starts and lengths, zero, empty and long texts,
multi-byte letters, NULLs.
"""

from harness.sql import random_sql

TABLES = {
    name: query.replace(
        "'k' ||", "['k', 'é', 'Ünï😀', ' a b ', 'it''s \"q\" \\', ''][n * 7 % 6 + 1] ||"
    ).replace(" AS b FROM", " AS b, TIMESTAMP '2021-03-01 00:00:00' + to_seconds(n * 97357) AS t FROM")
    for name, query in random_sql.TABLES.items()
}  # fmt: skip


class Maker(random_sql.Maker):
    """Generates one query from one seed."""

    columns = random_sql.COLUMNS | {"t": "timestamp"}
    tables = TABLES
    literals = random_sql.LITERALS | {
        "text": ["'k1'", "'é😀'", "''", "'a\\b'", "'%_'", "'it''s'"],
        "decimal": ["CAST(0.50 AS DECIMAL(9, 2))", "CAST(-1.25 AS DECIMAL(9, 2))", "CAST(7 AS DECIMAL(9, 2))"],
        "float": ["0.5", "-1.75", "1e3", "CAST(0.25 AS DOUBLE)"],
        "timestamp": ["TIMESTAMP '2021-03-05 10:20:30'", "CAST('2021-03-20' AS TIMESTAMP)"],
        "int": ["0", "1", "3", "-2", "7", "2147483648"],
    }

    def number(self) -> str:
        """Returns a small whole number, possibly negative."""
        return self.pick("-3", "-1", "0", "1", "2", "5")

    def operations(self, type_name: str) -> list:
        """Returns the operations of `random_sql` and more."""
        more = getattr(self, f"_{type_name}", list)
        known = operations(self) if (operations := random_sql.OPERATIONS.get(type_name)) else []
        return known + more()

    def _int(self) -> list:
        unit = self.pick("year", "quarter", "month", "week", "day", "doy", "dow", "isodow", "isoyear")
        time = self.pick("hour", "minute", "second", "dow", "day")
        return [
            lambda of: f"({of()} / {self.pick('3', '-7', '2')})",
            lambda of: f"({of()} {self.pick('^', '&', '|')} {of()})",
            lambda of: f"({of()} << {self.pick('1', '5', '40')})",
            lambda of: f"CAST(extract({unit} FROM {of('date')}) AS BIGINT)",
            lambda of: f"CAST(date_part('{time}', {of('timestamp')}) AS BIGINT)",
            lambda of: f"({of('date')} - {of('date')})",
            lambda of: f"CAST({self.pick('strpos', 'instr', 'levenshtein')}({of('text')}, {of('text')}) AS BIGINT)",
            lambda of: f"CAST({self.pick('ascii', 'octet_length', 'bit_length')}({of('text')}) AS BIGINT)",
            lambda of: f"CAST({of(self.pick('float', 'decimal'))} AS BIGINT)",
            lambda of: f"{self.pick('greatest', 'least')}({of()}, {of()}, {of()})",
            lambda of: f"round({of()}, {self.pick('-1', '0', '1')})",
        ]

    def _text(self) -> list:
        start, length = self.number(), self.pick("0", "1", "4")
        return [
            lambda of: f"substr({of()}, {self.pick(start, of('int'))})",
            lambda of: f"substr({of()}, {self.pick(start, of('int'))}, {length})",
            lambda of: f"{self.pick('left', 'right')}({of()}, {self.number()})",
            lambda of: f"{self.pick('lpad', 'rpad')}({of()}, {self.pick('0', '3', '7')}, {of()})",
            lambda of: f"split_part({of()}, {self.pick(repr(' '), repr('k'), repr(''))}, {self.pick('1', '2', '-1')})",
            lambda of: f"concat({of()}, {of(self.pick('text', 'int', 'bool', 'date', 'decimal'))}, {of()})",
            lambda of: f"concat_ws({of()}, {of()}, {of()})",
            lambda of: f"({of()} || {of(self.pick('int', 'bool', 'date', 'decimal'))})",
            lambda of: f"replace({of()}, {of()}, {of()})",
            lambda of: f"translate({of()}, 'k1é', 'xy')",
            lambda of: f"{self.pick('ltrim', 'rtrim', 'btrim')}({of()}{self.pick('', ', ' + repr('k '))})",
            lambda of: f"regexp_replace({of()}, {self.pick(repr('k[0-9]'), repr('[a-zé]'))}, '-'{self.pick('', ', ' + repr('g'))})",
            lambda of: f"CAST({of(self.pick('int', 'decimal', 'date', 'bool'))} AS VARCHAR)",
            lambda of: f"chr({self.pick('65', '233', '128512')})",
            lambda of: f"to_hex({of('int')})",
            lambda of: f"repeat({of()}, {self.number()})",
            lambda of: f"{self.pick('greatest', 'least')}({of()}, {of()})",
        ]

    def _date(self) -> list:
        span = self.pick("'1' DAY", "'2' MONTH", "'1' YEAR", "'3' WEEK")
        return [
            lambda of: f"({of()} {self.pick('+', '-')} INTERVAL {span})",
            lambda of: f"CAST({of('timestamp')} AS DATE)",
            lambda of: f"CAST(CAST({of()} AS VARCHAR) AS DATE)",
        ]

    def _timestamp(self) -> list:
        unit = self.pick("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        return [
            lambda of: f"date_trunc('{unit}', {of()})",
            lambda of: f"date_trunc('{unit}', {of('date')})",
            lambda of: f"({of()} {self.pick('+', '-')} INTERVAL {self.pick(repr('36') + ' HOUR', repr('1') + ' MONTH', repr('90') + ' SECOND')})",
            lambda of: f"CAST({of('date')} AS TIMESTAMP)",
        ]

    def _decimal(self) -> list:
        divisor = self.pick("3", "CAST(0.70 AS DECIMAL(9, 2))", "CAST(-7 AS DECIMAL(5, 0))")
        return [
            lambda of: f"CAST({of()} / {divisor} AS DECIMAL(18, 6))",
            lambda of: f"CAST({of()} * {of()} AS DECIMAL(18, 2))",
            lambda of: f"CAST({of('int')} AS DECIMAL(18, 2))",
            lambda of: f"CAST({of('float')} AS DECIMAL(18, 2))",
            lambda of: f"abs({of()})",
        ]

    def _float(self) -> list:
        return [
            lambda of: f"round({of()}, {self.pick('0', '1', '2')})",
            lambda of: f"{self.pick('ceil', 'floor')}(abs({of()}))",
            lambda of: f"{self.pick('log', 'ln', 'log2', 'log10')}(CAST(abs({of('int')}) AS DOUBLE))",
            lambda of: f"{self.pick('exp', 'atan', 'cbrt')}({of()})",
            lambda of: f"({of()} / {self.pick('4.0', '0.5')})",
            lambda of: f"CAST({of(self.pick('int', 'decimal'))} AS DOUBLE)",
            lambda of: f"power({of('int')}, 2)",
        ]

    def _bool(self) -> list:
        return [
            lambda of: f"{self.pick('starts_with', 'ends_with', 'contains')}({of('text')}, {of('text')})",
            lambda of: f"({of('decimal')} {self.pick('<', '=', '>=')} {self.pick('0.5', '0.1 + 0.2', '-1.25')})",
            lambda of: f"({of('int')} < {of(self.pick('decimal', 'float'))})",
            lambda of: f"({of('date')} {self.pick('<', '=', '>')} {self.pick(of('timestamp'), repr('2021-03-10'))})",
            lambda of: f"regexp_like({of('text')}, {self.pick(repr('^k'), repr('[0-3]'), repr('(a|é).'))})",
            lambda of: f"({of('text')} ILIKE {self.pick(repr('K%'), repr('%A_B%'))})",
            lambda of: f"({of('text')} LIKE {self.pick(repr('%_'), '%'.join(chr(39) * 2), chr(39) + '%' + chr(92) + chr(92) + '%' + chr(39))})",
            lambda of: f"({of('bool')} IS {self.pick('', 'NOT ')}{self.pick('TRUE', 'FALSE', 'NULL')})",
        ]

    def aggregate(self, scope: list[str]) -> str:
        """Returns an aggregate, including those whose results differ between engines."""
        if self.chance(0.5):
            return super().aggregate(scope)
        return self.pick(
            f"avg({self.value(self.pick('decimal', 'int'), scope, 1)})",
            f"stddev({self.value('int', scope, 1)})",
            f"median({self.value('int', scope, 1)})",
            f"bit_xor({self.value('int', scope, 1)})",
            f"sum({self.value('decimal', scope, 1)}) / count(*)",
            f"min({self.value('timestamp', scope, 1)})",
        )


def array(maker: random_sql.Maker) -> str:
    """Returns a query with `array_agg` whose order is determined: each group has one value, often NULL."""
    table, alias = maker.pick(*TABLES), maker.name()
    value = f"min({alias}.{maker.pick('i', 's', 'm')})"
    return f"SELECT k, array_agg(v) AS c1 FROM (SELECT {alias}.j AS k, {value} AS v FROM {table} {alias} GROUP BY 1) q GROUP BY k"
