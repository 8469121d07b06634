"""`pellucid storage`: rank, probe and doctor, and every backend as a real service."""

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyarrow import fs

from bench.storage import measured
from bench.storage.sections import commits
from harness import binary
from harness.sql import breadth, oracle
from harness.stores import ceph, s3, services
from harness.stores.credentials import decompressed, no_secret, outputs_of
from lab import cache, guard, links

SCENARIOS = binary.ROOT / "crates" / "storage" / "scenarios"
# HDFS and MinIO take minutes to build or to start: `make test-storage`.
SERVICES = ["s3s-fs", "swift", *(pytest.param(name, marks=pytest.mark.full) for name in ("hdfs", "minio"))]
SCALE = 0.05
# Parts of incomplete uploads: s3s-fs stores them next to the objects, MinIO among its system files.
PARTS = re.compile(r"\.upload_id-.*part|\.minio\.sys/multipart/.*part\.")


@pytest.fixture(scope="module", params=SERVICES)
def service(request, tmp_path_factory):
    """A running service; one at a time."""
    try:
        with services.ALL[request.param](tmp_path_factory.mktemp(request.param)) as running:
            yield running
    except services.Missing as why:
        pytest.skip(f"{request.param} does not run here: {why}")


def rank(*names: str) -> dict:
    return binary.run("storage", "rank", "--json", *(SCENARIOS / f"{name}.toml" for name in names)).check().json()


def test_rank_reproduces_table_1():
    document = rank("gc", "gc-vs", "gc-vb", "nc", "swi")
    assert document["format"] == "pellucid.rank/1"

    def table(way: str) -> list:
        return [(p["rank"], p["composition"], p["links"]) for p in document[way]]

    assert table("read") == [(1, "GC", 0), (2, "GC-Vs", 2), (2, "GC-Vb", 2), (2, "NC", 2), (3, "SWI", 4)]
    assert table("write") == [(1, "GC", 3), (2, "GC-Vs", 4), (2, "NC", 4), (2, "SWI", 4), (3, "GC-Vb", 15)]
    assert all(len(p["hops"]) == p["links"] for way in ("read", "write") for p in document[way])
    found = {f["title"]: f["factor"] for f in document["findings"]}
    assert found == {"GC-Vb: both layers replicate": 9, "SWI: every byte passes a proxy": None}
    text = binary.run("storage", "rank", SCENARIOS / "swi.toml").check().out
    assert "Spark ──▶ proxy ──▶ Swift 1–3  2" in text


def test_rank_counts_links_of_s3_and_erasure_code():
    document = rank("s3", "erasure")
    for way in ("read", "write"):
        assert {p["composition"]: p["links"] for p in document[way]} == {"S3": 6, "GC-EC": 4}


