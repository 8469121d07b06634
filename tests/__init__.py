"""End-to-end tests that drive the real `pellucid` binary. See `tests/README.md`."""
