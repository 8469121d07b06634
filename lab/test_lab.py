"""Tests the lab: pure parts anywhere, the kernel's throttle where the machine has it."""

import os
import signal
import subprocess
import sys

import pytest

from lab import cache, disks, kernel, memory
from lab.rates import off_by, parse_block_stat, parse_bytes, parse_rate, show_rate, throttle_line

needs_kernel = pytest.mark.skipif(kernel.missing() is not None, reason=f"no kernel throttle: {kernel.missing()}")

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def own_lab(tmp_path, monkeypatch):
    """Gives each test its own lab, so that tests do not see or remove each other's disks."""
    monkeypatch.setenv("PELLUCID_LAB", str(tmp_path / "lab"))
    yield
    disks.clean()


@pytest.mark.parametrize("text, size", [("64MiB", 64 << 20), ("2GB", 2 * 10**9), ("1.5KB", 1500), ("17", 17), (" 1 gib ", 1 << 30)])
def test_size_is_parsed(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "fast", "-1MB/s", "50Mbit/s", "MB", "0MB/s"])
def test_invalid_rate_is_rejected(text):
    with pytest.raises(ValueError, match="rate"):
        parse_rate(text)


def test_rates_are_parsed_and_shown():
    assert parse_rate("50MB/s") == parse_rate("50 MB") == 50_000_000
    assert show_rate(50_000_000) == "50 MB/s"
    assert show_rate(49_870_000) == "49.9 MB/s"


def test_throttle_line_sets_or_clears_limit():
    assert throttle_line("7:0", 50_000_000) == "7:0 50000000"
    assert throttle_line("7:0", None) == "7:0 0"


def test_off_by_is_symmetric():
    assert off_by(100, 104) == pytest.approx(0.04)
    assert off_by(100, 94) == pytest.approx(0.06)


def test_block_stat_counts_sectors_of_512():
    line = " 9 0 2048 5 3 1 16 2 0 7 7 0 0 0 0 0 0"
    assert parse_block_stat(line) == (1 << 20, 8192)


def test_freed_memory_is_kept_and_reported_again_afterwards(tmp_path):
    parameter = tmp_path / "page_reporting_order"
    parameter.write_text("5\n")
    with pytest.raises(KeyboardInterrupt), memory.kept(1 << 20, parameter, tmp_path) as state:
        assert state == "kept" and parameter.read_text() == "20"
        raise KeyboardInterrupt
    assert parameter.read_text().strip() == "5"


def test_paging_out_stops_and_only_running_monitors_restart(tmp_path):
    on, off = tmp_path / "0/state", tmp_path / "1/state"
    for state, before in ((on, "on\n"), (off, "off\n")):
        state.parent.mkdir()
        state.write_text(before)
    with memory.kept(parameter=tmp_path / "none", monitors=tmp_path):
        assert on.read_text() == "off" and off.read_text() == "off\n"
    assert on.read_text() == "on" and off.read_text() == "off\n"


def test_machine_without_free_page_reporting_is_not_changed(tmp_path):
    with memory.kept(parameter=tmp_path / "none", monitors=tmp_path) as state:
        assert state == "not reported"


def test_switch_off_sets_largest_accepted_order():
    class Parameter:
        """Accepts what a kernel with blocks of up to 2^10 pages accepts."""

        value = "5\n"

        def read_text(self):
            return self.value

        def write_text(self, text):
            if int(text) > 11:
                raise OSError(22, "Invalid argument")
            self.value = text

    parameter = Parameter()
    assert memory.switch_off(parameter) == "5"
    assert parameter.value == "11"


def test_engine_paced_disk_has_engine_options_and_no_calibration():
    with disks.throttled("50MB/s", mode="engine", name="paced") as disk:
        assert disk.sql_options() == ["--disk-rate", f"{disk.path}=50000000B/s"]
        assert disk.calibrate() is None and disk.measured is None
        assert "engine-paced" in disk.label()
        assert disk.path.is_dir()
        with pytest.raises(disks.LabError, match="exists"):
            disks.make("paced", "1MB/s", mode="engine")
    assert disks.every() == [] and not disk.folder.exists()


