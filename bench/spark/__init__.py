"""Compares `analyze` and `whatif` on Spark event logs with known causes and measured times."""
