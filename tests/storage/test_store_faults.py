"""Faulty stores (`harness/stores/s3.py`): the answer is right, or an error gives the reason, and nothing is left behind."""

import os
import re

import pytest

from harness import binary, traces
from harness.stores import s3, services
from harness.stores.credentials import no_secret, outputs_of


@pytest.mark.parametrize("fault", ["busy", "broken", "reset", "cut short"])
def test_read_faults_are_retried(fault, tmp_path):
    """Two of the first requests fail: each is retried or resumed."""
    file = tmp_path / "rows.parquet"
    binary.run("sql", "SELECT value AS x, md5(cast(value AS VARCHAR)) AS y FROM range(200000)", "-o", file).check()
    query = "SELECT count(*), sum(x), max(y) FROM '{}'"
    expected = binary.result(binary.sql(query.format(file))).rows
    with s3.serving() as (environment, bucket):
        bucket.objects["rows.parquet"] = file.read_bytes()
        bucket.faults[:] = [fault] * 2
        trace = tmp_path / "query.trace"
        ran = binary.sql(query.format("s3://bucket/rows.parquet"), None, "--trace", trace, env=os.environ | environment)
        assert binary.result(ran).rows == expected, ran.err
        assert not bucket.faults and len(bucket.requests) < 60, bucket.requests
    failed = [o for o in traces.read(trace).of["storage_operation"] if o.get("outcome") == "failed"]
    assert len(failed) == 2 and all(o["operation"] == "read" and o["error"] for o in failed), failed


# Enough for more than one part.
ROWS = "SELECT value AS x, md5(cast(value AS VARCHAR)) AS y FROM range(400000)"


@pytest.mark.parametrize("fault", ["busy", "broken", "reset"])
@pytest.mark.parametrize("kind", ["part", "complete"])
def test_upload_faults_are_retried(kind, fault):
    query = "SELECT count(*), sum(x), max(y) FROM {}"
    with s3.serving() as (environment, bucket):
        bucket.upload_faults[kind][:] = [fault] * 2
        settings = {"env": os.environ | environment}
        binary.sql(f"COPY ({ROWS}) TO 's3://bucket/rows.csv'", **settings).check()
        assert not bucket.upload_faults[kind] and bucket.uploads == {}
        assert sum("partNumber" in request for request in bucket.requests) > (3 if kind == "part" else 1), bucket.requests
        rows = [binary.result(binary.sql(query.format(at), **settings)).rows for at in ("'s3://bucket/rows.csv'", f"({ROWS})")]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("kind", ["part", "complete"])
def test_failing_upload_is_an_error_and_leaves_nothing(kind):
    with s3.serving() as (environment, bucket):
        bucket.upload_faults[kind][:] = ["broken"] * 1000
        ran = binary.sql(f"COPY ({ROWS}) TO 's3://bucket/rows.csv'", env=os.environ | environment)
        assert ran.code == 1 and "s3://bucket/rows.csv" in ran.err and "500" in ran.err, ran.err
        assert bucket.objects == {} and bucket.uploads == {}
        assert any(request.startswith("DELETE") and "uploadId" in request for request in bucket.requests), bucket.requests


def test_response_with_other_bytes_is_an_error(tmp_path):
    file = tmp_path / "rows.parquet"
    binary.run("sql", "SELECT value AS x FROM range(100000)", "-o", file).check()
    with s3.serving() as (environment, bucket):
        bucket.objects["rows.parquet"] = file.read_bytes()
        bucket.faults[:] = ["other bytes"]
        ran = binary.sql("SELECT sum(x) FROM 's3://bucket/rows.parquet'", env=os.environ | environment)
        assert ran.code == 1 and "Requested" in ran.err and "rows.parquet" in ran.err, (ran.out, ran.err)


def test_expired_credentials_fail_at_once_and_are_hidden(tmp_path):
    token = "pellucid-token-9f8e7d6c"
    with s3.serving() as (environment, bucket):
        bucket.objects["rows.parquet"] = b"x" * 1000
        bucket.faults[:] = ["expired"] * 50
        settings = environment | {"AWS_SESSION_TOKEN": token, "AWS_SECRET_ACCESS_KEY": services.SECRET}
        trace = tmp_path / "failed.trace"
        ran = binary.sql("SELECT * FROM 's3://bucket/rows.parquet'", None, "--trace", trace, env=os.environ | settings)
        assert ran.code == 1 and re.search("expired|400", ran.err), ran.err
        assert len(bucket.requests) < 20, bucket.requests
        outputs = [ran.out, ran.err, *outputs_of(trace)]
        no_secret(*outputs)
        assert not any(token in text for text in outputs)


def test_denied_upload_names_store_and_credentials_variable():
    with s3.denying() as (environment, requests):
        ran = binary.sql("COPY (SELECT 1 AS x) TO 's3://closed/out.csv'", env=os.environ | environment)
    assert any(request.startswith(("PUT", "POST")) for request in requests), requests
    assert ran.code == 1 and "s3://closed/out.csv" in ran.err and "AWS_ACCESS_KEY_ID" in ran.err, ran.err
    assert "mode" not in ran.err, ran.err