def test_invalid_composition_is_located(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text((SCENARIOS / "gc.toml").read_text().replace("copies = 3", "copies = 0"))
    ran = binary.run("storage", "rank", file)
    assert ran.code == 1 and f"{file}:11: 0 copies hold no data; use 1 or more" in ran.err, ran.err
    file.write_text((SCENARIOS / "gc.toml").read_text().replace("copies = 3", "copies = 2000000000"))
    many = binary.run("storage", "rank", file)
    assert many.code == 1 and f"{file}:11: 2000000000 copies are more than any system keeps" in many.err, many.err
    twice = binary.run("storage", "rank", SCENARIOS / "gc.toml", SCENARIOS / "gc.toml")
    assert twice.code == 2 and "both are named GC" in twice.err, twice.err


def test_service_passes_the_conformance_suite(service):
    """Runs `crates/storage-testing/src/conformance.rs` plain, wrapped, and with every fault."""
    example = binary.binary().parent / "examples" / "conformance"
    if not example.exists():
        pytest.fail(f"{example} does not exist: `cargo build --release --workspace --examples`")
    ran = subprocess.run([example, f"{service.url}/suite"], env=service.env(), capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    no_secret(ran.stdout, ran.stderr)
    # HDFS has real folders, and the suite leaves its own. No store may keep files.
    left = {path for path in service.files() if not (service.name == "hdfs" and path.endswith("/"))}
    assert not left, left


def probe(service, *options, **settings) -> binary.Ran:
    return binary.run("storage", "probe", f"{service.url}/probed", *options, env=service.env(), **settings)


def test_probe_measures_and_leaves_nothing(service, tmp_path):
    before, report = service.files(), tmp_path / "probe.json"
    # Takes this long only on a busy machine; a measurement that does not fit is null.
    ran = probe(service, "--seconds", "45", "--bytes", "512MiB", "--json", "-o", report).check()
    document = ran.json()
    assert document["format"] == "pellucid.probe/1" and document["url"] in service.url
    assert json.loads(report.read_text()) == json.loads(ran.out)
    assert {r["pattern"] for r in document["read"]} == {"sequential", "random"}
    assert all(r["bytes_per_s"] > 0 and r["first_byte_ms"]["median"] <= r["first_byte_ms"]["p99"] for r in document["read"])
    assert document["write_bytes_per_s"] > 0 and document["small_objects_per_s"] > 0 and document["list_per_s"] > 0
    # HDFS's name node renames; an object store can only copy.
    assert document["rename"]["is_copy"] == (service.name != "hdfs"), document["rename"]
    assert document["commit"]["rename_ms"] > 0 and document["commit"]["multipart_ms"] > 0 and document["commit"]["request_ms"] > 0
    assert document["upload"]["bytes"] >= 10 << 20 and document["upload"]["sent_ms"] > 0, document["upload"]
    assert document["read_from"] == "written" and document["read_after_write"] is True
    no_secret(ran.out, ran.err, report.read_text())
    assert service.files() == before


def test_probe_reads_existing_objects_and_keeps_them(service):
    lines = f"SELECT repeat('x', 199) AS line FROM range({100_000})"
    binary.sql(f"COPY ({lines}) TO '{service.url}/there/lines.csv' STORED AS CSV", env=service.env()).check()
    before = service.files()
    document = probe(service, "--read", f"{service.url}/there", "--seconds", "10", "--bytes", "256MiB", "--json").check().json()
    assert document["read_from"] == "existing", document
    # 20 MB are two pieces of 8 MiB, each read once: too few for more than one concurrent request.
    assert [r["concurrency"] for r in document["read"] if r["pattern"] == "sequential"] == [1], document["read"]
    assert service.files() == before
    nothing = probe(service, "--read", f"{service.url}/none", "--seconds", "10")
    assert nothing.code == 1 and "8 MiB" in nothing.err, nothing.err
    elsewhere = probe(service, "--read", "s3://elsewhere/there")
    assert elsewhere.code == 2 and "same store" in elsewhere.err, elsewhere.err
    no_secret(nothing.err, elsewhere.err)
    assert service.files() == before


def started_probe(service, condition=lambda new: len(new) >= 4) -> subprocess.Popen:
    """Starts a probe and waits until the new files in the store satisfy `condition`."""
    before = service.files()
    process = binary.start("storage", "probe", f"{service.url}/killed", "--seconds", "60", env=service.env())
    binary.wait_until(lambda: condition(service.files() - before), process)
    return process


def test_probe_cleans_up_after_ctrl_c_and_kill(service):
    before = service.files()
    code, out, err = binary.kill(started_probe(service), signal.SIGINT)
    assert code == 130, err
    no_secret(out, err)
    assert service.files() == before
    binary.kill(started_probe(service), signal.SIGKILL)
    assert len(service.files()) > len(before)
    binary.run("storage", "probe", f"{service.url}/killed", "--seconds", "2", "--bytes", "64MiB", env=service.env()).check()
    assert service.files() == before


def test_probe_stopped_during_an_upload_leaves_no_parts(service):
    """The store has parts of the fifth upload, the large one, and no object of its name."""
    if "s3" not in service.url:
        pytest.skip("uploads have names in S3 only")

    def parts(files: set[str]) -> set[str]:
        return {path for path in files if PARTS.search(path)}

    def uploading(new: set[str]) -> bool:
        return any("/commit/upload-4" in path for path in new) and bool(parts(new))

    before = service.files()
    code, out, err = binary.kill(started_probe(service, uploading), signal.SIGINT)
    assert code == 130, err
    no_secret(out, err)
    assert service.files() == before
    # An upload may end before the signal arrives.
    for _ in range(10):
        binary.kill(started_probe(service, uploading), signal.SIGKILL)
        if parts(service.files()):
            break
    else:
        pytest.fail("no upload was met under way")
    binary.run("storage", "probe", f"{service.url}/killed", "--seconds", "2", "--bytes", "64MiB", env=service.env()).check()
    assert service.files() == before


def test_next_probe_removes_leftovers_of_a_killed_one(tmp_path):
    (tmp_path / "theirs").write_text("x")
    for files in (1, 2, 5, 12, 40):
        process = binary.start("storage", "probe", tmp_path, "--seconds", "20", "--bytes", "256MiB")
        binary.wait_until(lambda: sum("#" not in path.name for path in tmp_path.rglob("*")) > files + 1, process)
        binary.kill(process, signal.SIGKILL)
        assert len(list(tmp_path.rglob("*"))) > 1
        binary.run("storage", "probe", tmp_path, "--seconds", "1", "--bytes", "64MiB").check()
        assert [path.name for path in tmp_path.rglob("*")] == ["theirs"], files


def test_next_probe_removes_a_folder_whose_owner_was_not_published(tmp_path):
    process = binary.start("storage", "probe", tmp_path, "--seconds", "20", "--bytes", "256MiB")
    binary.wait_until(lambda: list(tmp_path.glob("*/owner.json")), process)
    binary.kill(process, signal.SIGKILL)
    [folder] = tmp_path.iterdir()
    (folder / "owner.json").rename(folder / "owner.json#1")
    binary.run("storage", "probe", tmp_path, "--seconds", "1", "--bytes", "64MiB").check()
    assert not list(tmp_path.iterdir())


def test_folder_probe_leaves_no_files(tmp_path):
    (tmp_path / "theirs").write_text("x")
    document = binary.run("storage", "probe", tmp_path, "--seconds", "2", "--bytes", "512MiB", "--json").check().json()
    assert document["rename"]["is_copy"] is False and document["url"].startswith("file://")
    assert [path.name for path in tmp_path.rglob("*")] == ["theirs"]
    missing = binary.run("storage", "probe", tmp_path / "none")
    assert missing.code == 2 and "name a folder or a URL" in missing.err
    small = binary.run("storage", "probe", tmp_path, "--bytes", "1MiB")
    assert small.code == 2 and "at least 17MiB" in small.err, small.err
    unknown = binary.run("storage", "probe", "ftp://bucket/folder")
    assert unknown.code == 2 and "ftp://bucket" in unknown.err


def test_probe_prints_its_report_when_the_file_cannot_be_written(tmp_path):
    """The folder's name has characters that store paths encode."""
    place = tmp_path / "a~Müller%25"
    place.mkdir()
    ran = binary.run("storage", "probe", place, "--seconds", "1", "--bytes", "64MiB", "--json", "-o", tmp_path / "none" / "p.json")
    assert ran.code == 1 and "p.json" in ran.err, ran.err
    assert ran.json()["read_after_write"] is True and ran.json()["read"]
    assert [path.name for path in tmp_path.rglob("*")] == [place.name]


@pytest.fixture(scope="module")
def uploaded(service):
    """TPC-H in the service, written by `COPY`; the local folder and the tables' URLs."""
    data = binary.ensure_data("tpch", SCALE)
    names = [Path(t).stem for t in binary.tables(data)[1::2]]
    for name in names:
        target = f"{service.url}/tpch/{name}.parquet"
        binary.sql(f"COPY {name} TO '{target}' STORED AS PARQUET", data, env=service.env()).check()
    return data, {name: f"{service.url}/tpch/{name}.parquet" for name in names}


QUICK = (1, 3, 6, 9, 13, 18)
QUERIES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.full) for n in range(1, 23)]


