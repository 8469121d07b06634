"""Azure, Google Cloud Storage and profiles of AWS, on small fakes on loopback."""

import json
import os
import re
import urllib.parse
from http.server import BaseHTTPRequestHandler

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from harness import binary, web_server
from harness.sql import breadth
from harness.stores import s3, services
from harness.stores.credentials import no_secret

TIME = "Thu, 01 Jan 2026 00:00:00 GMT"
NAMES = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")


class _Handler(BaseHTTPRequestHandler):
    """Reads and lists objects: as Azure below `/devstoreaccount1`, else as Google."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path).lstrip("/").removeprefix("devstoreaccount1/")
        query = dict(urllib.parse.parse_qsl(url.query))
        self.server.asked.append((self.path, self.headers))
        _, _, key = path.partition("/")
        if self.server.status:
            return self.answer(self.server.status, b"<Error><Code>Denied</Code></Error>")
        if query.get("comp") == "list" or "list-type" in query:
            return self.answer(200, self.listing(query, "comp" in query))
        content = self.server.objects.get(key)
        if content is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or self.headers.get("x-ms-range") or "")
        if not wanted:
            return self.answer(200, content)
        begin, end = int(wanted[1]), min(int(wanted[2] or len(content)) + 1, len(content))
        self.answer(206, content[begin:end], **{"Content-Range": f"bytes {begin}-{end - 1}/{len(content)}"})

    do_HEAD = do_GET

    def listing(self, query: dict[str, str], azure: bool) -> bytes:
        keys = [key for key in sorted(self.server.objects) if key.startswith(query.get("prefix", ""))]
        if "delimiter" in query:
            keys = [key for key in keys if "/" not in key[len(query.get("prefix", "")) :]]
        if not azure:
            found = "".join(
                f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag>"
                f"<Size>{len(self.server.objects[key])}</Size></Contents>"
                for key in keys
            )
            return f"<ListBucketResult>{found}</ListBucketResult>".encode()
        found = "".join(
            f"<Blob><Name>{key}</Name><Properties><Last-Modified>{TIME}</Last-Modified><Etag>e</Etag>"
            f"<Content-Length>{len(self.server.objects[key])}</Content-Length><Content-Type>x</Content-Type></Properties></Blob>"
            for key in keys
        )
        return f"<EnumerationResults><Blobs>{found}</Blobs><NextMarker/></EnumerationResults>".encode()

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Last-Modified": TIME, "ETag": "e", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def environment(**more: str) -> dict[str, str]:
    """Returns the environment without the settings of stores."""
    return {name: value for name, value in os.environ.items() if not name.startswith(NAMES)} | more


@pytest.fixture
def objects(tmp_path) -> dict[str, bytes]:
    """A CSV file, a Parquet file and a Delta table."""
    pq.write_table(pa.table({"x": range(1000)}), tmp_path / "a b.parquet")
    (tmp_path / "c.csv").write_text("x\n1\n2\n")
    for begin in (0, 10):
        write_deltalake(tmp_path / "t", pa.table({"x": range(begin, begin + 10)}), mode="append")
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def azure(url: str) -> dict[str, str]:
    return environment(AZURE_STORAGE_USE_EMULATOR="true", AZURITE_BLOB_STORAGE_URL=url)


def google(url: str) -> dict[str, str]:
    return environment(GOOGLE_BASE_URL=url, GOOGLE_SKIP_SIGNATURE="true", GOOGLE_ALLOW_HTTP="true")


@pytest.mark.parametrize("settings,root", [(azure, "az://box"), (google, "gs://box")])
def test_files_and_tables_of_clouds_are_read(objects, settings, root):
    with web_server.serving(_Handler, objects=objects, status=None) as server:
        env = settings(server.url)

        def answer(place: str) -> list[list]:
            return breadth.rows(f"SELECT count(*), sum(x) FROM '{root}/{place}'", env=env)

        assert answer("a b.parquet") == [[1000, 499500]]
        assert answer("c.csv") == answer("*.csv") == [[2, 3]]
        assert answer("t/") == [[20, 190]]
        missing = binary.run("sql", f"FROM '{root}/no.csv'", env=env)
        assert missing.code == 1 and f"{root}/no.csv" in missing.err, missing.err


def test_google_service_account_is_used_and_not_shown(objects, tmp_path):
    account = {"private_key": services.SECRET, "private_key_id": services.KEY, "client_email": "x", "disable_oauth": True}
    with web_server.serving(_Handler, objects=objects, status=None) as server:
        file = tmp_path / "account.json"
        file.write_text(json.dumps(account | {"gcs_base_url": server.url}))
        env = environment(GOOGLE_SERVICE_ACCOUNT=str(file), GOOGLE_ALLOW_HTTP="true")
        assert breadth.rows("SELECT sum(x) FROM 'gs://box/c.csv'", env=env) == [[3]]
        file.write_text("{" + services.SECRET)
        broken = binary.run("sql", "FROM 'gs://box/c.csv'", env=env)
        assert broken.code == 1 and "gs://box" in broken.err, broken.err
        no_secret(broken.err)


@pytest.mark.parametrize("settings,root", [(azure, "az://box"), (google, "gs://box")])
def test_refused_requests_show_no_secrets(objects, settings, root):
    with web_server.serving(_Handler, objects=objects, status=None) as server:
        server.status = 403
        env = settings(server.url) | {"AZURE_STORAGE_SAS_TOKEN": f"sig={services.SECRET}", "GOOGLE_SERVICE_ACCOUNT_KEY": services.SECRET}
        env.pop("GOOGLE_SERVICE_ACCOUNT_KEY" if settings is google else "GOOGLE_BASE_URL", None)
        ran = binary.run("sql", f"FROM '{root}/c.csv'", env=env)
        assert ran.code == 1 and f"{root}/c.csv" in ran.err, ran.err
        no_secret(ran.out, ran.err)


def test_account_is_asked_for(tmp_path):
    ran = binary.run("sql", "FROM 'az://box/c.csv'", env=environment(HOME=str(tmp_path)))
    assert ran.code == 1 and "AZURE_STORAGE_ACCOUNT_NAME" in ran.err, ran.err


def aws_home(folder, config: str = "", credentials: str = "") -> dict[str, str]:
    (folder / ".aws").mkdir()
    (folder / ".aws" / "config").write_text(config)
    (folder / ".aws" / "credentials").write_text(credentials)
    return environment(HOME=str(folder), AWS_ALLOW_HTTP="true")


def test_profile_gives_credentials_region_and_endpoint(tmp_path):
    with s3.serving() as (settings, bucket):
        bucket.objects["c.csv"] = b"x\n1\n2\n"
        url = settings["AWS_ENDPOINT_URL"]
        config = f"[profile dev]\nregion = eu-north-1\nendpoint_url = {url}\n"
        env = aws_home(tmp_path, config, f"[dev]\naws_access_key_id = {services.KEY}\naws_secret_access_key = {services.SECRET}\n")
        question = "SELECT sum(x) FROM 's3://bucket/c.csv'"
        assert breadth.rows(question, env=env | {"AWS_PROFILE": "dev"}) == [[3]]
        other = binary.run("sql", question, env=env | {"AWS_PROFILE": "prod"})
        assert other.code == 1 and "found no profile prod" in other.err, other.err
    with s3.denying() as (settings, _):
        env |= {"AWS_ENDPOINT_URL": settings["AWS_ENDPOINT_URL"], "AWS_PROFILE": "dev"}
        denied = binary.run("sql", question, env=env)
        assert denied.code == 1 and "s3://bucket/c.csv" in denied.err, denied.err
        no_secret(denied.err)


def test_missing_credentials_are_an_error_soon(tmp_path):
    # Nothing answers at this address of the metadata service.
    env = aws_home(tmp_path) | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}
    ran = binary.run("sql", "FROM 's3://bucket/c.csv'", env=env, timeout=60)
    assert ran.code == 1 and "found no credentials" in ran.err and "AWS_PROFILE" in ran.err, ran.err
