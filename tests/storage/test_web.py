"""Files on web servers, on a small server on loopback. Addresses with https take the same path."""

import gzip
import io
import re
import socket
from http.server import BaseHTTPRequestHandler

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import binary, web_server
from harness.sql import breadth

CSV = "x,y\n" + "".join(f"{i},n{i}\n" for i in range(1000))
ANSWER = [[1000, 499500]]


class _Handler(BaseHTTPRequestHandler):
    """Serves files; the first folder of a path says how."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        _, how, name = path.split("/", 2)
        self.server.asked.append((self.path, self.headers.get("Range")))
        if how.isdigit():
            return self.answer(int(how), b"no")
        if how == "moved":
            return self.answer(302, b"", Location=f"/files/{name}")
        if how == "loop":
            return self.answer(302, b"", Location=self.path)
        if how == "signed" and query != "sig=hunter2/+//x%2F":
            return self.answer(403, b"no")
        content = self.server.files.get(name)
        if content is None:
            return self.answer(404, b"no")
        if how == "chunked":
            return self.chunks(content)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if how == "whole" or not wanted:
            return self.answer(200, content)
        begin, end = int(wanted[1]), min(int(wanted[2] or len(content)) + 1, len(content))
        if begin >= len(content):
            return self.answer(416, b"", **{"Content-Range": f"bytes */{len(content)}"})
        self.answer(206, content[begin:end], **{"Content-Range": f"bytes {begin}-{end - 1}/{len(content)}"})

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        known = {"Content-Length": str(len(body)), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "ETag": '"e"'}
        for name, value in (known | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def chunks(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(content), 1000):
            part = content[at : at + 1000]
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def parquet() -> bytes:
    written = io.BytesIO()
    columns = {"x": range(1000), "y": [f"n{i}" for i in range(1000)], "pad": [f"{i:02000}" for i in range(1000)]}
    pq.write_table(pa.table(columns), written, row_group_size=250, compression="none", use_dictionary=False)
    return written.getvalue()


@pytest.fixture(scope="module")
def server():
    files = {
        "a.csv": CSV.encode(),
        "a%20b.csv": CSV.encode(),
        "a.csv.gz": gzip.compress(CSV.encode()),
        "a.parquet": parquet(),
        "export": CSV.encode(),
        "rows": b'[{"x": 1}, {"x": 2}]',
        "empty.csv": b"",
    }
    with web_server.serving(_Handler, files=files) as running:
        yield running


def test_every_format_is_read(server):
    for place in (
        "files/a.csv", "files/a%20b.csv", "files/a b.csv", "files/a.csv.gz", "files/a.parquet", "files/export",
        "whole/a.csv", "whole/a.parquet", "chunked/a.csv", "moved/a.parquet", "signed/a.csv?sig=hunter2/+//x%2F",
        "files/export?format=csv#top", "chunked/export?x=*[1]",
    ):  # fmt: skip
        url = f"{server.url}/{place}"
        assert breadth.rows(f"SELECT count(*), sum(x) FROM '{url}'") == ANSWER, place
    assert breadth.rows(f"SELECT sum(x) FROM '{server.url}/files/rows'") == [[3]]
    read = f"read_csv(['{server.url}/files/a.csv', '{server.url}/whole/a.csv'], filename = true)"
    assert breadth.rows(f"SELECT filename, count(*) FROM {read} GROUP BY 1 ORDER BY 1") == [
        [f"{server.url}/files/a.csv", 1000],
        [f"{server.url}/whole/a.csv", 1000],
    ]
    table = f"t={server.url}/files/a.parquet"
    assert breadth.rows("SELECT count(*) FROM t", "--table", table) == [[1000]]


def test_query_moves_only_its_ranges_through_the_network(server):
    server.asked.clear()
    found = binary.result(binary.sql(f"SELECT sum(x) FROM '{server.url}/files/a.parquet' WHERE x >= 900"))
    assert found.rows == [[94950]]
    fetched = [re.fullmatch(r"bytes=(\d+)-(\d+)", wanted) for _, wanted in server.asked]
    assert all(fetched), server.asked
    size = len(server.files["a.parquet"])
    assert sum(int(part[2]) - int(part[1]) + 1 for part in fetched) < size, server.asked
    server.asked.clear()
    assert breadth.rows(f"SELECT sum(x) FROM '{server.url}/whole/a.parquet' WHERE x >= 900") == [[94950]]
    assert len(server.asked) == 1, server.asked


REFUSED = [
    ("files/no.csv", 1, ["/files/no.csv", "no such file", "check the path"]),
    ("403/a.csv", 1, ["/403/a.csv", "refuses the file", "403"]),
    ("401/a.csv", 1, ["/401/a.csv", "refuses the file", "401"]),
    ("418/a.csv", 1, ["/418/a.csv", "the server answered 418", "check the URL"]),
    ("500/a.csv", 1, ["/500/a.csv", "the server answered 500", "try again later"]),
    ("loop/a.csv", 1, ["/loop/a.csv", "too many redirects"]),
    ("files/*.csv", 1, ["/files/*.csv", "do not list", "read_csv(["]),
    ("files/", 1, ["/files/", "do not list", "URL of a file"]),
    ("signed/a.csv?sig=hunter3", 1, ["/signed/a.csv", "403"]),
]


@pytest.mark.parametrize(("place", "code", "words"), REFUSED)
def test_error_names_the_url_and_a_way_out(server, place, code, words):
    ran = binary.sql(f"FROM '{server.url}/{place}'")
    assert ran.code == code and all(word in ran.err for word in words), ran.err
    message = ran.err.partition("\n")[0]
    assert "hunter3" not in message and "AWS" not in message, ran.err
    assert not binary.PANIC.search(ran.err), ran.err


def test_unreachable_server_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ran = binary.sql(f"FROM 'http://127.0.0.1:{port}/a.csv'")
    assert ran.code == 1 and f"http://127.0.0.1:{port}/a.csv" in ran.err, ran.err
    assert "cannot reach the server: Connection refused" in ran.err and "check the host" in ran.err, ran.err


def test_https_is_tried_and_a_plain_server_is_refused(server):
    ran = binary.sql(f"FROM '{server.url.replace('http', 'https')}/files/a.csv'")
    assert ran.code == 1 and "cannot reach the server" in ran.err, ran.err


def test_web_is_read_only(server):
    ran = binary.sql(f"COPY (SELECT 1 AS x) TO '{server.url}/files/new.csv'")
    assert ran.code == 1 and "only read" in ran.err, ran.err
    assert not binary.PANIC.search(ran.err), ran.err
