"""Iterative jobs, from the command and from Python."""
