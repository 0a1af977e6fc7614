"""A run's metrics, read as Prometheus reads them, on loopback or printed once, and the dashboard
that draws them."""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
import threading
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from support.ports import free_port
from support.waiting import until

from tfdeploy.branches.live import metrics
from tfdeploy.branches.live.metrics import METRICS, exposition, once, serve
from tfdeploy.errors import TfdeployError, Unreachable
from tfdeploy.shared.records import LogProgress, Pace
from unit.branches.live.samples import GB, gpu, host_use, sample, task_use, watched_run

DASHBOARD = Path(__file__).parents[4] / "docs/grafana.json"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})\{{(.*)\}} (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse(text):
    """Return {(metric, labels): value}; strict: each metric has its help and type once, before all
    of its samples, and no sample comes twice."""
    found, described, metric = {}, set(), ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            metric = line.split()[2]
            assert re.fullmatch(NAME, metric) and metric not in described
            described.add(metric)
        elif line.startswith("# TYPE "):
            kind = "counter" if metric.endswith("_total") else "gauge"
            assert line == f"# TYPE {metric} {kind}"
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            pairs = LABEL.findall(labels)
            assert name == metric
            assert ",".join(f'{key}="{text}"' for key, text in pairs) == labels
            key = name, frozenset(pairs)
            assert key not in found
            found[key] = float(value)
    return found


def of(text, metric):
    """Return the values of a metric by the labels that differ."""
    return {
        " ".join(text for key, text in sorted(labels) if key not in ("project", "run", "name")): v
        for (name, labels), v in parse(text).items()
        if name == metric
    }


@pytest.fixture
def text():
    watched = watched_run()
    pace = Pace(300.0, 4.5, 4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    chief = task_use(
        cpu_s=12.5, restarts=2, age_s=75.0, pace=pace,
        log_progress=LogProgress(step=70, loss="0.25"),
    )  # fmt: skip
    use = host_use(busy_s=50.0, received=1000, sent=400, gpus=[gpu(0), gpu(1, None)])
    watched.take("w", sample(chief, task_use("worker:1", state="FAILED"), host=use), 10.0)
    watched.take("p", Unreachable("p", "no route"), 10.0)
    return exposition(watched, 15.0)


def test_tasks_have_their_state_steps_loss_and_restarts(text):
    assert of(text, "tfdeploy_task_state") == {"w READY worker:0": 1, "w FAILED worker:1": 1}
    assert of(text, "tfdeploy_task_state_seconds")["w worker:0"] == 80
    assert of(text, "tfdeploy_task_restarts_total")["w worker:0"] == 2
    assert of(text, "tfdeploy_task_step") == {"w worker:0": 70}
    assert of(text, "tfdeploy_task_loss") == {"w worker:0": 0.25}
    assert of(text, "tfdeploy_task_steps_per_second") == {"w worker:0": 4.5}
    assert of(text, "tfdeploy_task_cpu_seconds_total") == {"w worker:0": 12.5}
    assert of(text, "tfdeploy_task_healthy")["w worker:1"] == 0


def test_hosts_have_their_use_and_those_that_are_away_are_down(text):
    assert of(text, "tfdeploy_host_up") == {"p": 0, "w": 1}
    assert of(text, "tfdeploy_host_cpu_seconds_total") == {"w": 50}
    assert of(text, "tfdeploy_host_memory_bytes") == {"w": 16 * GB}
    assert of(text, "tfdeploy_host_received_bytes_total") == {"w": 1000}


def test_gpus_have_their_use_as_far_as_it_is_known(text):
    assert of(text, "tfdeploy_gpu_busy_ratio") == {"0 w": 0.5}
    assert of(text, "tfdeploy_gpu_memory_used_bytes") == {"0 w": 10 * GB, "1 w": 10 * GB}


def test_a_run_without_any_report_says_only_that_its_hosts_are_not_up():
    assert {name for name, _ in parse(exposition(watched_run(), 0.0))} == {"tfdeploy_host_up"}


@pytest.mark.parametrize(("loss", "value"), [("nan", math.nan), ("-inf", -math.inf), ("x", None)])
def test_a_loss_that_is_no_finite_number_is_written_as_prometheus_reads_it(loss, value):
    watched = watched_run()
    watched.take("w", sample(task_use(log_progress=LogProgress(loss=loss))), 0.0)
    found = of(exposition(watched, 0.0), "tfdeploy_task_loss").get("w worker:0")
    assert str(found) == str(value)


def test_a_host_can_not_forge_lines():
    watched = watched_run()
    watched.take("w", sample(task_use(state='x"} 1\ntfdeploy_host_up{a="\\')), 0.0)
    [(labels, _)] = of(exposition(watched, 0.0), "tfdeploy_task_state").items()
    assert labels == r"w x\"} 1\ntfdeploy_host_up{a=\"\\ worker:0"


def test_a_host_can_not_end_the_exposition_with_what_is_no_text():
    watched = watched_run()
    watched.take("w", sample(task_use(state="\ud800")), 0.0)
    assert of(exposition(watched, 0.0), "tfdeploy_task_state") == {"w ? worker:0": 1}


def test_the_dashboard_draws_only_metrics_that_exist():
    dashboard = json.loads(DASHBOARD.read_text())
    drawn = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"tfdeploy_\w+", target["expr"])
    }
    assert drawn <= {*METRICS}
    assert len(drawn) >= 12
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


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
                assert page.headers["Access-Control-Allow-Origin"] is None
                return page.read().decode()
        except URLError:  # it does not listen yet
            return ""

    until(lambda: "ps:0" in answer(), "the metrics of all hosts")
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    of_a_page = Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": "evil.example"})
    with pytest.raises(HTTPError, match="403"):
        urlopen(of_a_page, timeout=10)
    for method in ("POST", "PUT", "OPTIONS", "TRACE"):
        with pytest.raises(HTTPError, match="501"):
            urlopen(Request(f"http://127.0.0.1:{port}/metrics", b"", method=method), timeout=10)
    following.over.set()
    serving.join()


def test_clients_that_say_nothing_get_only_so_many_threads(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_CLIENTS", 1)
    following, port = Following(), free_port()
    serving = threading.Thread(target=serve, args=(watched_run(), following, port), daemon=True)
    serving.start()

    def connect():
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 10)

    with until(connect, "a connection") as silent:
        until(lambda: any("process_request" in t.name for t in threading.enumerate()), "its thread")
        with connect() as one_more:
            assert one_more.recv(1) == b""
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.recv(1)
    following.over.set()
    serving.join()


def test_a_port_that_is_taken_is_an_error_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TfdeployError, match=f"port {port}: Address already in use"):
            serve(watched_run(), Following(), port)
