"""Statements, their answers in DuckDB, and the comparison of answers."""