@pytest.mark.parametrize("number", QUERIES)
def test_answers_match_local_files(service, uploaded, number, tmp_path):
    data, tables = uploaded
    query, trace = oracle.text_for_pellucid("tpch", number), tmp_path / "query.trace"
    local = binary.result(binary.sql(query, data))
    options = [part for name, url in tables.items() for part in ("--table", f"{name}={url}")]
    ran = binary.sql(query, None, *options, "--trace", trace, env=service.env())
    remote = binary.result(ran)
    assert (remote.columns, remote.rows) == (local.columns, local.rows)
    no_secret(ran.out, ran.err, *outputs_of(trace))


def test_slow_link_is_the_bottleneck(service, uploaded):
    _, tables = uploaded
    query = f"SELECT sum(l_extendedprice * l_discount), count(DISTINCT l_comment) FROM '{tables['lineitem']}'"
    job = binary.result(binary.sql(query, None, "--network-rate", "2MB/s", env=service.env())).job
    assert job["bottleneck"]["kind"] in ("network", "store"), job["bottleneck"]


def test_shaped_link_makes_store_or_network_the_bottleneck(tmp_path):
    """The link is shaped by `lab.links`, not paced by the engine."""
    if why := links.missing():
        pytest.skip(why)
    data = binary.ensure_data("tpch", SCALE)
    here = dict(part.split("=", 1) for part in binary.tables(data)[1::2])["lineitem"]
    try:
        with guard.watch(), links.link() as link, services.s3s_fs(tmp_path, services.Place(link.server, link.inside)) as s3s:
            target = f"{s3s.url}/lineitem.parquet"
            binary.run("sql", f"COPY (SELECT * FROM '{here}') TO '{target}' STORED AS PARQUET", env=s3s.env()).check()
            link.set("20Mbit/s")
            query = f"SELECT sum(l_extendedprice * l_discount), count(DISTINCT l_comment) FROM '{target}'"
            job = binary.result(binary.sql(query, None, env=s3s.env())).job
    except services.Missing as why:
        pytest.skip(str(why))
    assert job["bottleneck"]["kind"] in ("network", "store"), job["bottleneck"]
    assert float(job["ideal_ms"]["cpu"]) < 0.5 * float(job["duration_ms"]), job["ideal_ms"]


