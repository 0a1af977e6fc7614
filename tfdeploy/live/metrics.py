"""Show a run that is watched to Prometheus: on a port of the controller, or in a text once."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from tfdeploy.errors import TfdeployError
from tfdeploy.output.prometheus import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from tfdeploy.commands.watch import WatchedHost, WatchedRun
    from tfdeploy.hosts.following import Following

LOOPBACK = "127.0.0.1"
PATH = "/metrics"
ALL_S = 10.0  # until all hosts should have reported
GPUS_S = 3.0  # until nvidia-smi should have answered
CLIENT_S = 10.0


def once(watched: WatchedRun, following: Following) -> str:
    """Return the metrics as soon as all hosts have reported, or failed, or after ALL_S seconds."""
    begin = time.monotonic()
    for host, event in following.events(begin + ALL_S):
        watched.take(host, event, time.monotonic())
        waited_s = time.monotonic() - begin
        if all(h.error or h.use for h in watched.hosts.values()) and (
            waited_s > GPUS_S or all(h.use and h.use.gpus for h in _with_gpus(watched))
        ):
            break
    return exposition(watched, time.monotonic())


def serve(watched: WatchedRun, following: Following, port: int) -> None:
    """Serve the metrics on this port of the controller, for its own programs, until the run has
    ended. Raises TfdeployError if the port is taken."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_S

        def do_GET(self) -> None:
            if self.path != PATH:
                self.send_error(404)
                return
            with lock:
                body = exposition(watched, time.monotonic()).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print no line for each request."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise TfdeployError(f"port {port}: {error.strerror}", "use another one: --port") from None
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            for host, event in following.events():
                with lock:
                    watched.take(host, event, time.monotonic())
                if watched.has_ended:
                    break
        finally:
            server.shutdown()


def _with_gpus(watched: WatchedRun) -> list[WatchedHost]:
    names = {task.placement.host for task in watched.tasks.values() if task.placement.gpus}
    return [watched.hosts[name] for name in names]
