"""Credentials stay with the host, the user and the process that they are for, and are not shown."""

import base64
import contextlib
import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from harness import binary, web_server
from harness.browser import unpacked
from harness.event_logs import events
from harness.stores import services
from harness.stores.credentials import no_secret

NAMES = ("AWS_", "ST_", "OS_")


class _Handler(BaseHTTPRequestHandler):
    """Records each request, and answers as `server.answer` says."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.path, self.headers))
        status, headers, body = self.server.answer(self.path)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_GET

    def log_message(self, *_):
        """Prints nothing."""


@contextlib.contextmanager
def serving(answer, address: str = "127.0.0.1") -> Iterator[tuple[str, list]]:
    """Runs a server. Returns its URL and the requests that it got."""
    with web_server.serving(_Handler, address, answer=answer) as server:
        yield server.url, server.asked


def ok(body: bytes = b"", **headers: str):
    """Returns a function that gives the same answer to every request."""
    return lambda _: (200, headers, body)


@contextlib.contextmanager
def redirecting() -> Iterator[tuple[str, list, str, list]]:
    """Runs a server that redirects to one on another host. Returns the URLs and the requests of both."""
    with serving(ok(b"".join(events("app-1"))), "127.0.0.2") as (other, stolen):
        with serving(lambda path: (302, {"Location": f"{other}{path}"}, b"")) as (here, asked):
            yield here, asked, other, stolen


def environment(**more: str) -> dict[str, str]:
    """Returns the environment without the settings of stores."""
    return {name: value for name, value in os.environ.items() if not name.startswith(NAMES)} | more


def test_swift_key_stays_at_its_host_when_the_sign_in_redirects():
    with redirecting() as (here, asked, other, stolen):
        account = environment(ST_AUTH=f"{here}/auth/v1.0", ST_USER=services.KEY, ST_KEY=services.SECRET)
        ran = binary.run("sql", "SELECT * FROM 'swift://c/x.csv'", env=account)
        assert asked and asked[0][1]["X-Auth-Key"] == services.SECRET
        assert stolen == [], "the redirect was followed"
    assert ran.code == 1 and f"{here} redirects to {other}, and credentials" in ran.err, ran.err
    no_secret(ran.out, ran.err)


def test_swift_token_stays_at_its_host_when_the_store_redirects():
    with redirecting() as (here, asked, other, stolen):
        account = environment(OS_STORAGE_URL=f"{here}/v1/a", OS_AUTH_TOKEN=services.SECRET)
        ran = binary.run("sql", "SELECT * FROM 'swift://c/x.csv'", env=account)
        assert asked and asked[0][1]["X-Auth-Token"] == services.SECRET
        assert stolen == [], "the redirect was followed"
    assert ran.code == 1 and f"{here} redirects to {other}, and credentials" in ran.err, ran.err
    no_secret(ran.out, ran.err)


def test_s3_token_stays_at_its_host_when_the_store_redirects():
    with redirecting() as (here, asked, other, stolen):
        account = environment(**services.s3_environment(here), AWS_SESSION_TOKEN=services.SECRET)
        ran = binary.run("sql", "SELECT * FROM 's3://bucket/x.csv'", env=account)
        assert asked and asked[0][1]["X-Amz-Security-Token"] == services.SECRET
        assert stolen == [], "the redirect was followed"
    assert ran.code == 1 and f"{here} redirects to {other}, and credentials" in ran.err, ran.err
    no_secret(ran.out, ran.err)


def test_history_server_password_stays_at_its_host_when_it_redirects():
    with redirecting() as (here, asked, _, stolen):
        url = here.replace("://", f"://user:{services.SECRET}@") + f"/logs/app-1?key={services.KEY}"
        ran = binary.run("analyze", url, "--json")
        basic = base64.b64encode(f"user:{services.SECRET}".encode()).decode()
        assert asked[0][1]["Authorization"] == f"Basic {basic}"
        assert len(stolen) == 1, "redirects of web servers are followed"
        assert "Authorization" not in stolen[0][1] and "Referer" not in stolen[0][1]
    assert ran.check().json()["source"]["path"] == f"{here}/logs/app-1"
    no_secret(ran.out, ran.err)


def test_history_server_download_over_the_limit_is_refused():
    with serving(lambda _: (200, {"Content-Length": str(1 << 50)}, b"")) as (here, _):
        ran = binary.run("analyze", f"{here}/history/app-1", timeout=60)
    assert ran.code == 1 and "exceeds the limit of 32 GiB" in ran.err, ran.err


def test_url_is_shown_without_user_and_query_when_a_log_is_read(tmp_path):
    log = b"".join(events("app-1"))
    with serving(lambda path: (404, {}, b"") if "missing" in path else (200, {}, log)) as (here, _):
        secret = here.replace("://", f"://{services.KEY}:{services.SECRET}@")
        url = lambda name: f"{secret}/{name}?X-Amz-Signature={services.SECRET}"
        page = tmp_path / "page.html"
        ran = [
            binary.run("analyze", url("a"), "--json").check(),
            binary.run("analyze", url("a"), url("b")).check(),
            binary.run("analyze", url("a"), url("b"), "--json").check(),
            binary.run("compare", url("a"), url("b"), "--json").check(),
            binary.run("report", url("a"), "-o", page).check(),
            binary.run("analyze", url("missing")),
        ]
        assert ran[0].json()["source"]["path"] == f"{here}/a"
    assert ran[-1].code == 1 and f"cannot read {here}/missing: " in ran[-1].err and "404" in ran[-1].err, ran[-1].err
    no_secret(unpacked(page), *(text for one in ran for text in (one.out, one.err)))


@pytest.mark.parametrize(
    "command",
    [
        ("analyze", "s3://{user}@bucket/x?{user}"),
        ("analyze", "s3://{user}/+@bucket/x"),
        ("analyze", "foo://{user}@host/x?{user}"),
        ("analyze", "http://{user}@127.0.0.1:1/x?{user}"),
        ("analyze", "--follow", "s3://{user}@bucket/x"),
        ("sql", "SELECT * FROM 'foo://{user}@host/x.csv'"),
        ("sql", "SELECT 1", "--trace", "s3://{user}@bucket/x"),
        ("storage", "probe", "foo://{user}@host/x?{user}"),
        ("iterate", "kmeans", "s3://{user}@bucket/*.csv", "--k", "2"),
        ("iterate", "kmeans", "foo://{user}@host/x?{user}", "--k", "2"),
        ("iterate", "kmeans", "{points}", "--k", "2", "--snapshot", "foo://{user}@host/x?{user}"),
        ("iterate", "kmeans", "{points}", "--k", "2", "-o", "s3://{user}@bucket/x.parquet"),
    ],
    ids=" ".join,
)
def test_url_is_shown_without_user_and_query_when_a_command_fails(command, tmp_path):
    (points := tmp_path / "points.csv").write_text("x,y\n1,2\n3,4\n5,6\n")
    with serving(lambda _: (403, {}, b"")) as (here, _):
        store = {"AWS_ENDPOINT_URL": here, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        env = environment(**store, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
        user = f"{services.KEY}:{services.SECRET}"
        ran = binary.run(*(word.format(user=user, points=points) for word in command), env=env)
    assert ran.code in (1, 2), ran
    no_secret(ran.out, ran.err)


def modes(folder: Path) -> set[int]:
    """Returns the permissions of the folders directly in a folder."""
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_dir()}


def test_temporary_folder_is_private_while_a_log_is_fetched(tmp_path):
    found = set()

    def answer(_):
        found.update(modes(tmp_path))
        return 200, {}, b"".join(events("app-1"))

    with serving(answer) as (here, _):
        binary.run("analyze", f"{here}/app-1", env={**os.environ, "TMPDIR": str(tmp_path)}).check()
    assert found == {0o700}


def test_spark_properties_are_sent_over_standard_input(tmp_path):
    """The Python reads its request as the session does, and then waits."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -c ] && exit 0\n'
        f'printf "%s\\n" "$@" > {tmp_path}/arguments\n'
        "read -r request\n"
        f'printf "%s" "$request" > {tmp_path}/partial\n'
        f"mv {tmp_path}/partial {tmp_path}/request\n"
        "exec sleep 60\n"
    )
    program.chmod(0o755)
    setting = f"spark.hadoop.fs.s3a.secret.key={services.SECRET}"
    plain = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_DRIVER_PYTHON")}
    env = plain | {"PYSPARK_PYTHON": str(program), "TMPDIR": str(temporary)}
    process = binary.start("sql", "--on", "spark=local[1]", "--conf", setting, "SELECT 1", env=env)
    try:
        binary.wait_until((tmp_path / "request").exists, process)
        assert modes(temporary) == {0o700}
        files = [path for path in temporary.rglob("*") if path.is_file()]
        assert files, "the session's program is there"
        no_secret(*(path.read_bytes() for path in files), (tmp_path / "arguments").read_bytes())
        request = json.loads((tmp_path / "request").read_text())
        assert request["conf"] == [setting.split("=")] and request["statements"] == [["SELECT 1", 1]]
    finally:
        binary.kill(process, signal.SIGINT)
    assert list(temporary.iterdir()) == []


def test_spark_jar_is_found_beside_the_binary_and_not_above_it(tmp_path):
    program = tmp_path / "a" / "b" / "pellucid"
    program.parent.mkdir(parents=True)
    try:
        os.link(binary.binary(), program)
    except OSError:
        shutil.copy2(binary.binary(), program)
    planted = tmp_path / "spark-plugin" / "target" / "pellucid-spark.jar"
    planted.parent.mkdir(parents=True)
    planted.touch()
    plain = {name: value for name, value in os.environ.items() if name != "PELLUCID_SPARK_JAR"}
    above = binary.run("spark", "jar", program=program, env=plain)
    beside = program.with_name("pellucid-spark.jar")
    assert above.code == 1 and f"{beside} does not exist" in above.err, above
    beside.touch()
    assert binary.run("spark", "jar", program=program, env=plain).check().out == f"{beside}\n"
