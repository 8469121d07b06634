"""Cold runs on a throttled disk, observed by the kernel's counters: every unit of work uses one resource.

Core threads never wait for a device, disk threads hardly compute, and the trace's byte counts match the kernel's. Needs a
kernel-throttled disk; the tests are skipped with the reason if there is none.
"""

import contextlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from harness import binary, threads, traces
from harness.sql import compare, oracle
from lab import cache, disks

RATE = 50_000_000
# Maximum core time of a disk thread as a share of its reads' service time (copying costs about 1 %).
DISK_THREAD_CORE = 0.03
# Bytes that the device moves beyond the request: block sizes, and the file system's own.
MORE_BYTES = 1.05
# Q1, Q6 and Q14 scan; Q3 and Q18 join three tables and read the build sides first.
QUERIES = (1, 3, 6, 14, 18)
TABLES = ("lineitem", "orders", "customer", "part")

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def cold_data(tpch, slow_disk):
    """The tables of TPC-H that the queries need, on a disk of 50 MB/s."""
    need = sum((tpch / f"{table}.parquet").stat().st_size for table in TABLES)
    disk = slow_disk(f"{RATE}B/s", size=f"{int(need * 1.2) + (64 << 20)}B")
    for table in TABLES:
        shutil.copy(tpch / f"{table}.parquet", disk.path)
    return disk


class Cold:
    """One cold run: its answer, trace and threads, and the bytes that the device moved."""

    def __init__(self, disk, query: str, folder: Path, *options: str):
        files = sorted(disk.path.glob("*.parquet"))
        cache.evict(files)
        # A page of the binary that is not in memory would count as a device read by a core thread.
        cache.warm([binary.binary()])
        before = disk.moved_bytes()[0]
        trace_path = folder / "cold.trace"
        with (
            cache.locked(binary.binary()),
            threads.delay_accounting(),
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            named = binary.tables(disk.path)
            # Output goes to files: a full pipe would block the process.
            process = binary.start("sql", "--json", query, *named, "--trace", trace_path, *options, stdout=out, stderr=err)
            self.threads = threads.watch(process)
            out.seek(0), err.seek(0)
            self.result = binary.result(binary.Ran(["sql", query], process.returncode, out.read(), err.read()))
        self.moved_bytes = disk.moved_bytes()[0] - before
        self.trace = traces.read(trace_path)

    def named(self, pattern: str) -> list[threads.Thread]:
        return [thread for thread in self.threads.values() if re.fullmatch(pattern, thread.name)]


@pytest.fixture(scope="module", params=QUERIES, ids=lambda number: f"q{number}")
def cold(request, cold_data, tpch, tmp_path_factory):
    """A cold run of one query, after a warm-up run that loads the binary itself."""
    binary.run("--version").check()
    folder = tmp_path_factory.mktemp("cold")
    text = oracle.text_for_pellucid("tpch", request.param)
    binary.result(binary.sql(text, cold_data.path))
    run = Cold(cold_data, text, folder)
    run.number = request.param
    return run


def test_answer_matches_duckdb(cold, tpch):
    expected = oracle.answer("tpch", cold.number, tpch)
    got = cold.result
    assert compare.difference(expected, got.columns, got.types, got.rows) is None


def test_trace_keeps_its_invariants(cold):
    assert traces.violations(cold.trace) == []
    assert cold.trace.monotasks("disk"), "nothing was read from the disk: the run was not cold"


def test_core_threads_never_wait_for_a_device(cold):
    cores = cold.named(r"core-\d+")
    assert cores, f"no core thread among {sorted(t.name for t in cold.threads.values())}"
    for thread in cores:
        assert (thread.read_bytes, thread.blocked_ticks) == (0, 0), thread


def test_disk_threads_read_nearly_all_bytes(cold):
    """Planning reads footers on other threads; only disk threads read data."""
    by_disks = sum(thread.read_bytes for thread in cold.named(r"disk-.+"))
    assert by_disks >= 0.95 * cold.moved_bytes, [vars(t) for t in cold.threads.values() if t.read_bytes]


def test_disk_threads_use_little_core_time(cold):
    core_ns = sum(thread.cpu_ns for thread in cold.named(r"disk-.+"))
    service_ns = cold.trace.total("service_ns", "disk")
    assert core_ns < DISK_THREAD_CORE * service_ns, f"{core_ns / service_ns:.1%}"


def test_trace_bytes_match_kernel_counters(cold):
    """Requested bytes, the trace's device bytes and the device's own counter agree."""
    requested = cold.trace.total("bytes", "disk")
    device = cold.trace.total("device_bytes", "disk")
    assert requested <= device * MORE_BYTES and device <= requested * MORE_BYTES, (requested, device)
    assert device <= cold.moved_bytes <= device * MORE_BYTES, (device, cold.moved_bytes)


def test_disk_has_its_system_name(cold, cold_data):
    (disk,) = [r for r in cold.trace.of["resource"] if r["kind"] == "disk" and _used(cold.trace, r)]
    assert disk["name"] == Path(cold_data.device).name


def _used(trace, resource) -> bool:
    return any(trace.of["resource"][m["resource"]] is resource for m in trace.of["monotask"])


@pytest.mark.parametrize("number", [1, 6, 14])
def test_bottleneck_is_disk_when_cold_and_cores_when_warm(cold_data, tmp_path, number):
    text = oracle.text_for_pellucid("tpch", number)
    cold = Cold(cold_data, text, tmp_path).result
    assert cold.job["bottleneck"]["kind"] == "disk", cold.job
    assert cold.job["bottleneck"]["name"] == Path(cold_data.device).name
    files = sorted(cold_data.path.glob("*.parquet"))
    cache.warm(files)
    with contextlib.ExitStack() as kept:
        for file in files:
            kept.enter_context(cache.locked(file))
        warm = binary.result(binary.sql(text, cold_data.path))
    assert warm.job["bottleneck"]["kind"] == "cpu", warm.job


def test_direct_io_bypasses_the_page_cache(cold_data, tmp_path):
    files = sorted(cold_data.path.glob("*.parquet"))
    text = oracle.text_for_pellucid("tpch", 6)
    run = Cold(cold_data, text, tmp_path, "--io", "direct")
    cached = sum(map(cache.resident_bytes, files))
    assert cached < run.moved_bytes / 10, f"{cached} bytes stayed in the page cache"
    for thread in run.named(r"core-\d+"):
        assert (thread.read_bytes, thread.blocked_ticks) == (0, 0), thread


def test_stat_and_io_files_are_parsed():
    fields = " ".join(str(number) for number in range(3, 53))
    assert threads.parse_stat(f"17 (a (b) c) {fields}") == ("a (b) c", 42)
    assert threads.parse_io("rchar: 1\nread_bytes: 4096\nwrite_bytes: 7\n") == 4096


def test_thread_that_waits_for_a_device_is_counted(cold_data):
    """Tests the instrument itself: a cold read by `cat` shows in both counters."""
    file = cold_data.path / "ballast"
    disks.write_zeros(file, 16 << 20)
    try:
        cache.evict([file])
        with threads.delay_accounting():
            process = subprocess.Popen(["cat", file], stdout=subprocess.DEVNULL)
            (thread,) = threads.watch(process).values()
    finally:
        file.unlink()
    assert thread.read_bytes > 8 << 20 and thread.blocked_ticks > 0
