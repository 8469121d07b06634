"""Compares stock Spark with the plugin on emulated spinning disks."""
