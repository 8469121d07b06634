"""What a store does to its clients on a bad day (`tests/s3.py`): the right answer, or an error that says why, and nothing left."""

import os
import re

import pytest

from tests import binary, s3, services, traces
from tests.credentials import no_secret, told_of


@pytest.mark.parametrize("fault", ["busy", "broken", "reset", "cut short"])
def test_a_bad_day_of_a_store_ends_in_the_right_answer(fault, tmp_path):
    """Two of the first requests go wrong: whatever a request is for, it is repeated or gone on with."""
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
        assert not bucket.faults and len(bucket.asked) < 60, bucket.asked
    failed = [o for o in traces.read(trace).of["storage_operation"] if o.get("outcome") == "failed"]
    assert len(failed) == 2 and all(o["operation"] == "read" and o["error"] for o in failed), failed


# More than one part.
ROWS = "SELECT value AS x, md5(cast(value AS VARCHAR)) AS y FROM range(400000)"


@pytest.mark.parametrize("fault", ["busy", "broken", "reset"])
@pytest.mark.parametrize("what", ["part", "complete"])
def test_an_upload_on_a_bad_day_of_a_store_is_whole(what, fault):
    query = "SELECT count(*), sum(x), max(y) FROM {}"
    with s3.serving() as (environment, bucket):
        bucket.upload_faults[what][:] = [fault] * 2
        settings = {"env": os.environ | environment}
        binary.sql(f"COPY ({ROWS}) TO 's3://bucket/rows.csv'", **settings).check()
        assert not bucket.upload_faults[what] and bucket.uploads == {}
        assert sum("partNumber" in request for request in bucket.asked) > (3 if what == "part" else 1), bucket.asked
        rows = [binary.result(binary.sql(query.format(at), **settings)).rows for at in ("'s3://bucket/rows.csv'", f"({ROWS})")]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("what", ["part", "complete"])
def test_an_upload_that_never_goes_well_is_an_error_and_nothing_is_left(what):
    with s3.serving() as (environment, bucket):
        bucket.upload_faults[what][:] = ["broken"] * 1000
        ran = binary.sql(f"COPY ({ROWS}) TO 's3://bucket/rows.csv'", env=os.environ | environment)
        assert ran.code == 1 and "s3://bucket/rows.csv" in ran.err and "500" in ran.err, ran.err
        assert bucket.objects == {} and bucket.uploads == {}
        assert any(request.startswith("DELETE") and "uploadId" in request for request in bucket.asked), bucket.asked


def test_an_answer_about_other_bytes_is_an_error_never_an_answer(tmp_path):
    file = tmp_path / "rows.parquet"
    binary.run("sql", "SELECT value AS x FROM range(100000)", "-o", file).check()
    with s3.serving() as (environment, bucket):
        bucket.objects["rows.parquet"] = file.read_bytes()
        bucket.faults[:] = ["other bytes"]
        ran = binary.sql("SELECT sum(x) FROM 's3://bucket/rows.parquet'", env=os.environ | environment)
        assert ran.code == 1 and "Requested" in ran.err and "rows.parquet" in ran.err, (ran.out, ran.err)


def test_expired_credentials_end_at_once_and_are_not_repeated(tmp_path):
    token = "pellucid-token-9f8e7d6c"
    with s3.serving() as (environment, bucket):
        bucket.objects["rows.parquet"] = b"x" * 1000
        bucket.faults[:] = ["expired"] * 50
        settings = environment | {"AWS_SESSION_TOKEN": token, "AWS_SECRET_ACCESS_KEY": services.SECRET}
        trace = tmp_path / "failed.trace"
        ran = binary.sql("SELECT * FROM 's3://bucket/rows.parquet'", None, "--trace", trace, env=os.environ | settings)
        assert ran.code == 1 and re.search("expired|400", ran.err), ran.err
        assert len(bucket.asked) < 20, bucket.asked
        told = [ran.out, ran.err, *told_of(trace)]
        no_secret(*told)
        assert not any(token in text for text in told)


def test_a_refused_upload_names_the_store_and_where_its_credentials_are_from():
    with s3.refusing() as (environment, asked):
        ran = binary.sql("COPY (SELECT 1 AS x) TO 's3://closed/out.csv'", env=os.environ | environment)
    assert any(request.startswith(("PUT", "POST")) for request in asked), asked
    assert ran.code == 1 and "s3://closed/out.csv" in ran.err and "AWS_ACCESS_KEY_ID" in ran.err, ran.err
    assert "mode" not in ran.err, ran.err
