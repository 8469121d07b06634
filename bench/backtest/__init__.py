"""Predictions scored against reality: emulated hardware, measured pairs, a manifest. See `bench/README.md`."""
