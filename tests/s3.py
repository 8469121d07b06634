"""S3 on loopback: a bucket that refuses, and one that serves; enough of the protocol for both.

    python -m tests.s3 --host ADDRESS --port PORT FOLDER

serves the files below a folder, read only, for hardly any core time: what the network does is measured then.
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
from xml.sax.saxutils import escape

DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message>"
    b"<RequestId>0000000000000000</RequestId></Error>"
)

GONE = b"<Error><Code>NoSuchUpload</Code><Message>The upload does not exist</Message></Error>"


class _Handler(BaseHTTPRequestHandler):
    """Keeps count of what was asked, and answers."""

    protocol_version = "HTTP/1.1"
    # headers and body in one packet, at once: else each answer takes the 40 ms of a delayed acknowledgement
    wbufsize = -1
    disable_nagle_algorithm = True

    def body(self) -> bytes:
        """The request's body, whatever will be answered."""
        self.server.asked.append(f"{self.command} {self.path}")
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes | memoryview = b"", **headers: str) -> None:
        """An answer with its length; HEAD gets the headers alone."""
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            # a reader that has enough (the beginning of a CSV file, for its columns) hangs up
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)
                self.wfile.flush()

    def log_message(self, *_):
        """Says nothing: what was asked is in `server.asked`."""


class _Refuses(_Handler):
    """Answers every request as S3 answers one without permission."""

    def _refuse(self):
        self.body()
        self.answer(403, b"" if self.command == "HEAD" else DENIED, Content_Type="application/xml")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _refuse


@dataclass(frozen=True)
class Files(Mapping[str, mmap.mmap]):
    """The files below a folder as objects, mapped when they are asked for."""

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
    """What a serving bucket holds, and what it was asked for."""

    objects: Mapping[str, bytes | mmap.mmap] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    # What goes wrong with the next reads of objects, one each: see `_Serves.spoil`.
    faults: list[str] = field(default_factory=list)
    # And with the next parts of uploads, and the next requests to complete one: see `_Serves.is_spoilt`.
    upload_faults: dict[str, list[str]] = field(default_factory=lambda: {"part": [], "complete": []})


class _Serves(_Handler):
    """GET with Range, HEAD, ListObjectsV2, PUT, multipart upload and DELETE on one bucket."""

    def _at(self) -> tuple[str, dict[str, str]]:
        """The key, without the bucket in front, and the query."""
        url = urllib.parse.urlsplit(self.path)
        _, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        return key, dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))

    def refuse(self, fault: str) -> None:
        """An error as a store gives it on a bad day."""
        error = "<Error><Code>{}</Code><Message>{}</Message></Error>"
        if fault == "busy":
            return self.answer(503, error.format("SlowDown", "Please reduce your request rate").encode(), Retry_After="1")
        if fault == "broken":
            return self.answer(500, error.format("InternalError", "We encountered an internal error").encode())
        # As S3 does, with what it was sent.
        token = self.headers.get("X-Amz-Security-Token") or ""
        said = error.format("ExpiredToken", f"The provided token has expired: {token}")
        return self.answer(400, said.encode(), Content_Type="application/xml")

    def hang_up(self) -> None:
        """Resets the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def is_spoilt(self, what: str) -> bool:
        """Whether a request of an upload was refused, or the connection broke in its middle; nothing was done then."""
        faults = self.server.bucket.upload_faults[what]
        if not faults:
            return False
        fault = faults.pop(0)
        if fault == "reset":
            self.server.asked.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
            self.hang_up()
        else:
            self.body()
            self.refuse(fault)
        return True

    def spoil(self, fault: str, content: bytes) -> None:
        """An answer as a store gives it on a bad day."""
        if fault in ("busy", "broken", "expired"):
            return self.refuse(fault)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        first, last = (int(wanted[1]), min(int(wanted[2]), len(content) - 1)) if wanted else (0, len(content) - 1)
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

    def do_GET(self):
        self.body()
        key, query = self._at()
        if not key:
            return self._list(query)
        content = self.server.bucket.objects.get(key)
        if content is not None and self.server.bucket.faults:
            return self.spoil(self.server.bucket.faults.pop(0), content)
        if content is None:
            missing = b"<Error><Code>NoSuchKey</Code><Message>The key does not exist</Message></Error>"
            return self.answer(404, missing)
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if not wanted:
            self.server.bucket.sent_bytes += len(content)
            return self.answer(200, content, **headers)
        size = len(content)
        first = int(wanted[1]) if wanted[1] else size - int(wanted[2])
        last = min(int(wanted[2]), size - 1) if wanted[1] and wanted[2] else size - 1
        part = memoryview(content)[first : last + 1]
        self.server.bucket.sent_bytes += len(part)
        return self.answer(206, part, Content_Range=f"bytes {first}-{last}/{size}", **headers)

    def do_HEAD(self):
        self.body()
        content = self.server.bucket.objects.get(self._at()[0])
        if content is None:
            return self.answer(404)
        return self.answer(
            200, ETag='"1"', Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT", Content_Length=str(len(content))
        )

    def _list(self, query: dict[str, str]):
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

    def do_PUT(self):
        key, query = self._at()
        if "uploadId" in query and self.is_spoilt("part"):
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

    def do_POST(self):
        key, query = self._at()
        if "uploadId" in query and self.is_spoilt("complete"):
            return
        self.body()
        bucket = self.server.bucket
        if "uploads" in query:
            upload = uuid.uuid4().hex
            bucket.uploads[upload] = {}
            text = f"<Bucket>bucket</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            return self.answer(
                200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode()
            )
        parts = bucket.uploads.pop(query["uploadId"], None)
        if parts is None:
            return self.answer(404, GONE)
        bucket.objects[key] = b"".join(parts[number] for number in sorted(parts))
        text = f"<Location>x</Location><Bucket>bucket</Bucket><Key>{escape(key)}</Key><ETag>&quot;1&quot;</ETag>"
        self.answer(200, f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>".encode())

    def do_DELETE(self):
        self.body()
        key, query = self._at()
        if "uploadId" in query:
            self.server.bucket.uploads.pop(query["uploadId"], None)
        else:
            self.server.bucket.objects.pop(key, None)
        self.answer(204)


def _listening(handler, host: str, port: int) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer((host, port), handler)
    server.daemon_threads = True
    server.asked = []
    return server


@contextlib.contextmanager
def _server(handler) -> Iterator[tuple[ThreadingHTTPServer, dict[str, str]]]:
    """A server, and the environment that points a client at it."""
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
def refusing() -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment that points a client at a bucket that refuses, and the requests that it got."""
    with _server(_Refuses) as (server, environment):
        yield environment, server.asked


@contextlib.contextmanager
def serving() -> Iterator[tuple[dict[str, str], Bucket]]:
    """The environment that points a client at `s3://bucket`, and the bucket."""
    with _server(_Serves) as (server, environment):
        server.bucket = Bucket(asked=server.asked)
        yield environment, server.bucket


def main() -> None:
    """Serves until it is ended; any bucket's name is the folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.s3", description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    server = _listening(_Serves, chosen.host, chosen.port)
    server.bucket = Bucket(Files(chosen.folder), asked=server.asked)
    server.serve_forever()


if __name__ == "__main__":
    main()
