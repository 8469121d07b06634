"""Spark event logs made on a quiet machine: what `analyze` and `whatif` say of them, against what is known."""
