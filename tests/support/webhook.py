"""A webhook on loopback: a real HTTP server that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW, BROKEN, REDIRECT = "/slow", "/broken", "/redirect/"


class Webhook(ThreadingHTTPServer):
    """`posts` has (path, content type, document) of each request. It never answers at SLOW; at
    BROKEN it answers 404, with the path in everything that it sends. After REDIRECT comes the
    status of an answer that leads to `location`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posts: list[tuple[str, str, dict[str, Any]]] = []
        self.gets: list[str] = []
        self.location = ""
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
        if self.path.startswith(REDIRECT):
            self.send_response(int(self.path[len(REDIRECT) :]))
            self.send_header("Location", self.server.location)
        else:
            code = 404 if self.path.startswith(BROKEN) else 200
            self.send_response(code, f"no {self.path}")
        self.end_headers()
        self.wfile.write(f"no_service {self.path}".encode())

    def do_GET(self) -> None:
        self.server.gets.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.closing.set()
        server.shutdown()
