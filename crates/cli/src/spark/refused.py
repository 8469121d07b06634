"""The usage error of a statement, in its own module because the other modules need sqlglot."""


class Refused(Exception):
    """A statement or input that cannot run on Spark unchanged: a usage error."""
