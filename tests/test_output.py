"""However a query ends, its output is complete or absent, and its trace can be read.

Queries are ended by kill -9, by Ctrl-C and by a full disk, while they read, compute and write. The engine paces reads and
writes (`--disk-rate`, `--network-rate`), so that the end comes in the middle without a sleep. If the machine allows it, a
small disk is really filled.
"""

import contextlib
import os
import re
import signal
import time

import pytest

from lab import disks, kernel
from tests import binary, oracle, s3, traces

FORMATS = ("parquet", "csv", "json")
# Exit code of an interrupted command.
INTERRUPTED = 130
# The engine promises 100 ms; ending a process that holds tables on a loaded machine comes on top. The best of several
# attempts counts.
INTERRUPT_S = 0.3


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A table of 2 million rows, about 30 MB, that compresses poorly."""
    folder = tmp_path_factory.mktemp("rows")
    path = folder / "rows.parquet"
    oracle.connect().execute(
        f"COPY (SELECT i AS id, hash(i) AS a, hash(i + 1) AS b FROM range(2000000) r(i)) "
        f"TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 122880)"
    )
    return path


def bytes_in(folder) -> int:
    """Returns the size of all files in a folder, temporary ones included."""
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def copying(rows, folder, ending, *options):
    """Starts a COPY TO whose writes are paced to 2 MB/s, and waits until part of it is on disk."""
    target = folder / f"out.{ending}"
    process = binary.start(
        "sql", f"COPY (SELECT * FROM '{rows}') TO '{target}'", "--disk-rate", f"{folder}=2MB/s", *options
    )
    binary.wait_until(lambda: bytes_in(folder) > 1 << 20, process)
    return process


def visible_outputs(folder, ending) -> list[str]:
    """Returns the files that a reader of the folder, or of `*.ENDING` in it, would use."""
    return [name for name in os.listdir(folder) if name.endswith(f".{ending}")]


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    return out


@pytest.mark.parametrize("ending", FORMATS)
def test_kill_9_while_writing_leaves_no_visible_output(rows, folder, ending):
    code, _, _ = binary.kill(copying(rows, folder, ending))
    assert code == -signal.SIGKILL
    assert visible_outputs(folder, ending) == []


@pytest.mark.parametrize("ending", FORMATS)
def test_ctrl_c_while_writing_leaves_nothing(rows, folder, ending):
    code, out, err = binary.kill(copying(rows, folder, ending), signal.SIGINT)
    assert code == INTERRUPTED, err
    assert os.listdir(folder) == [] and not binary.PANIC.search(err)


@pytest.mark.parametrize("ending", FORMATS)
def test_ctrl_c_while_uploading_leaves_nothing(rows, ending):
    with s3.serving() as (environment, bucket):
        # The link is slow, so that the first parts are in flight when the signal comes.
        copy = f"COPY (SELECT * FROM '{rows}') TO 's3://bucket/out.{ending}'"
        process = binary.start("sql", copy, "--network-rate", "4MB/s", env=os.environ | environment)
        binary.wait_until(lambda: any("partNumber" in request for request in bucket.requests), process)
        code, out, err = binary.kill(process, signal.SIGINT)
        assert code == INTERRUPTED and out == "" and not binary.PANIC.search(err), f"exit {code}: {err}"
        assert bucket.objects == {} and bucket.uploads == {}, bucket.requests


def test_older_output_stays_until_the_new_one_is_complete(rows, folder):
    (folder / "out.parquet").write_text("the old one")
    code, _, _ = binary.kill(copying(rows, folder, "parquet"), signal.SIGINT)
    assert code == INTERRUPTED
    assert os.listdir(folder) == ["out.parquet"] and (folder / "out.parquet").read_text() == "the old one"


@pytest.mark.parametrize("ending", FORMATS)
def test_finished_output_is_complete(rows, folder, ending):
    target = folder / f"out.{ending}"
    binary.run("sql", f"COPY (SELECT * FROM '{rows}') TO '{target}'").check()
    assert os.listdir(folder) == [target.name]
    reader = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}[ending]
    found = oracle.connect().execute(f"SELECT count(*), sum(id) FROM {reader}('{target}')").fetchone()
    assert found == (2_000_000, 1_999_999 * 1_000_000)


@pytest.mark.parametrize("ending", FORMATS)
def test_full_disk_is_reported_and_leaves_nothing(rows, ending):
    if kernel.missing():
        pytest.skip(f"no small file system can be made: {kernel.missing()}")
    with disks.throttled("200MB/s", name=f"full-{os.getpid()}", size="16MiB", mode="kernel", calibrated=False) as disk:
        target = disk.path / f"out.{ending}"
        before = set(os.listdir(disk.path))
        ran = binary.run("sql", f"COPY (SELECT * FROM '{rows}') TO '{target}'")
        assert ran.code == 1 and ran.out == "", f"exit {ran.code}: {ran.err}"
        assert str(disk.path) in ran.err and "space" in ran.err.lower(), ran.err
        assert not binary.PANIC.search(ran.err)
        assert set(os.listdir(disk.path)) == before


def fill(path):
    """Fills the file system to its last block; O_SYNC writes each block before the next is allocated."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_SYNC)
    try:
        for size in (1 << 20, 4096, 512):
            with contextlib.suppress(OSError):
                while os.write(fd, bytes(size)):
                    pass
    finally:
        os.close(fd)


