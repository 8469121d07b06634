"""Predicts stock Spark on two disks from one, and the reverse (monotasks-sosp17 §6.6)."""
