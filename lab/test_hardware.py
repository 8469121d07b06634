"""Tests cores, links and the guard: pure parts anywhere, kernel parts as root."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import cores, disks, guard, links
from lab.rates import off_by

needs_cores = pytest.mark.skipif(cores.missing() is not None, reason=f"no limited cores: {cores.missing()}")
needs_links = pytest.mark.skipif(links.missing() is not None, reason=f"no links: {links.missing()}")
ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def own_lab(tmp_path, monkeypatch):
    """Gives each test its own lab."""
    monkeypatch.setenv("PELLUCID_LAB", str(tmp_path / "lab"))


def gone() -> int:
    """Returns the pid of a process that has just ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_link_rate_is_parsed_or_rejected_with_example():
    assert links.parse_bits("100Mbit/s") == 12_500_000
    assert links.parse_bits("1 Gbit/s") == 125_000_000
    for text in ("100MB/s", "0Mbit/s", "fast", "100Mbit"):
        with pytest.raises(ValueError, match="100Mbit/s"):
            links.parse_bits(text)


def test_link_names_and_addresses_fit_and_differ():
    made = [links.Link(owner) for owner in (1, 2, 32_767, 4_194_304)]
    for link in made:
        assert all(len(end) <= 15 for end in link.ends)
        assert link.client != link.server
        assert link.client.startswith(("198.18.", "198.19."))
    assert len({link.server for link in made}) == 4


def test_zombie_is_not_alive():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not disks.alive(child)
    os.waitpid(child, 0)
    assert disks.alive(os.getpid())


@needs_cores
def test_group_sets_requested_cores():
    there = len(os.sched_getaffinity(0))
    with cores.group() as group:
        group.set(0.5)
        assert (group.path / "cpu.cfs_quota_us").read_text().strip() == "5000"
        assert group.threads == 1 and "quota" in group.how
        group.set(1)
        assert (group.path / "cpu.cfs_quota_us").read_text().strip() == "-1"
        seen = subprocess.run(
            [*group.prefix(), sys.executable, "-c", "import os; print(os.sched_getaffinity(0), os.getpid())"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(seen.stdout.split("}")[0].split(",")) == 1
        with pytest.raises(disks.LabError, match=f"this machine has {there}"):
            group.set(there + 0.5)
    assert not group.path.exists()


@needs_cores
def test_quota_limits_threads():
    """Holds on a busy machine too: half a core is never exceeded, and the kernel counts periods."""
    with cores.group() as group:
        group.set(0.5)
        (got,) = cores.shares([cores.spin(0.5, None, group.path / "cgroup.procs")])
        assert got <= 0.55
        counted = dict(line.split() for line in (group.path / "cpu.stat").read_text().splitlines())
        assert int(counted["nr_periods"]) > 0


@needs_cores
def test_leaving_group_kills_its_processes():
    with cores.group() as group:
        process = subprocess.Popen([*group.prefix(), "sleep", "600"])
        while str(process.pid) not in (group.path / "cgroup.procs").read_text().split():
            time.sleep(0.01)
    assert process.wait() == -signal.SIGKILL
    assert not group.path.exists()


@needs_cores
def test_groups_of_dead_owners_are_removed():
    path = cores.CPU / f"{cores.NAME}{gone()}"
    path.mkdir()
    mine = cores.make()
    assert path.name in cores.clean()
    assert mine.path.exists()
    mine.remove()


@needs_links
def test_link_reaches_its_rate_and_is_removed():
    with links.link() as link:
        link.set("100Mbit/s")
        try:
            measured = link.calibrate(1.0)
        except disks.LabError as error:
            pytest.skip(f"the machine is too busy to send 100 Mbit/s: {error}")
        assert off_by(12_500_000, measured) < 0.05
        server = link.start(["sleep", "600"])
    assert server.poll() is not None
    assert link.namespace not in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert subprocess.run(["ip", "link", "show", link.ends[0]], capture_output=True).returncode != 0


@needs_links
def test_links_of_dead_owners_are_removed():
    lost = links.Link(gone())
    subprocess.run(["ip", "netns", "add", lost.namespace], check=True)
    assert lost.namespace in links.clean()


SETS_UP = """
import os, subprocess, sys, time
from lab import cores, disks, guard
with guard.watch(), disks.throttled("100MB/s", size="64MiB", name="held", calibrated=False) as disk, cores.group() as group:
    subprocess.Popen([*group.prefix(), "sleep", "600"])
    print(group.path, flush=True)
    time.sleep(600)
"""


@needs_cores
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_lab_is_removed_however_owner_ends(how):
    owner = subprocess.Popen([sys.executable, "-c", SETS_UP], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    group = Path(owner.stdout.readline().strip())
    assert group.exists() and [disk.name for disk in disks.every()] == ["held"]
    owner.send_signal(how)
    assert owner.wait() != 0
    owner.stdout.close()
    until = time.monotonic() + 30
    while (group.exists() or disks.every()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not group.exists() and disks.every() == []
    assert guard.clean() == []
