"""A webhook on loopback: a real HTTP server that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW, BROKEN = "/slow", "/broken"


class Webhook(ThreadingHTTPServer):
    """`posts` has (path, content type, document) of each request. It never answers at SLOW, and
    answers 404 at BROKEN."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posts: list[tuple[str, str, dict[str, Any]]] = []
        self.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append((self.path, self.headers["Content-Type"], json.loads(body)))
        if self.path == SLOW:
            self.server.closing.wait()
            return
        self.send_response(404 if self.path == BROKEN else 200)
        self.end_headers()
        self.wfile.write(b"no_service")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.closing.set()
        server.shutdown()
