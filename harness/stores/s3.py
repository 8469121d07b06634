"""S3 on loopback: a bucket that denies every request, and one that serves files. Implements the protocol as far as needed.

    python -m harness.stores.s3 --host ADDRESS --port PORT FOLDER

serves the files below a folder, read only, with almost no core time, so that measurements show the network.
"""

import argparse
import contextlib
import mmap
import re
import socket
import struct
import threading
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message>"
    b"<RequestId>0000000000000000</RequestId></Error>"
)

GONE = b"<Error><Code>NoSuchUpload</Code><Message>The upload does not exist</Message></Error>"


class _Server(ThreadingHTTPServer):
    """A server with the requests that it received, and its bucket."""

    requests: list[str]
    bucket: "Bucket"


class _Handler(BaseHTTPRequestHandler):
    """Records requests and sends responses."""

    server: _Server
    protocol_version = "HTTP/1.1"
    # Headers and body in one packet: otherwise delayed acknowledgements add 40 ms to each response.
    wbufsize = -1
    disable_nagle_algorithm = True

    def body(self) -> bytes:
        """Records the request and reads its body."""
        self.server.requests.append(f"{self.command} {self.path}")
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes | memoryview = b"", **headers: str) -> None:
        """Sends a response with its length; HEAD gets only the headers."""
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            # A reader that needs only the start of a file (a CSV header) closes the connection early.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)
                self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Suppresses logging: `server.requests` has the requests."""


class _DenyHandler(_Handler):
    """Answers every request with S3's response to missing permissions."""

    def _deny(self) -> None:
        self.body()
        self.answer(403, b"" if self.command == "HEAD" else DENIED, Content_Type="application/xml")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _deny


