"""The view is drawn on a terminal, with Textual; else there are JSON lines."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from support import json_documents

from tfdeploy.commands.watch import Ending
from tfdeploy.documents import to_json
from tfdeploy.environments import installation
from tfdeploy.errors import AuthenticationFailed, RunError, Unreachable
from tfdeploy.live import show as view
from tfdeploy.output.watch_document import watch_document
from unit.live.samples import gpu, host_use, keras, sample, task_use, watched_run

MISSING = RunError("Textual is not installed beside tfdeploy", "add watch")
ONE = "[hosts.w]\ngpus = 1\nworkers = 1"


class Events:
    """The events of a Following that ends after them."""

    def __init__(self, *events):
        self._events = list(events)

    def events(self, deadline):
        while self._events:
            yield self._events.pop(0)


def test_json_lines_have_hosts_tasks_and_training(capsys):
    event = ("w", sample(task_use(log_progress=keras(2, 20))))
    ended = ("w", sample(task_use(state="SUCCEEDED"), host=host_use(1.0, gpus=[gpu(0)])))
    watched = watched_run(ONE)
    assert view.print_documents(watched, Events(event, ended), lambda: False) is Ending.QUIT
    found = json.loads(capsys.readouterr().out)
    json_documents.validator("watch").validate(found)
    assert found["ended"] is True
    assert found["training"]["position"] == {"unit": "step", "reached": 120, "end": 1000}
    assert found["hosts"][0]["gpus"] == [
        {"index": 0, "busy_percent": 50.0, "used_bytes": 10**10, "total_bytes": 8 * 10**10}
    ]
    assert (found["tasks"][0]["task"], found["tasks"][0]["state"]) == ("worker:0", "SUCCEEDED")


def test_hosts_that_refuse_end_the_watching(capsys):
    refused = ("w", AuthenticationFailed("w", "no key"))
    view.print_documents(watched_run(ONE), Events(refused), lambda: False)
    assert json.loads(capsys.readouterr().out)["hosts"][0]["error"] == "no key"


def test_a_host_without_a_sample_is_null_in_json():
    watched = watched_run(ONE)
    watched.take("w", Unreachable("w", "gone"), 10.0)
    found = to_json(watch_document(watched, 15.0))
    assert (found["hosts"][0]["away_s"], found["hosts"][0]["error"]) == (5.0, "gone")
    assert found["tasks"][0]["state"] is None


@pytest.mark.parametrize(
    ("terminal", "term", "refusal"),
    [
        (True, "xterm", "Textual is not installed"),
        (True, "dumb", "the view of watch needs a terminal\n  tfdeploy attach prints lines"),
        (False, "xterm", "the view of watch needs a terminal"),
    ],
)
def test_the_view_needs_a_terminal_and_textual(monkeypatch, terminal, term, refusal):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(installation, "find_missing", lambda extra: MISSING)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, SimpleNamespace(isatty=lambda: terminal))
    with pytest.raises(RunError, match=refusal):
        view.require_screen()
