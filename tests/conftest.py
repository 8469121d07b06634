"""Fixtures: the binary, the data, and disks if this machine can make them."""

import os

import pytest

from harness import binary
from harness.binary import SCALE
from lab import disks, kernel


def pytest_configure(config):
    config.addinivalue_line("markers", "full: only with PELLUCID_FULL=1 (make test-full)")
    # The two processes of a parallel run must not remove each other's disks. The name makes a later run find stale ones.
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        os.environ["PELLUCID_LAB"] = str(disks.home() / worker)


def pytest_collection_modifyitems(config, items):
    """Deselects the long matrices unless PELLUCID_FULL is set."""
    if os.environ.get("PELLUCID_FULL") == "1":
        return
    selected, deselected = [], []
    for item in items:
        (deselected if item.get_closest_marker("full") else selected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Divides a parallel run by files, whose tests share fixtures; all on Spark are one part: a cluster takes gigabytes."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileAndSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)

    return ByFileAndSpark(config, log)


def pytest_sessionstart():
    """Fails the whole run if the binary is missing, instead of skipping every test."""
    path = binary.binary()
    if not path.exists():
        pytest.exit(f"{path} does not exist: `cargo build --release --workspace`, or set PELLUCID_BIN", 1)


@pytest.fixture(scope="session")
def tpch():
    """TPC-H at `PELLUCID_SCALE` (default 1)."""
    return binary.ensure_data("tpch", SCALE)


@pytest.fixture(scope="session")
def tpcds():
    """TPC-DS at `PELLUCID_SCALE` (default 1)."""
    return binary.ensure_data("tpcds", SCALE)


@pytest.fixture(scope="session")
def slow_disk():
    """A factory of kernel-throttled disks for the session; skips with the reason if none can be made."""
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
