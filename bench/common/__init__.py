"""Shared by all suites: results as lines, statistics, goals."""