def test_error_inside_with_removes_disk():
    with pytest.raises(KeyboardInterrupt), disks.throttled("50MB/s", mode="engine", name="gone"):
        raise KeyboardInterrupt
    assert disks.every() == []


def test_stale_disk_is_one_whose_owner_is_gone():
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    disks.make("dead", "1MB/s", mode="engine", owner=dead.pid)
    disks.make("mine", "1MB/s", mode="engine", owner=os.getpid())
    disks.make("kept", "1MB/s", mode="engine")
    assert disks.clean(stale_only=True) == ["dead"]
    assert disks.clean() == ["kept", "mine"]


def test_unknown_disk_lists_existing_ones(capsys):
    disks.make("kept", "1MB/s", mode="engine")
    assert disks.main(["remove", "other"]) == 1
    assert "existing disks: kept" in capsys.readouterr().err


def test_evict_drops_resident_pages(tmp_path):
    file = tmp_path / "data"
    disks.write_zeros(file, 4 << 20)
    cache.warm([file])
    assert cache.resident_bytes(file) == 4 << 20
    try:
        cache.evict([file])
    except RuntimeError:
        pytest.skip("the temporary folder is on a file system that keeps its pages (tmpfs)")
    assert cache.resident_bytes(file) == 0


@needs_kernel
def test_kernel_throttled_disk_reaches_its_rate_and_is_removed():
    with disks.throttled("100MB/s", mode="kernel", size="96MiB", name="fast", read_ahead_kb=2560) as disk:
        device, image = disk.device, disk.image
        assert off_by(100e6, disk.measured) < 0.05
        assert "read_ahead_kb 2560" in disk.label()
        file = disk.path / "data"
        disks.write_zeros(file, 8 << 20)
        cache.evict([file])
        before = disk.moved_bytes()[0]
        cache.warm([file])
        assert disk.moved_bytes()[0] - before == pytest.approx(8 << 20, rel=0.01)
    assert not os.path.exists(image) and not os.path.ismount(disk.path)
    assert kernel.device_number(device) not in (kernel.BLKIO / "blkio.throttle.read_bps_device").read_text()


@needs_kernel
def test_mounts_on_disk_are_removed_with_it():
    with disks.throttled("100MB/s", mode="kernel", size="96MiB", name="outer", calibrated=False) as disk:
        image, inner = disk.path / "inner.image", disk.path / "inner"
        inner.mkdir()
        with open(image, "wb") as file:
            file.truncate(32 << 20)
        device = kernel.attach(image)
        kernel.format_and_mount(device, inner, "-J", "size=4")
        assert (device, inner.resolve()) in kernel.mounts()
    assert not any(at.is_relative_to(disk.path.resolve()) for _, at in kernel.mounts())
    assert device not in kernel.run("losetup", "--list", "--noheadings", "--output", "NAME").split() and not disk.folder.exists()


@needs_kernel
def test_clean_removes_disk_of_killed_process(tmp_path):
    script = """
from lab import disks
import time
with disks.throttled("100MB/s", name="orphan", size="64MiB", calibrated=False) as disk:
    print(disk.image, flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    image = process.stdout.readline().strip()
    assert os.path.exists(image)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert disks.clean(stale_only=True) == ["orphan"]
    assert not os.path.exists(image) and disks.every() == []


@needs_kernel
def test_terminated_command_removes_its_disk():
    command = [
        sys.executable,
        "-m",
        "lab.disks",
        "run",
        "--name",
        "brief",
        "--size",
        "64MiB",
        "--rate",
        "100MB/s",
        "--",
        "sleep",
        "600",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert "kernel-throttled" in process.stderr.readline()
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait() == 143
    process.stderr.close()
    assert disks.every() == []
