"""Calibrated hardware emulation for tests and benchmarks. See `lab/README.md`."""
