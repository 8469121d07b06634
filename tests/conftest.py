"""Fixtures: the binary, the data, and which checks this machine can run."""

import os

import pytest

from lab import disks, kernel
from tests import binary

SCALE = float(os.environ.get("PELLUCID_SCALE", "1"))


def pytest_configure(config):
    config.addinivalue_line("markers", "full: only with PELLUCID_FULL=1 (make test-full)")


def pytest_collection_modifyitems(config, items):
    """Leaves the long matrices to `make test-full`."""
    if os.environ.get("PELLUCID_FULL") == "1":
        return
    kept, left = [], []
    for item in items:
        (left if item.get_closest_marker("full") else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


@pytest.fixture(scope="session", autouse=True)
def built_binary():
    """Every check needs the binary: without it the whole run fails, none is skipped."""
    path = binary.binary()
    if not path.exists():
        pytest.exit(f"{path} does not exist: `cargo build --release --workspace`, or set PELLUCID_BIN", 1)


@pytest.fixture(scope="session")
def tpch():
    """TPC-H at `PELLUCID_SCALE` (1)."""
    return binary.ensure_data("tpch", SCALE)


@pytest.fixture(scope="session")
def tpcds():
    """TPC-DS at `PELLUCID_SCALE` (1)."""
    return binary.ensure_data("tpcds", SCALE)


@pytest.fixture(scope="session")
def slow_disk():
    """A function that makes kernel-throttled disks for the session; skips with the reason where there are none."""
    if kernel.missing():
        pytest.skip(f"no kernel-throttled disk: {kernel.missing()}")
    made = []

    def make(rate: str, **options) -> disks.Disk:
        disk = disks.make(f"test-{os.getpid()}-{len(made)}", rate, mode="kernel", owner=os.getpid(), **options)
        made.append(disk)
        disk.calibrate()
        return disk

    disks.clean(stale_only=True)
    try:
        yield make
    finally:
        for disk in made:
            disk.remove()
