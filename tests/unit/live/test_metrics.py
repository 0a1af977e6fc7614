"""The metrics of a run are served on loopback, or printed once."""

from __future__ import annotations

import socket
import threading
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from support.ports import free_port
from support.waiting import until

from tfdeploy.errors import TfdeployError, Unreachable
from tfdeploy.live.metrics import once, serve
from unit.live.samples import sample, task_use, watched_run

SAMPLES = [
    ("w", sample(task_use(), task_use("worker:1"))),
    ("p", sample(task_use("ps:0"))),
]


class Following:
    """Hosts that send these events, and then nothing until `over`."""

    def __init__(self, *events):
        self.sent, self.over = events, threading.Event()

    def events(self, deadline=None):
        yield from self.sent
        if deadline is None:
            self.over.wait()


def test_metrics_are_printed_when_all_hosts_have_reported_or_failed():
    text = once(watched_run(), Following(SAMPLES[0], ("p", Unreachable("p", "no route"))))
    assert "tfdeploy_task_state{" in text
    assert text.count("tfdeploy_host_up{") == 2


def test_metrics_are_served_until_the_run_ends():
    following, port = Following(*SAMPLES), free_port()
    serving = threading.Thread(target=serve, args=(watched_run(), following, port), daemon=True)
    serving.start()

    def answer():
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return page.read().decode()
        except URLError:  # it does not listen yet
            return ""

    until(lambda: "ps:0" in answer(), "the metrics of all hosts")
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    following.over.set()
    serving.join()


def test_a_port_that_is_taken_is_an_error_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TfdeployError, match=f"port {port}: Address already in use"):
            serve(watched_run(), Following(), port)
