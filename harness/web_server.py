"""Web servers on loopback that stand for other services."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler], address: str = "127.0.0.1", **state: Any) -> Iterator[Any]:
    """Runs a server until the block ends. Its handler finds `state` there, and notes requests in `asked`."""
    server = ThreadingHTTPServer((address, 0), handler)
    vars(server).update(state, asked=[], url=f"http://{address}:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