@dataclass(frozen=True)
class Files(Mapping[str, mmap.mmap]):
    """The files below a folder as objects, memory-mapped on access."""

    folder: Path

    def __getitem__(self, key: str) -> mmap.mmap:
        path = self.folder / key
        if not path.is_file():
            raise KeyError(key)
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __iter__(self) -> Iterator[str]:
        return (str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass
class Bucket:
    """The content of a serving bucket, and the requests that it received."""

    # Bytes by key: a dictionary, or `Files`, which can only be read.
    objects: Any = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    # Faults to inject into the next reads of objects, one each: see `_BucketHandler.send_fault`.
    faults: list[str] = field(default_factory=list)
    # Faults for the next parts of uploads and the next completions: see `_BucketHandler.inject_upload_fault`.
    upload_faults: dict[str, list[str]] = field(default_factory=lambda: {"part": [], "complete": []})


class _BucketHandler(_Handler):
    """GET with Range, HEAD, ListObjectsV2, PUT, multipart upload and DELETE on one bucket."""

    def _at(self) -> tuple[str, dict[str, str]]:
        """Returns the key without the bucket, and the query parameters."""
        url = urllib.parse.urlsplit(self.path)
        _, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        return key, dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))

    def send_error_response(self, fault: str) -> None:
        """Sends an error that a real store may send."""
        error = "<Error><Code>{}</Code><Message>{}</Message></Error>"
        if fault == "busy":
            return self.answer(503, error.format("SlowDown", "Please reduce your request rate").encode(), Retry_After="1")
        if fault == "broken":
            return self.answer(500, error.format("InternalError", "We encountered an internal error").encode())
        # S3 echoes the token too.
        token = self.headers.get("X-Amz-Security-Token") or ""
        message = error.format("ExpiredToken", f"The provided token has expired: {token}")
        return self.answer(400, message.encode(), Content_Type="application/xml")

    def hang_up(self) -> None:
        """Resets the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def inject_upload_fault(self, kind: str) -> bool:
        """Injects the next fault of this kind of upload request, if any; the request then has no effect."""
        faults = self.server.bucket.upload_faults[kind]
        if not faults:
            return False
        fault = faults.pop(0)
        if fault == "reset":
            self.server.requests.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
            self.hang_up()
        else:
            self.body()
            self.send_error_response(fault)
        return True

    def send_fault(self, fault: str, content: bytes) -> None:
        """Sends a faulty response to a read."""
        if fault in ("busy", "broken", "expired"):
            return self.send_error_response(fault)
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        first, last = (int(byte_range[1]), min(int(byte_range[2]), len(content) - 1)) if byte_range else (0, len(content) - 1)
        if fault == "other bytes":
            first = min(first + 1, last)
        part = content[first : last + 1]
        self.send_response(206)
        for name, value in {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        self.wfile.write(part if fault == "other bytes" else part[: len(part) // 2])
        self.wfile.flush()
        if fault == "reset":
            self.hang_up()
        self.close_connection = True

    def do_GET(self) -> None:
        self.body()
        key, query = self._at()
        if not key:
            return self._list(query)
        content = self.server.bucket.objects.get(key)
        if content is not None and self.server.bucket.faults:
            return self.send_fault(self.server.bucket.faults.pop(0), content)
        if content is None:
            missing = b"<Error><Code>NoSuchKey</Code><Message>The key does not exist</Message></Error>"
            return self.answer(404, missing)
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes"}
        byte_range = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if not byte_range:
            self.server.bucket.sent_bytes += len(content)
            return self.answer(200, content, **headers)
        size = len(content)
        first = int(byte_range[1]) if byte_range[1] else size - int(byte_range[2])
        last = min(int(byte_range[2]), size - 1) if byte_range[1] and byte_range[2] else size - 1
        part = memoryview(content)[first : last + 1]
        self.server.bucket.sent_bytes += len(part)
        return self.answer(206, part, Content_Range=f"bytes {first}-{last}/{size}", **headers)

    def do_HEAD(self) -> None:
        self.body()
        content = self.server.bucket.objects.get(self._at()[0])
        if content is None:
            return self.answer(404)
        return self.answer(200, ETag='"1"', Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT", Content_Length=str(len(content)))

    def _list(self, query: dict[str, str]) -> None:
        prefix, after = query.get("prefix", ""), query.get("start-after", "")
        keys = sorted(k for k in self.server.bucket.objects if k.startswith(prefix) and k > after)
        folders = []
        if delimiter := query.get("delimiter"):
            rest = {k: k[len(prefix) :] for k in keys}
            folders = sorted({prefix + r.split(delimiter)[0] + delimiter for r in rest.values() if delimiter in r})
            keys = [k for k in keys if delimiter not in rest[k]]
        contents = "".join(
            f"<Contents><Key>{escape(k)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;1&quot;</ETag><Size>{len(self.server.bucket.objects[k])}</Size></Contents>"
            for k in keys
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders)
        self.answer(
            200,
            f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name><Prefix>{escape(prefix)}'
            f"</Prefix><KeyCount>{len(keys)}</KeyCount><IsTruncated>false</IsTruncated>{contents}{prefixes}"
            "</ListBucketResult>".encode(),
            Content_Type="application/xml",
        )

    def do_PUT(self) -> None:
        key, query = self._at()
        if "uploadId" in query and self.inject_upload_fault("part"):
            return
        content = self.body()
        if "uploadId" in query:
            parts = self.server.bucket.uploads.get(query["uploadId"])
            if parts is None:
                return self.answer(404, GONE)
            parts[int(query["partNumber"])] = content
        else:
            self.server.bucket.objects[key] = content
        self.answer(200, ETag=f'"{query.get("partNumber", 1)}"')

    def do_POST(self) -> None:
        key, query = self._at()
        if "uploadId" in query and self.inject_upload_fault("complete"):
            return
        self.body()
        bucket = self.server.bucket
        if "uploads" in query:
            upload = uuid.uuid4().hex
            bucket.uploads[upload] = {}
            text = f"<Bucket>bucket</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            return self.answer(200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode())
        parts = bucket.uploads.pop(query["uploadId"], None)
        if parts is None:
            return self.answer(404, GONE)
        bucket.objects[key] = b"".join(parts[number] for number in sorted(parts))
        text = f"<Location>x</Location><Bucket>bucket</Bucket><Key>{escape(key)}</Key><ETag>&quot;1&quot;</ETag>"
        self.answer(200, f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>".encode())

    def do_DELETE(self) -> None:
        self.body()
        key, query = self._at()
        if "uploadId" in query:
            self.server.bucket.uploads.pop(query["uploadId"], None)
        else:
            self.server.bucket.objects.pop(key, None)
        self.answer(204)


def _listening(handler: type[_Handler], host: str, port: int) -> _Server:
    server = _Server((host, port), handler)
    server.daemon_threads = True
    server.requests = []
    return server


@contextlib.contextmanager
def _server(handler: type[_Handler]) -> Iterator[tuple[_Server, dict[str, str]]]:
    """Starts a server; returns it and the environment that points a client at it."""
    server = _listening(handler, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield (
            server,
            {
                "AWS_ENDPOINT_URL": (url := f"http://127.0.0.1:{server.server_port}"),
                "AWS_ENDPOINT": url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "nobody",
                "AWS_SECRET_ACCESS_KEY": "nothing",
            },
        )
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def denying() -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yields the environment that points a client at a bucket that denies requests, and the requests it received."""
    with _server(_DenyHandler) as (server, environment):
        yield environment, server.requests


@contextlib.contextmanager
def serving() -> Iterator[tuple[dict[str, str], Bucket]]:
    """Yields the environment that points a client at `s3://bucket`, and the bucket."""
    with _server(_BucketHandler) as (server, environment):
        server.bucket = Bucket(requests=server.requests)
        yield environment, server.bucket


def main() -> None:
    """Serves until it is killed; every bucket name maps to the folder."""
    parser = argparse.ArgumentParser(prog="python -m harness.stores.s3", description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    server = _listening(_BucketHandler, chosen.host, chosen.port)
    server.bucket = Bucket(Files(chosen.folder), requests=server.requests)
    server.serve_forever()


if __name__ == "__main__":
    main()
