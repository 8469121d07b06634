"""The usage error of a statement, in its own module because the other modules need sqlglot."""

# Columns of a line that a message shows.
SHOWN = 76


class Refused(Exception):
    """A statement or input that cannot run on Spark unchanged: a usage error."""


def mark(text, starts, line):
    """Returns the first of some places in a text, whose first line has a number, as a line below a message."""
    start = min(starts, default=None)
    if start is None:
        return ""
    above, column = text[:start].count("\n"), start - (text.rfind("\n", 0, start) + 1)
    label = f"  line {line + above}, column {column + 1}: "
    # A tab or a long line would shift the mark.
    left = max(0, column - SHOWN // 2)
    shown = text.splitlines()[above].replace("\t", " ")[left : left + SHOWN]
    return f"\n{label}{shown}\n{' ' * (len(label) + column - left)}^"
