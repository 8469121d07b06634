"""However a query ends, its output is complete or absent, and its trace can be read. Outputs replace only what they may.

Queries are ended by kill -9, by Ctrl-C and by a full disk, while they read, compute and write. The engine paces reads and
writes (`--disk-rate`, `--network-rate`), so that the end comes in the middle without a sleep. If the machine allows it, a
small disk is really filled.
"""

import fcntl
import os
import re
import signal
import stat
import subprocess
import time

import pytest

from harness import binary, traces
from harness.damage import fill
from harness.sql import oracle
from harness.stores import s3
from harness.threads import core_seconds
from lab import disks, kernel

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
        f"COPY (SELECT i AS id, hash(i) AS a, hash(i + 1) AS b FROM range(2000000) r(i)) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 122880)"
    )
    return path


def bytes_in(folder) -> int:
    """Returns the size of all files in a folder, temporary ones included."""
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def copying(rows, folder, ending, *options):
    """Starts a COPY TO whose writes are paced to 2 MB/s, and waits until part of it is on disk."""
    target = folder / f"out.{ending}"
    process = binary.start("sql", f"COPY (SELECT * FROM '{rows}') TO '{target}'", "--disk-rate", f"{folder}=2MB/s", *options)
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
    binary.run("sql", f"SELECT sum(id) FROM '{rows}'", "--trace", whole).check()
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


@pytest.mark.alone
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


