"""Tests of the benchmarks' own code; nothing is measured."""
