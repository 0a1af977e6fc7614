"""Show a run that is watched to Prometheus: on a port of the controller, or in a text once.

Source: prometheus.io/docs/instrumenting/exposition_formats, the text format 0.0.4.
"""

from __future__ import annotations

import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from tfdeploy.commands.watching.history import is_healthy
from tfdeploy.errors import TfdeployError
from tfdeploy.shared.records import READY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

    from tfdeploy.branches.live.watched_run import WatchedHost, WatchedRun, WatchedTask
    from tfdeploy.hosts.following import Following

    Sample = tuple[str, dict[str, str], float | None]  # metric, labels, value

LOOPBACK = "127.0.0.1"
# Pages that a browser has loaded from elsewhere can give their own name this address.
NAMES = (LOOPBACK, "localhost")
PATH = "/metrics"
ALL_S = 10.0  # until all hosts should have reported
GPUS_S = 3.0  # until nvidia-smi should have answered
CLIENT_S = 10.0
MAX_CLIENTS = 64  # at the same time; any user of the controller can connect
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Each metric with its help; a counter's name ends in _total.
METRICS = {
    "tfdeploy_task_state": "1 for the state that a task has.",
    "tfdeploy_task_healthy": "Whether a task is READY, answers and trains, or has succeeded.",
    "tfdeploy_task_state_seconds": "The time since a task entered its state.",
    "tfdeploy_task_restarts_total": "How often a task was restarted.",
    "tfdeploy_task_step": "The last step that a task has reported.",
    "tfdeploy_task_loss": "The loss that a task has printed last.",
    "tfdeploy_task_steps_per_second": "The steps of a task in a second, over five minutes.",
    "tfdeploy_task_cpu_seconds_total": "The CPU time of a task's processes.",
    "tfdeploy_task_memory_bytes": "The resident memory of a task's processes.",
    "tfdeploy_host_up": "Whether a host reports.",
    "tfdeploy_host_cpus": "The processors of a host.",
    "tfdeploy_host_cpu_seconds_total": "The CPU time of all processes of a host.",
    "tfdeploy_host_memory_used_bytes": "The memory of a host that is in use.",
    "tfdeploy_host_memory_bytes": "The memory of a host.",
    "tfdeploy_host_received_bytes_total": "The bytes that a host has received.",
    "tfdeploy_host_sent_bytes_total": "The bytes that a host has sent.",
    "tfdeploy_gpu_busy_ratio": "How busy a GPU is, from 0 to 1.",
    "tfdeploy_gpu_memory_used_bytes": "The memory of a GPU that is in use.",
    "tfdeploy_gpu_memory_bytes": "The memory of a GPU.",
}


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
            if self.headers.get("Host", LOOPBACK).partition(":")[0] not in NAMES:
                self.send_error(403)
                return
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
        server = _Server((LOOPBACK, port), Handler)
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


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._free = threading.Semaphore(MAX_CLIENTS)

    def process_request(self, request: socket | tuple[bytes, socket], client_address: str) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(
        self, request: socket | tuple[bytes, socket], client_address: str
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def _with_gpus(watched: WatchedRun) -> list[WatchedHost]:
    names = {task.placement.host for task in watched.tasks.values() if task.placement.gpus}
    return [watched.hosts[name] for name in names]


def exposition(watched: WatchedRun, now: float) -> str:
    """Return all metrics of a run at the time `now` of time.monotonic."""
    samples = [each for task in watched.tasks.values() for each in _of_task(task, now)]
    samples += [each for host in watched.hosts.values() for each in _of_host(host)]
    run = {
        "project": watched.run.inventory.project,
        "run": watched.run.id,
        "name": watched.run.name,
    }
    lines = []
    for metric, text in METRICS.items():
        kind = "counter" if metric.endswith("_total") else "gauge"
        found = [(labels, value) for name, labels, value in samples if name == metric]
        rows = [_row(metric, run | labels, value) for labels, value in found if value is not None]
        if rows:
            lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}", *rows]
    return "".join(f"{line}\n" for line in lines)


def _of_task(task: WatchedTask, now: float) -> Iterator[Sample]:
    report, labels = task.report, {"task": str(task.placement.task), "host": task.placement.host}
    if report is None:
        return
    said = report.log_progress
    step = report.step if report.step is not None else said.step if said else None
    yield "tfdeploy_task_state", {**labels, "state": report.state}, 1.0
    yield "tfdeploy_task_healthy", labels, float(is_healthy(report))
    yield "tfdeploy_task_state_seconds", labels, task.age_s(now)
    yield "tfdeploy_task_restarts_total", labels, report.restarts
    yield "tfdeploy_task_step", labels, step
    yield "tfdeploy_task_loss", labels, _number(said.loss) if said else None
    yield "tfdeploy_task_steps_per_second", labels, report.pace.steps_per_s if report.pace else None
    if report.state == READY:
        yield "tfdeploy_task_cpu_seconds_total", labels, task.cpu_s
        yield "tfdeploy_task_memory_bytes", labels, task.used_bytes


def _of_host(host: WatchedHost) -> Iterator[Sample]:
    labels, use = {"host": host.name}, host.use
    yield "tfdeploy_host_up", labels, float(use is not None and host.error is None)
    if use is None:
        return
    yield "tfdeploy_host_cpus", labels, use.cpus
    yield "tfdeploy_host_cpu_seconds_total", labels, use.busy_s
    yield "tfdeploy_host_memory_used_bytes", labels, use.used_bytes
    yield "tfdeploy_host_memory_bytes", labels, use.total_bytes
    yield "tfdeploy_host_received_bytes_total", labels, use.received
    yield "tfdeploy_host_sent_bytes_total", labels, use.sent
    for gpu in use.gpus:
        of_gpu = {**labels, "gpu": str(gpu.index)}
        busy = None if gpu.busy_percent is None else gpu.busy_percent / 100
        yield "tfdeploy_gpu_busy_ratio", of_gpu, busy
        yield "tfdeploy_gpu_memory_used_bytes", of_gpu, gpu.used_bytes
        yield "tfdeploy_gpu_memory_bytes", of_gpu, gpu.total_bytes


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "", or a host sends anything else
        return None


def _row(metric: str, labels: dict[str, str], value: float) -> str:
    pairs = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
    shown = "NaN" if math.isnan(value) else repr(value).replace("inf", "Inf")
    return f"{metric}{{{pairs}}} {shown}"


def _escape(text: str) -> str:
    text = text.encode(errors="replace").decode()  # JSON can have surrogates
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
