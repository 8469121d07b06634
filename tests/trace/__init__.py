"""Traces, and the commands that read them."""
