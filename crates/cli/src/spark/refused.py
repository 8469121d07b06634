"""The error of what cannot be run as it is; of its own, since the rest of it needs sqlglot."""


class Refused(Exception):
    """What was asked cannot be done as it is: wrong usage."""
