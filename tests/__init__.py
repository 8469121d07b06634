"""Checks from outside: they drive the real `pellucid` binary. See `tests/README.md`."""
