"""Reading Spark's event logs from every kind of source: files, folders, patterns, pipes, S3, a History Server.

Other tests check the content of logs (`crates/sparklog`, `test_analyze_spark.py`); the logs here are small and written by
the tests.
"""

import http.server
import io
import json
import os
import threading
import zipfile

import zstandard

from harness import binary
from harness.event_logs import events
from harness.stores import s3


def zstd(lines: list[bytes]) -> bytes:
    """Compresses lines as Spark does: one frame for each flush."""
    compressor = zstandard.ZstdCompressor()
    return b"".join(compressor.compress(line) for line in lines)


def sources(ran: binary.Ran) -> list[dict]:
    """Returns the sources that the command read, sorted by path."""
    document = ran.check().json()
    found = [analysis["source"] for analysis in document.get("analyses", [document])]
    return sorted(found, key=lambda source: source["path"])


def analyzed(*args: object, **options) -> list[dict]:
    """Returns the sources of `analyze ARGS`."""
    return sources(binary.run("analyze", "--json", *args, **options))


def test_logs_are_read_from_folders_patterns_and_files(tmp_path):
    (tmp_path / "app-1").write_bytes(b"".join(events("app-1")))
    (tmp_path / "app-2.misnamed").write_bytes(zstd(events("app-2", 6)))
    rolling = tmp_path / "eventlog_v2_app-3"
    rolling.mkdir()
    lines = events("app-3", 8)
    for number, part in ((1, lines[:6]), (2, lines[6:9]), (10, lines[9:])):
        (rolling / f"events_{number}_app-3.zstd").write_bytes(zstd(part))
    (rolling / "appstatus_app-3").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no log\n")
    (tmp_path / ".app-1.crc").write_bytes(b"crc")
    assert [(source["tasks"], source["complete"]) for source in analyzed(tmp_path)] == [(4, True), (6, True), (8, True)]
    assert [source["tasks"] for source in analyzed(tmp_path / "app-*")] == [4, 6]
    (alone,) = analyzed(rolling)
    assert (alone["kind"], alone["tasks"], alone["stages"], alone["jobs"]) == ("spark-event-log", 8, 1, 1)
    assert (alone["application"], alone["engine_version"]) == ("a", "3.5.6")


def test_log_in_progress_is_read_to_its_end(tmp_path):
    log = tmp_path / "app-1.inprogress"
    log.write_bytes(b"".join(events("app-1", ended=False)) + b'{"Event":"SparkListenerTaskE')
    (source,) = analyzed(log)
    assert source["tasks"] == 4 and not source["complete"]
    assert any("truncated within line" in warning for warning in source["warnings"])


def test_follow_ends_with_the_application(tmp_path):
    log, lines = tmp_path / "app-1.inprogress", events("app-1")
    log.write_bytes(b"".join(lines[:7]))
    process = binary.start("analyze", "--follow", log)
    try:
        # The first printed line shows that it has read the existing part.
        process.stdout.readline()
        with open(log, "ab") as file:
            file.writelines(lines[7:])
        log.rename(tmp_path / "app-1")
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out.strip()


