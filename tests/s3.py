"""An S3 bucket that refuses: one loopback server, enough of the protocol to say no."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message>"
    b"<RequestId>0000000000000000</RequestId></Error>"
)


class _Refuses(BaseHTTPRequestHandler):
    """Answers every request as S3 answers one without permission."""

    protocol_version = "HTTP/1.1"

    def _refuse(self):
        self.server.asked.append(f"{self.command} {self.path}")
        body = b"" if self.command == "HEAD" else DENIED
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _refuse

    def log_message(self, *_):
        """Says nothing: what was asked is in `server.asked`."""


@contextlib.contextmanager
def refusing() -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment that points a client at the bucket's server, and the requests that it got."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refuses)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield (
            {
                "AWS_ENDPOINT_URL": (url := f"http://127.0.0.1:{server.server_port}"),
                "AWS_ENDPOINT": url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "nobody",
                "AWS_SECRET_ACCESS_KEY": "nothing",
            },
            server.asked,
        )
    finally:
        server.shutdown()
        server.server_close()