def read_bytes(pids: list[int]) -> int:
    """Returns the bytes that the processes have read from devices so condition."""
    fields = (line.split(": ") for pid in pids for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return sum(int(value) for name, value in fields if name == "read_bytes")


@pytest.mark.full
def test_ceph_volumes_store_their_copies_and_read_from_osds(tmp_path):
    """Each byte is stored by as many OSDs as requested, and nothing is cached on the client's side."""
    lines = "SELECT md5(cast(value AS VARCHAR)) AS line FROM range(1000000)"
    query = "SELECT count(*), count(DISTINCT line), max(line) FROM '{}'"
    here = tmp_path / "lines.csv"
    binary.sql(f"COPY ({lines}) TO '{here}' STORED AS CSV").check()
    expected, size = binary.result(binary.sql(query.format(here))).rows, here.stat().st_size
    try:
        with guard.watch(), ceph.cluster(tmp_path) as cluster:
            for copies in (1, 2):
                volume = cluster.volume(f"v{copies}", copies)
                before, there = cluster.stored_bytes(), volume / "lines.csv"
                binary.sql(f"COPY ({lines}) TO '{there}' STORED AS CSV").check()
                subprocess.run(["sync", "-f", volume], check=True)
                stored = (cluster.stored_bytes() - before) / size
                assert 0.9 * copies < stored < 1.6 * copies, f"{stored} bytes stored per byte"
                for _ in range(2):
                    cache.evict([there])
                    before = read_bytes(cluster.pids)
                    assert binary.result(binary.sql(query.format(there))).rows == expected
                    assert read_bytes(cluster.pids) - before > 0.9 * size
    except services.Missing as why:
        pytest.skip(str(why))


@pytest.mark.full
def test_hdfs_stores_a_replica_on_each_disk(tmp_path):
    disks = [tmp_path / name for name in ("a", "b")]
    try:
        with services.hdfs(tmp_path, disks=disks) as running:
            binary.sql(f"COPY (SELECT repeat('x', 99) FROM range(100000)) TO '{running.url}/x.csv'", env=running.env()).check()
            sizes = [sum(f.stat().st_size for f in disk.rglob("blk_*") if f.suffix != ".meta") for disk in disks]
    except services.Missing as why:
        pytest.skip(str(why))
    assert sizes[0] == sizes[1] >= 10_000_000, sizes


def test_multipart_output_is_complete(service, tmp_path):
    """The file does not fit a single part, and the job makes no request to the store before it copies."""
    here, there = tmp_path / "lines.csv", f"{service.url}/lines.csv"
    here.write_text("line\n" + "".join(f"{number:0199d}\n" for number in range(60_000)))
    binary.sql(f"COPY (SELECT * FROM '{here}') TO '{there}' STORED AS CSV", env=service.env()).check()
    count = "SELECT count(*), count(DISTINCT line), max(line) FROM '{}'"
    rows = [binary.result(binary.sql(count.format(at), env=service.env())).rows for at in (here, there)]
    assert rows[0] == rows[1]


def test_output_of_a_failed_job_is_removed(service):
    before, seen_files = service.files(), set()
    rows = "SELECT value AS x, repeat('x', 99) AS y, sqrt(900000 - value) AS z FROM range(1000000)"
    process = binary.start("sql", f"COPY ({rows}) TO '{service.url}/failed.csv'", "--partitions", "1", env=service.env())
    while process.poll() is None:
        seen_files |= service.files() - before
        time.sleep(0.01)
    out, err = process.communicate()
    assert process.returncode == 1 and "square root of a negative number" in err, err
    assert seen_files, "the job failed before it wrote anything"
    no_secret(out, err)
    seen = binary.sql(f"SELECT count(*) FROM '{service.url}/failed.csv'", env=service.env())
    assert seen.code == 1 and "failed.csv" in seen.err
    deadline = time.monotonic() + 20
    while service.files() != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert service.files() == before, service.files() - before


def test_output_of_a_killed_job_is_not_visible(service):
    before = len(service.files())
    copy = f"COPY (SELECT value AS x, random() AS y FROM range(20000000)) TO '{service.url}/killed.csv'"
    process = binary.start("sql", copy, env=service.env())
    binary.wait_until(lambda: len(service.files()) > before, process)
    binary.kill(process)
    seen = binary.sql(f"SELECT count(*) FROM '{service.url}/killed.csv'", env=service.env())
    assert seen.code == 1 and "killed.csv" in seen.err, seen.out


def test_rejected_credentials_are_an_error_that_hides_them(service, tmp_path):
    if service.name == "hdfs":
        pytest.skip("HDFS without Kerberos asks for no credentials")
    wrong = {name: f"{value}-wrong" for name, value in service.environment.items() if value == services.SECRET}
    started = time.monotonic()
    ran = binary.sql(f"SELECT * FROM '{service.url}/a.parquet'", env=service.env() | wrong)
    assert ran.code == 1 and re.search("denied|403|401|refused|let|Signature", ran.err), ran.err
    assert time.monotonic() - started < 60
    no_secret(ran.out, ran.err)


def test_profile_of_a_credentials_file_reads_lakes(service, tmp_path):
    """A Delta table and a partitioned folder, with credentials that are nowhere but in the file."""
    if service.name != "minio":
        pytest.skip("profiles are those of S3, and s3s-fs fails when it is asked for a folder")
    table = pa.table({"x": range(100), "p": [i % 3 for i in range(100)]})
    write_deltalake(tmp_path / "delta", table, partition_by=["p"])
    write_deltalake(tmp_path / "delta", table, mode="append")
    pq.write_to_dataset(table, tmp_path / "parts", partition_cols=["p"])
    url = service.environment["AWS_ENDPOINT_URL"]
    scheme, address = url.split("://")
    keys = {"access_key": services.KEY, "secret_key": services.SECRET}
    remote = fs.S3FileSystem(**keys, endpoint_override=address, scheme=scheme, region="us-east-1")
    for folder in ("delta", "parts"):
        fs.copy_files(str(tmp_path / folder), f"bucket/lakes/{folder}", destination_filesystem=remote)
    settings = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    settings |= {"HOME": str(tmp_path), "AWS_PROFILE": "lake", "AWS_ALLOW_HTTP": "true"}
    settings |= {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys")}
    (tmp_path / "config").write_text(f"[profile lake]\nregion = us-east-1\nendpoint_url = {url}\n")

    def credentials(secret: str) -> None:
        (tmp_path / "keys").write_text(
            f"[default]\naws_access_key_id = no\naws_secret_access_key = no\n\n"
            f"[lake]\naws_access_key_id = {services.KEY}\naws_secret_access_key = {secret}\n"
        )

    credentials(services.SECRET)
    ones = sum(i for i in range(100) if i % 3 == 1)
    for question, expected in [
        (f"SELECT count(*), sum(x) FROM '{service.url}/lakes/delta'", [200, 9900]),
        (f"SELECT count(*), sum(x) FROM '{service.url}/lakes/delta/' WHERE p = 1", [66, 2 * ones]),
        (f"SELECT count(*), sum(x) FROM delta_scan('{service.url}/lakes/delta', version => 0)", [100, 4950]),
        (f"SELECT count(*), sum(x) FROM '{service.url}/lakes/parts/' WHERE p = 1", [33, ones]),
        (f"SELECT count(*), sum(p) FROM '{service.url}/lakes/parts/**/*.parquet'", [100, 99]),
    ]:
        assert breadth.rows(question, env=settings) == [expected], question
    wrong = "pellucid-wrong-9f8e7d6c"
    credentials(wrong)
    for folder in ("delta", "parts/"):
        ran = binary.sql(f"SELECT count(*) FROM '{service.url}/lakes/{folder}'", env=settings, timeout=60)
        assert ran.code == 1 and service.url in ran.err and re.search("denied|refused|403|[Ss]ignature", ran.err), ran.err
        assert wrong not in ran.err, ran.err
        no_secret(ran.out, ran.err)


def test_whatif_predicts_a_job_on_probed_storage(service, uploaded, tmp_path):
    data, _ = uploaded
    trace, probed = tmp_path / "local.trace", tmp_path / "probe.json"
    probe(service, "--seconds", "8", "--bytes", "256MiB", "-o", probed).check()
    query = "SELECT sum(l_extendedprice), count(DISTINCT l_comment) FROM lineitem"
    binary.sql(query, data, "--trace", trace).check()
    answer = binary.run("whatif", trace, "--set", f"storage={probed}", "--json").check().json()
    assert answer["set"] == {"storage": str(probed)}
    assert any(service.url.split("/")[2] in words for words in answer["assumptions"]), answer["assumptions"]
    assert any("--read" in words for words in answer["assumptions"]), answer["assumptions"]
    assert 0 < answer["prediction"]["low_ms"] < answer["prediction"]["high_ms"]
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "x"}')
    refused = binary.run("whatif", trace, "--set", f"storage={broken}")
    assert refused.code == 1 and "broken.json" in refused.err and "pellucid storage probe" in refused.err


def test_iterate_reads_tables_by_url(service, uploaded):
    data, tables = uploaded
    options = ["--k", "3", "--features", "l_quantity,l_discount,l_tax", "--iterations", "4", "--json"]
    here = dict(part.split("=", 1) for part in binary.tables(data)[1::2])["lineitem"]

    def inertia(table: str, **settings) -> float:
        ran = binary.run("iterate", "kmeans", table, *options, **settings).check()
        no_secret(ran.out, ran.err)
        return float(ran.json()["result"]["inertia"])

    assert inertia(tables["lineitem"], env=service.env()) == pytest.approx(inertia(here), rel=1e-9)
    missing = binary.run("iterate", "kmeans", f"{service.url}/none.parquet", "--k", "2", env=service.env())
    assert missing.code == 1 and "none.parquet" in missing.err, missing.err
    wrong = binary.run("iterate", "kmeans", tables["lineitem"], "--k", "2", "--features", "x", env=service.env())
    assert wrong.code == 2 and service.url in wrong.err and "/tmp" not in wrong.err, wrong.err


def doctor(*arguments, **settings) -> list[dict]:
    document = binary.run("storage", "doctor", "--json", *arguments, **settings).check().json()
    assert document["format"] == "pellucid.doctor/1"
    assert all({"title", "evidence", "change", "saves_ms", "low_ms", "high_ms"} == set(f) for f in document["findings"])
    return document["findings"]


def test_doctor_reports_problems_and_is_otherwise_silent(tmp_path):
    assert doctor(SCENARIOS / "gc.toml") == []
    assert binary.run("storage", "doctor", SCENARIOS / "nc.toml").check().out == ""
    [double] = doctor(SCENARIOS / "gc-vb.toml")
    assert "9 bytes are written for one" in double["evidence"] and double["saves_ms"] is None
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text(f"spark.hadoop.fs.defaultFS s3a://bucket\nspark.hadoop.fs.s3a.secret.key {services.SECRET}\n")
    ran = binary.run("storage", "doctor", conf).check()
    assert "written 3 times" in ran.out and "fs.s3a.committer.name=magic" in ran.out
    no_secret(ran.out, ran.err)
    probed = tmp_path / "probe.json"
    binary.run("storage", "probe", tmp_path, "--seconds", "1", "--bytes", "17MiB", "-o", probed).check()
    # A probe of a local folder does not apply to S3.
    assert doctor(conf, "--probe", probed) == doctor(conf)
    data, trace = binary.ensure_data("tpch", SCALE), tmp_path / "local.trace"
    binary.sql("SELECT sum(l_quantity) FROM lineitem", data, "--trace", trace).check()
    answer = binary.run("whatif", trace, "--set", f"storage={probed}", "--json").check().json()
    assert any("just written" in words for words in answer["assumptions"]), answer["assumptions"]


@pytest.mark.parametrize("place", ["SWI", "MINIO"])
def test_doctor_finds_rename_commits_in_spark_logs(place):
    """Uses logs of `make bench-storage`; Spark 4 names the magic committer and uses Hadoop's own factory."""
    folder = binary.ROOT / "bench" / "results" / "storage"
    logs = {kind: folder / f"commits-{place}-4-{kind}.zstd" for kind in ("rename", "magic")}
    [found] = doctor(logs["rename"])
    assert "committed by rename" in found["title"] and "FileOutputCommitterFactory" in found["evidence"], found
    assert "1536 MB of output" in found["evidence"] and 0 < found["low_ms"] < found["saves_ms"] < found["high_ms"], found
    assert doctor(logs["magic"]) == []
    no_secret(*(decompressed(log) for log in logs.values()))


@pytest.mark.parametrize("times", [4, 1])
@pytest.mark.parametrize("place", ["SWI", "MINIO"])
def test_doctor_predicts_the_cost_of_renames(place, times, tmp_path):
    """Predicts from the renaming session's log and the probe before it; compares with the measured saving."""
    *_, last = [line for line in measured.lines() if line["case"] == {"commits": place, "times": times}]
    probed = tmp_path / "probe.json"
    probed.write_text(json.dumps(last["report"]))
    [found] = doctor(measured.TRACES / measured.log_name(place, times, "rename"), "--probe", probed)
    saved_ms = 1e3 * (sum(last["rename_s"]) - sum(last["magic_s"]))
    assert float(found["saves_ms"]) == pytest.approx(saved_ms, rel=commits.GOAL), found
    assert found["low_ms"] <= saved_ms <= found["high_ms"], (saved_ms, found)


def test_doctor_reads_traces(tmp_path):
    data, trace = binary.ensure_data("tpch", SCALE), tmp_path / "query.trace"
    binary.sql("SELECT count(*) FROM lineitem", data, "--trace", trace).check()
    titles = [f["title"] for f in doctor(trace)]
    assert all("memory" in title for title in titles), titles
    missing = binary.run("storage", "doctor", tmp_path / "none")
    assert missing.code == 1 and "check the path" in missing.err


def test_fetched_bytes_equal_sent_bytes(tmp_path):
    """Each request is one fetch with all bytes that the store sends: a large gap between two columns is not read."""
    trace, file, rows = tmp_path / "query.trace", tmp_path / "t.parquet", 50_000
    numbers = random.Random(7)
    columns = {name: [numbers.getrandbits(60) for _ in range(rows)] for name in ("a", "between", "b")}
    pq.write_table(pa.table(columns), file, compression="none", use_dictionary=False)
    with s3.serving() as (environment, bucket):
        bucket.objects["t.parquet"] = file.read_bytes()
        query = "SELECT sum(a % 9), sum(b % 9) FROM 's3://bucket/t.parquet'"
        ran = binary.run("sql", "--format", "csv", "--trace", trace, query, env=os.environ | environment).check()
        sent = bucket.sent_bytes
    assert ran.out.split()[-1] == ",".join(str(sum(value % 9 for value in columns[name])) for name in ("a", "b"))
    records = [json.loads(line) for line in decompressed(trace).splitlines()]
    fetched = [r["bytes"] for r in records if r["t"] == "monotask" and r.get("phase") == "fetch"]
    planned = [r["bytes"] for r in records if r["t"] == "storage_operation" and r["operation"] == "read"]
    assert len(fetched) == 2 and 8 * rows <= min(fetched) <= max(fetched) < 9 * rows, fetched
    assert sum(fetched) + sum(planned) == sent, (fetched, planned)


def test_rejected_requests_are_traced_and_diagnosed(tmp_path):
    """The retry succeeds silently: the query only waits a second for it."""
    trace = tmp_path / "query.trace"
    with s3.serving() as (environment, bucket):
        environment = os.environ | environment
        numbers = "SELECT i FROM range(100000) AS t(i)"
        for number in range(3):
            binary.run("sql", "--quiet", f"COPY ({numbers}) TO 's3://bucket/t/{number}.parquet' STORED AS PARQUET", env=environment).check()
        bucket.faults += ["busy", "broken"]
        ran = binary.run("sql", "--format", "csv", "SELECT count(*) FROM 's3://bucket/t/*.parquet'", "--trace", trace, env=environment).check()
    assert ran.out.split()[-1] == "300000"
    operations = [json.loads(line) for line in decompressed(trace).splitlines() if '"t":"storage_operation"' in line]
    busy, broken = sorted((o for o in operations if "error" in o), key=lambda o: o["error"], reverse=True)
    assert (busy["error"], broken["error"]) == ("503 Service Unavailable", "500 Internal Server Error")
    # The duration includes the second until the retry that the store requested.
    assert busy["operation"] == "read" and busy["outcome"] == "failed" and busy["duration_ns"] >= 1e9
    # Planning records its listing and its reads of footers.
    assert [o for o in operations if o["operation"] == "list" and o["first_byte_ns"] <= o["duration_ns"]]
    assert sum(o["bytes"] for o in operations if o["operation"] == "read" and "error" not in o) > 0
    assert "the store throttles requests" in [f["title"] for f in doctor(trace)]
