"""The output of `pellucid export`, read by other tools' own definitions: Perfetto's and OTLP's protobuf, and DuckDB."""

import subprocess
from collections import defaultdict

import duckdb
import pytest

from harness import binary, traces

QUERY = "SELECT k % 7, count(*), max(v) FROM t GROUP BY 1 ORDER BY 1"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A trace's path, and the trace as the tests' own reader parses it."""
    folder = tmp_path_factory.mktemp("export")
    for part in range(4):
        duckdb.sql(f"""COPY (SELECT i AS k, hash(i) % 1000 AS v FROM range(100000) t(i))
                       TO '{folder}/part-{part}.parquet'""")
    path = folder / "query.trace"
    binary.run("sql", QUERY, "--table", f"t={folder}/*.parquet", "--io", "direct", "--trace", path).check()
    return path, traces.read(path)


def export(trace, to: str):
    path = trace.with_name(f"out-{to}")
    if not path.exists():
        binary.run("export", trace, "--to", to, "-o", path).check()
    return path


def test_export_writes_to_a_pipe(recorded):
    path, _ = recorded
    ran = subprocess.run([binary.binary(), "export", path, "--to", "otlp", "-o", "/dev/stdout"], capture_output=True, check=True)
    assert ran.stdout == export(path, "otlp").read_bytes()


def test_perfetto_export_matches_the_trace(recorded):
    """Reads the file with Perfetto's message definitions.

    The importer itself is a program that the Perfetto package downloads; tests download nothing.
    """
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    path, trace = recorded
    parsed = messages.Trace()
    parsed.ParseFromString(export(path, "perfetto").read_bytes())
    names, annotations, tracks, open_at = {}, {}, {}, {}
    slices, counters = defaultdict(list), 0
    for packet in parsed.packet:
        assert packet.trusted_packet_sequence_id == 1
        names |= {name.iid: name.name for name in packet.interned_data.event_names}
        annotations |= {name.iid: name.name for name in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        event = packet.track_event
        if not packet.HasField("track_event"):
            continue
        assert event.track_uuid in tracks, "an event before its track"
        if event.type == messages.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_at, "slices of one track overlap"
            open_at[event.track_uuid] = (packet.timestamp, event)
        elif event.type == messages.TrackEvent.TYPE_SLICE_END:
            started, begin_event = open_at.pop(event.track_uuid)
            values = {annotations[a.name_iid]: a.uint_value for a in begin_event.debug_annotations}
            slices[begin_event.name or names[begin_event.name_iid]].append((started, packet.timestamp - started, values))
        elif event.type == messages.TrackEvent.TYPE_COUNTER:
            counters += 1
    assert open_at == {}
    for track in tracks.values():
        assert not track.parent_uuid or track.parent_uuid in tracks
    for phase in {m["phase"] for m in trace.of["monotask"]}:
        expect = [m for m in trace.of["monotask"] if m["phase"] == phase]
        assert len(slices[phase]) == len(expect)
        assert sum(length for _, length, _ in slices[phase]) == sum(m["service_ns"] for m in expect)
        assert sum(v.get("queue_ns", 0) for *_, v in slices[phase]) == sum(m["queue_ns"] for m in expect)
    assert QUERY in slices and counters >= len(trace.of["utilization_sample"])


def test_parquet_export_matches_the_trace(recorded):
    path, trace = recorded
    folder = export(path, "parquet")
    rows = lambda query: duckdb.sql(query.replace("$", str(folder))).fetchall()
    kinds = ["stack", "machine", "resource", "job", "stage", "multitask", "monotask", "pipelined_task", "sampled_task"]
    for kind in [*kinds, "storage_operation", "utilization_sample"]:
        [(count,)] = rows(f"SELECT count(*) FROM '$/{kind}s.parquet'")
        assert count == len(trace.of[kind]), kind
    by_phase = rows("""SELECT phase, count(*), sum(service_ns), sum(bytes), sum(decode_ns)
                       FROM '$/monotasks.parquet' GROUP BY 1""")
    for phase, count, service_ns, moved, decode_ns in by_phase:
        of = [m for m in trace.of["monotask"] if m["phase"] == phase]
        assert (count, service_ns) == (len(of), sum(m["service_ns"] for m in of))
        # A value that was not measured is NULL, never 0.
        for key, got in [("bytes", moved), ("decode_ns", decode_ns)]:
            measured = [m[key] for m in of if key in m]
            assert got == (sum(measured) if measured else None), (phase, key)
    [(outside,)] = rows("""SELECT count(*) FROM '$/monotasks.parquet' m JOIN '$/stages.parquet' s ON m.stage = s.id
                           WHERE m.queued_ns < s.submitted_ns OR m.started_ns + m.service_ns > s.ended_ns""")
    assert outside == 0
    [(name, submitted, ended, outcome)] = rows("SELECT name, submitted_ns, ended_ns, outcome FROM '$/jobs.parquet'")
    assert (name, outcome) == (QUERY, "ok") and ended > submitted


def test_otlp_export_matches_the_trace(recorded):
    proto = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    from google.protobuf import json_format

    path, trace = recorded
    text = export(path, "otlp").read_text()
    parsed = json_format.Parse(text, proto.TracesData())
    spans = {}
    for of_resource in parsed.resource_spans:
        keys = {attribute.key for attribute in of_resource.resource.attributes}
        assert "service.name" in keys
        for span in of_resource.scope_spans[0].spans:
            # The protobuf library parses identifiers as base64; OTLP/JSON has hexadecimal.
            ident = json_format.MessageToDict(span)["spanId"]
            assert len(ident) == 16 and int(ident, 16) and ident not in spans
            spans[ident] = span
    expect = len(trace.of["job"]) + len(trace.of["stage"]) + len(trace.of["monotask"])
    expect += len({m["multitask"] for m in trace.of["monotask"]})
    assert len(spans) == expect
    origin = trace.header["origin_unix_ns"]
    for span in spans.values():
        parent = json_format.MessageToDict(span).get("parentSpanId")
        assert parent in spans if parent else span.name == "job 0"
        if parent:
            around = spans[parent]
            assert around.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= around.end_time_unix_nano
        assert span.start_time_unix_nano >= origin


def test_existing_folder_is_not_overwritten(recorded, tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    ran = binary.run("export", recorded[0], "--to", "parquet", "-o", tmp_path)
    assert ran.code == 2 and "already exists" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
    ran = binary.run("export", recorded[0], "--to", "xml", "-o", tmp_path / "x")
    assert ran.code == 2 and "perfetto" in ran.err