@pytest.mark.alone
def test_ctrl_c_while_computing_stops_promptly(rows):
    """A join whose condition no index supports: minutes of pure computing."""
    query = f"SELECT count(*) FROM '{rows}' x JOIN '{rows}' y ON x.a % 1000 < y.b % 1000 AND x.id < y.id"

    def start():
        process = binary.start("sql", query)
        # Wait for core time rather than time: until it is really computing.
        binary.wait_until(lambda: core_seconds(process.pid) > 1.0, process)
        return process

    assert min(interrupted_after_s(start) for _ in range(3)) < INTERRUPT_S


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A small table, and the trace of a query over it."""
    folder = tmp_path_factory.mktemp("inputs")
    points = folder / "points.parquet"
    oracle.connect().execute(f"COPY (SELECT i / 10.0 AS x, i % 7 AS y FROM range(100) r(i)) TO '{points}' (FORMAT parquet)")
    trace = folder / "q.trace"
    binary.run("sql", f"SELECT sum(x) FROM '{points}'", "--trace", trace).check()
    return points, trace


# By name: the arguments that write a file, and the name of the file.
WRITERS = {
    "sql": (lambda points, trace, out: ["sql", f"SELECT * FROM '{points}'", "-o", out], "out.csv"),
    "report": (lambda points, trace, out: ["report", trace, "-o", out], "out.html"),
    "export": (lambda points, trace, out: ["export", trace, "--to", "otlp", "-o", out], "out.json"),
    "iterate": (lambda points, trace, out: ["iterate", "kmeans", points, "--k", 2, "-o", out], "out.parquet"),
    "generate": (lambda points, trace, out: [*GENERATE, out.parent, "--force"], "region.parquet"),
}
GENERATE = ("generate", "tpch", "--scale", "0.001", "--tables", "region")
writers = pytest.mark.parametrize(("arguments", "name"), WRITERS.values(), ids=WRITERS)


@writers
def test_output_keeps_mode_owner_and_link_of_the_file_that_it_replaces(inputs, folder, tmp_path, arguments, name):
    real, link = tmp_path / "real", folder / name
    real.write_text("the old one")
    real.chmod(0o600)
    root = os.geteuid() == 0
    if root:
        os.chown(real, 1234, 2345)
    link.symlink_to(real)
    for _ in range(2):
        binary.run(*arguments(*inputs, link)).check()
        assert link.is_symlink() and os.listdir(folder) == [name]
        found = real.stat()
        assert found.st_size > 20 and stat.S_IMODE(found.st_mode) == 0o600
        assert not root or (found.st_uid, found.st_gid) == (1234, 2345)
    assert sorted(os.listdir(tmp_path)) == ["out", "real"]


@writers
def test_output_follows_no_link_planted_under_a_temporary_name(inputs, folder, tmp_path, arguments, name):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    planted = [f".{name}.$$", f".{name}.$$.partial", f".{name}.$$-0.partial", f".{name}.partial"]
    links = "; ".join(f'ln -s "$0" "{folder}/{link}"' for link in planted)
    command = [binary.binary(), *arguments(*inputs, folder / name)]
    ran = subprocess.run(["sh", "-c", f'{links}; exec "$@"', victim, *map(str, command)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert victim.read_text() == "mine"
    assert (folder / name).is_file() and not (folder / name).is_symlink()
    assert len(os.listdir(folder)) == len(planted) + 1, os.listdir(folder)


def test_exported_folder_is_whole_and_keeps_mode_and_link(inputs, tmp_path):
    _, trace = inputs
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    command = ["export", trace, "--to", "parquet", "-o", link]
    binary.run(*command).check()
    tables = sorted(os.listdir(real))
    assert "monotasks.parquet" in tables and stat.S_IMODE(real.stat().st_mode) == 0o700
    assert link.is_symlink() and sorted(os.listdir(tmp_path)) == ["link", "real"]
    again = binary.run(*command)
    assert again.code == 2 and "already exists" in again.err, again.err
    assert sorted(os.listdir(real)) == tables


def refused(*args, says: str, keeps: dict) -> None:
    """Checks that a command is refused as wrong usage, and leaves the files as they are."""
    ran = binary.run(*args)
    assert ran.code == 2 and ran.err.startswith("error: cannot write ") and says in ran.err, f"exit {ran.code}: {ran.err}"
    assert ran.out == "" and not binary.PANIC.search(ran.err)
    for path, text in keeps.items():
        assert (path.read_bytes() if path.exists() else None) == text, path


def test_output_that_is_an_input_is_refused(inputs, tmp_path):
    points, trace = (tmp_path / path.name for path in inputs)
    for path, source in zip((points, trace), inputs, strict=True):
        path.write_bytes(source.read_bytes())
    kept = {path: path.read_bytes() for path in (points, trace)}
    hard, soft = tmp_path / "hard.parquet", tmp_path / "soft.html"
    hard.hardlink_to(points)
    soft.symlink_to(trace)
    replaces = "-o would replace an input of the command; choose another file"
    refused("report", trace, "-o", trace, says=replaces, keeps=kept)
    refused("report", trace, "-o", soft, says=replaces, keeps=kept)
    refused("export", trace, "--to", "perfetto", "-o", trace, says=replaces, keeps=kept)
    kmeans = ("iterate", "kmeans")
    refused(*kmeans, points, "--k", 2, "-o", points, says=replaces, keeps=kept)
    refused(*kmeans, points, "--k", 2, "-o", hard, says=replaces, keeps=kept)
    refused(*kmeans, tmp_path / "p*.parquet", "--k", 2, "-o", points, says=replaces, keeps=kept)
    centers = tmp_path / "centers.parquet"
    centers.write_text("centers")
    refused(*kmeans, points, "--init", centers, "-o", centers, says=replaces, keeps=kept | {centers: b"centers"})
    for name, text in (("q.sql", "SELECT 1 AS x"), ("m.json", "{}")):
        (tmp_path / name).write_text(text)
        kept[tmp_path / name] = text.encode()
    replaces = replaces.removeprefix("-o")
    refused("sql", "-f", tmp_path / "q.sql", "--trace", tmp_path / "q.sql", says="--trace" + replaces, keeps=kept)
    manifest = tmp_path / "m.json"
    refused("backtest", manifest, "--residuals", manifest, says="--residuals" + replaces, keeps=kept)
    refused("storage", "probe", tmp_path, "--read", manifest, "-o", manifest, says="-o" + replaces, keeps=kept)


def test_two_outputs_of_one_name_are_refused(inputs, tmp_path):
    points, _ = inputs
    same, link = tmp_path / "same.parquet", tmp_path / "link"
    link.symlink_to("same.parquet")
    for trace in (same, link, tmp_path / "." / ".." / tmp_path.name / same.name):
        says = "-o and --trace name the same file; choose another file"
        refused("sql", "SELECT 1 AS x", "-o", same, "--trace", trace, says=says, keeps={same: None})
        refused("iterate", "kmeans", points, "--k", 2, "-o", same, "--trace", trace, says=says, keeps={same: None})
    # The engine learns of this output when it plans the statement.
    ran = binary.run("sql", f"COPY (SELECT 1 AS x) TO '{same}'", "--trace", same)
    assert ran.code == 1 and f"cannot write {same}: the trace is written to it; choose another file" in ran.err, ran.err


def test_trace_replaces_traces_and_empty_files_only(inputs, tmp_path):
    points, trace = (tmp_path / path.name for path in inputs)
    points.write_bytes(inputs[0].read_bytes())
    table, hard, soft = tmp_path / "t.csv", tmp_path / "hard", tmp_path / "soft"
    table.write_text("x,y\n1,2\n3,4\n")
    hard.hardlink_to(points)
    soft.symlink_to(table)
    kept = {path: path.read_bytes() for path in (points, table)}
    says = "it exists and is not a trace; choose another path, or remove the file first"
    for place in (points, hard, table, soft):
        for query in (f"SELECT count(*) FROM '{points}'", f"SELECT sum(x) FROM '{table}'", "SELECT 1"):
            refused("sql", query, "--trace", place, says=says, keeps=kept)
        refused("iterate", "kmeans", points, "--k", 2, "--trace", place, says=says, keeps=kept)
        refused("sql", "--on", "spark", "SELECT 1", "--trace", place, says=says, keeps=kept)
    trace.touch()
    for query in ("SELECT 1", "SELECT 2"):
        binary.run("sql", query, "--trace", trace).check()
        assert traces.read(trace).of["job"][0]["name"] == query
    # A trace that was cut or damaged after its header is still one.
    trace.write_bytes(trace.read_bytes()[:-9] + b"damage")
    binary.run("sql", "SELECT 3", "--trace", trace).check()
    assert traces.read(trace).of["job"][0]["name"] == "SELECT 3"


def test_statement_may_replace_the_table_that_it_reads(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x\n1\n2\n")
    binary.run("sql", f"SELECT x + 1 AS x FROM '{table}' ORDER BY x", "-o", table).check()
    assert table.read_text().split() == ["x", "2", "3"] and os.listdir(tmp_path) == ["t.csv"]


def test_rows_are_not_written_to_a_pipe(tmp_path):
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    ran = binary.run("sql", "SELECT 1 AS x", "-o", pipe, timeout=60)
    assert ran.code == 1 and f"cannot write {pipe}: it is a device or a pipe; name a file" in ran.err, ran.err
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_second_writer_of_tables_is_refused(folder):
    holder = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        ran = binary.run(*GENERATE, folder)
    finally:
        os.close(holder)
    assert ran.code == 1 and f"cannot write to {folder}: another process is writing tables there" in ran.err, ran.err
    assert os.listdir(folder) == []
    binary.run(*GENERATE, folder).check()
    assert os.listdir(folder) == ["region.parquet"]
