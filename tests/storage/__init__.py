"""Stores, real and faulty."""
