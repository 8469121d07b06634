"""The suites of `bench/RESULTS.md`: the engine compared with its peers."""