def test_full_trace_disk_does_not_lose_the_answer(rows):
    if kernel.missing():
        pytest.skip(f"no small file system can be made: {kernel.missing()}")
    with disks.throttled("200MB/s", name=f"full-{os.getpid()}", size="16MiB", mode="kernel", calibrated=False) as disk:
        fill(disk.path / "ballast")
        ran = binary.sql(f"SELECT count(*) FROM '{rows}'", None, "--trace", disk.path / "q.trace")
        assert not binary.PANIC.search(ran.err)
        # The rows are complete and the missing trace is a failure; a trace that cannot even be created prevents the query.
        assert ran.code == 1, ran.err
        if "cannot write" not in ran.err:
            assert binary.result(ran).rows == [[2_000_000]]
        assert "space" in ran.err.lower() and "q.trace" in ran.err, ran.err


SLOW_READ = ("--io", "direct")


def reading(rows, *options):
    """Starts a query whose reads are paced so that it takes ten seconds."""
    query = f"SELECT sum(a), sum(b), sum(id) FROM '{rows}'"
    return binary.start("sql", query, *SLOW_READ, "--disk-rate", f"{rows.parent}=3MB/s", *options)


def grown(path, min_bytes=1):
    return lambda: path.exists() and path.stat().st_size >= min_bytes


def test_kill_9_leaves_a_readable_trace(rows, tmp_path):
    trace = tmp_path / "killed.trace"
    process = reading(rows, "--trace", trace)
    # A trace is flushed at least once a second: wait for two blocks, so that the first is complete.
    binary.wait_until(grown(trace), process)
    first = trace.stat().st_size
    binary.wait_until(lambda: traces.read(trace).of["monotask"] and trace.stat().st_size > first, process)
    binary.kill(process)
    ran = binary.run("analyze", "--json", trace).check()
    source = ran.json()["source"]
    assert source["complete"] is False and source["tasks"] >= 1
    assert any(re.search("truncated|cut|killed", warning) for warning in source["warnings"]), source["warnings"]
    assert not binary.PANIC.search(ran.err)


def test_truncated_trace_is_read_up_to_the_cut(rows, tmp_path):
    whole = tmp_path / "whole.trace"
    binary.run("sql", f"SELECT sum(a) FROM '{rows}'", "--trace", whole).check()
    data = whole.read_bytes()
    for percent in (50, 80, 99):
        cut = tmp_path / f"cut{percent}.trace"
        cut.write_bytes(data[: len(data) * percent // 100])
        ran = binary.run("analyze", "--json", cut)
        assert not binary.PANIC.search(ran.err)
        if ran.code == 0:
            assert ran.json()["source"]["complete"] is False
        else:  # truncated within its first block: nothing can be read, which is an error
            assert ran.code == 1 and str(cut) in ran.err and ran.out == "", ran.err


def interrupted_after_s(start) -> float:
    """Returns the seconds from Ctrl-C to the exit of the process that `start` returns once it works."""
    process = start()
    sent = time.monotonic()
    code, out, err = binary.kill(process, signal.SIGINT)
    took = time.monotonic() - sent
    assert code == INTERRUPTED and out == "" and not binary.PANIC.search(err), f"exit {code}: {err}"
    return took


def test_ctrl_c_while_reading_stops_promptly(rows, tmp_path):
    def start():
        trace = tmp_path / "reading.trace"
        trace.unlink(missing_ok=True)
        process = reading(rows, "--trace", trace)
        binary.wait_until(lambda: trace.exists() and traces.read(trace).of["multitask"], process)
        return process

    assert min(interrupted_after_s(start) for _ in range(3)) < INTERRUPT_S


def test_ctrl_c_leaves_a_complete_trace(rows, tmp_path):
    path = tmp_path / "cancelled.trace"
    process = reading(rows, "--trace", path)
    binary.wait_until(lambda: path.exists() and traces.read(path).of["multitask"], process)
    assert binary.kill(process, signal.SIGINT)[0] == INTERRUPTED
    trace = traces.read(path)
    assert [end["outcome"] for end in trace.of["job_end"]] == ["cancelled"] and trace.of["end"], dict(trace.of)
    assert binary.run("analyze", "--json", path).check().json()["source"]["complete"] is True


def test_ctrl_c_while_computing_stops_promptly(rows):
    """A join whose condition no index supports: minutes of pure computing."""
    query = f"SELECT count(*) FROM '{rows}' x JOIN '{rows}' y ON x.a % 1000 < y.b % 1000 AND x.id < y.id"

    def start():
        process = binary.start("sql", query)
        # Wait for core time rather than time: until it is really computing.
        binary.wait_until(lambda: core_seconds(process.pid) > 1.0, process)
        return process

    assert min(interrupted_after_s(start) for _ in range(3)) < INTERRUPT_S


def core_seconds(pid: int) -> float:
    """Returns the core time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