def test_files_that_are_not_logs_are_refused(tmp_path):
    for name, content, why in [
        ("lines", b"not json\n", "trace"),
        ("json", b'{"a":1}\n', "not Spark events"),
        ("broken", b'{"Event":"SparkListenerLogSta', "truncated within line 1"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        ran = binary.run("analyze", path)
        assert ran.code == 1 and why in ran.err and str(path) in ran.err, ran.err
        assert not binary.PANIC.search(ran.err)
    ran = binary.run("analyze", tmp_path / "nothing-*")
    assert ran.code == 1 and "nothing-*" in ran.err


def test_unreadable_log_does_not_stop_the_others(tmp_path):
    (tmp_path / "app-1").write_bytes(b"".join(events("app-1")))
    (tmp_path / "bad").write_bytes(b'{"a":1}\n')
    (good,) = analyzed(tmp_path / "app-1", tmp_path / "bad")
    assert good["tasks"] == 4


def test_truncated_and_unreadable_logs_among_others_are_reported(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app-1").write_bytes(b"".join(events("app-1")))
    (logs / "app-2").write_bytes(b"".join(events("app-2", ended=False)) + b'{"Event":"SparkListenerTaskE')
    (logs / "app-3.bz2").write_bytes(b"BZh91AY&SY")
    # A short name, because long ones are truncated in the table.
    ran = binary.run("analyze", "logs", cwd=tmp_path).check()
    (whole,) = [line for line in ran.out.splitlines() if "app-1" in line]
    (cut,) = [line for line in ran.out.splitlines() if "app-2" in line]
    assert "!" in cut and "!" not in whole and "1 log with warnings" in ran.out, ran.out
    assert ran.err.count("truncated within line") == 1 and "app-2" in ran.err, ran.err
    assert "skipped 1 file" in ran.err and "app-3.bz2" in ran.err, ran.err
    document = binary.run("analyze", "--json", logs).check().json()
    assert [name for name in document["not_read"] if "app-3.bz2" in name] == document["not_read"] != []
    warnings = {analysis["source"]["path"]: analysis["source"]["warnings"] for analysis in document["analyses"]}
    assert len([text for text in warnings[str(logs / "app-2")] if "truncated within line" in text]) == 1
    assert warnings[str(logs / "app-1")] == []
    quiet = binary.run("analyze", "--redact", logs).check()
    assert "app-" not in quiet.out + quiet.err and "skipped 1 file" in quiet.err, quiet.err


def test_label_is_printed_once_and_survives_redaction(tmp_path):
    trace = tmp_path / "direct.trace"
    binary.sql("SELECT 1", None, "--io", "direct", "--trace", trace).check()
    label = "not the bare machine: page cache bypassed (direct I/O)"
    for options in ((), ("--redact",)):
        ran = binary.run("analyze", trace, *options).check()
        assert (ran.out + ran.err).count(label) == 1, ran.out + ran.err


def test_redacted_warning_omits_the_file_name(tmp_path):
    log = tmp_path / "acme payroll"
    lines = events("app-1")
    log.write_bytes(b"".join([*lines[:4], b"{broken\n", *lines[4:], b'{"Event":"Spark']))
    ran = binary.run("analyze", log, "--redact").check()
    assert "invalid JSON at byte" in ran.err and "is truncated within line" in ran.err, ran.err
    assert "acme" not in ran.out + ran.err and "payroll" not in ran.out + ran.err


def test_log_is_read_from_a_pipe(tmp_path):
    """The log is longer than the part that is inspected to detect its format."""
    lines = events("app-1", 1000)
    assert sum(map(len, lines)) > 200_000
    for content in (b"".join(lines), zstd(lines)):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        process = binary.start("analyze", "--json", pipe)
        pipe.write_bytes(content)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        source = json.loads(out)["source"]
        assert (source["tasks"], source["application"], source["path"]) == (1000, "a", str(pipe)), source
        assert source["warnings"] == []
        pipe.unlink()


def test_redacted_traces_are_numbered(tmp_path):
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"secret-{number}.trace")
        binary.sql("SELECT 1", None, "--trace", paths[-1]).check()
    text = binary.run("analyze", "--redact", *paths).check()
    assert "trace 0:" in text.out and "trace 1:" in text.out
    assert "secret" not in text.out + text.err
    assert "secret-1.trace:" in binary.run("analyze", *paths).check().out


def test_trace_is_read_from_s3(tmp_path):
    trace = tmp_path / "q.trace"
    binary.sql("SELECT 1", None, "--trace", trace).check()
    with s3.serving() as (servers, bucket):
        bucket.objects["folder/q.trace"] = trace.read_bytes()
        (source,) = analyzed("s3://bucket/folder/q.trace", env=dict(os.environ) | servers)
    assert (source["kind"], source["path"]) == ("pellucid-trace", "s3://bucket/folder/q.trace")


def test_logs_are_read_from_s3():
    with s3.serving() as (servers, bucket):
        bucket.objects["logs/app-1"] = b"".join(events("app-1"))
        bucket.objects["logs/eventlog_v2_app-2/events_1_app-2"] = zstd(events("app-2", 6))
        bucket.objects["logs/eventlog_v2_app-2/appstatus_app-2"] = b""
        environment = dict(os.environ) | servers
        found = analyzed("s3://bucket/logs", env=environment)
        assert [(source["path"], source["tasks"]) for source in found] == [
            ("s3://bucket/logs/app-1", 4),
            ("s3://bucket/logs/eventlog_v2_app-2", 6),
        ]
        assert [source["tasks"] for source in analyzed("s3://bucket/logs/app-1", env=environment)] == [4]
        ran = binary.run("analyze", "s3://bucket/nothing", env=environment)
        assert ran.code == 1 and "s3://bucket/nothing" in ran.err


class History(http.server.BaseHTTPRequestHandler):
    """A History Server that answers one download."""

    def do_GET(self):
        if self.path != "/api/v1/applications/app-1/2/logs":
            self.send_error(404)
            return
        archive = io.BytesIO()
        with zipfile.ZipFile(Unseekable(archive), "w", zipfile.ZIP_DEFLATED) as files:
            files.writestr("eventlog_v2_app-1_2/events_1_app-1_2", b"".join(events("app-1")))
            files.writestr("eventlog_v2_app-1_2/appstatus_app-1_2", b"")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(archive.getvalue())

    def log_message(self, *_):
        pass


class Unseekable(io.RawIOBase):
    """A file that cannot seek, so that lengths follow the entries, as Java's writer puts them."""

    def __init__(self, target: io.BytesIO):
        self.target = target

    def writable(self):
        return True

    def write(self, data):
        return self.target.write(data)


def test_log_is_read_from_a_history_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), History)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        root = f"http://127.0.0.1:{server.server_port}"
        (source,) = analyzed(f"{root}/history/app-1/2/jobs/")
        assert (source["tasks"], source["path"]) == (4, f"{root}/history/app-1/2/jobs")
        ran = binary.run("analyze", f"{root}/history/app-9")
        assert ran.code == 1 and "404" in ran.err and "History Server" in ran.err
    finally:
        server.shutdown()
        server.server_close()
