"""Scores predictions against measurements on emulated hardware. See `bench/README.md`."""
