"""Answers of SQL statements."""
