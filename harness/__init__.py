"""Helpers of tests and benchmarks, which drive the built command from outside: see `tests/README.md`."""
