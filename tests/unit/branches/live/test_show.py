"""The view is drawn on a terminal, with Textual. Without it there are lines, or JSON lines."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from support import json_documents

from tfdeploy.branches.live import show as view
from tfdeploy.branches.live.document import watch_document
from tfdeploy.documents import to_json
from tfdeploy.environments import installation
from tfdeploy.errors import AuthenticationFailed, RunError, Unreachable
from tfdeploy.hosts.events import HostIsBack
from tfdeploy.output.console import Console
from unit.branches.live.samples import gpu, host_use, keras, sample, task_use, watched_run

MISSING = RunError("Textual is not installed beside tfdeploy", "add watch")
ONE = "[hosts.w]\ngpus = 1\nworkers = 1"
SUCCEEDED = ("w", sample(task_use(state="SUCCEEDED", reason="exit 0")))


class Events:
    """The events of a Following that ends after them."""

    def __init__(self, *events):
        self._events = list(events)

    def events(self, deadline):
        while self._events:
            yield self._events.pop(0)


def printed(capsys, show, *events):
    watched = watched_run(ONE)
    console = Console(for_json=show is view.print_documents)
    show(watched, Events(*events), console, lambda: False)
    console.flush()
    return capsys.readouterr()


def test_each_change_is_one_line_and_the_end_says_what_to_type(capsys):
    events = [("w", sample(task_use())), ("w", sample(task_use())), SUCCEEDED]
    lines = printed(capsys, view.print_changes, *events).out.splitlines()
    assert [line.split()[0] for line in lines] == ["READY", "SUCCEEDED", "run"]
    assert " succeeded. Next: tfdeploy collect " in lines[-1]


def test_a_host_that_is_lost_and_returns_is_named(capsys):
    lost = ("w", Unreachable("w", "no route to host"))
    err = printed(capsys, view.print_changes, lost, ("w", HostIsBack()), SUCCEEDED).err
    assert "w: no route to host" in err
    assert "w answers again" in err


def test_hosts_that_refuse_end_the_watching(capsys):
    refused = ("w", AuthenticationFailed("w", "no key"))
    assert printed(capsys, view.print_changes, refused).out == ""


def test_the_training_is_printed_after_some_seconds(capsys, monkeypatch):
    monkeypatch.setattr(view, "FIRST_S", 0.0)
    event = ("w", sample(task_use(log_progress=keras(2, 20))))
    lines = printed(capsys, view.print_changes, event, SUCCEEDED).out.splitlines()
    assert lines[1] == "epoch 2/10, batch 20/100  loss 0.5"


def test_json_lines_have_hosts_tasks_and_training(capsys):
    event = ("w", sample(task_use(log_progress=keras(2, 20))))
    ended = ("w", sample(task_use(state="SUCCEEDED"), host=host_use(1.0, gpus=[gpu(0)])))
    [line] = printed(capsys, view.print_documents, event, ended).out.splitlines()
    found = json.loads(line)
    json_documents.validator("watch").validate(found)
    assert found["ended"] is True
    assert found["training"]["position"] == {"unit": "step", "reached": 120, "end": 1000}
    assert found["hosts"][0]["gpus"] == [
        {"index": 0, "busy_percent": 50.0, "used_bytes": 10**10, "total_bytes": 8 * 10**10}
    ]
    assert (found["tasks"][0]["task"], found["tasks"][0]["state"]) == ("worker:0", "SUCCEEDED")


def test_a_host_without_a_sample_is_null_in_json():
    watched = watched_run(ONE)
    watched.take("w", Unreachable("w", "gone"), 10.0)
    found = to_json(watch_document(watched, 15.0))
    assert (found["hosts"][0]["away_s"], found["hosts"][0]["error"]) == (5.0, "gone")
    assert found["tasks"][0]["state"] is None


@pytest.mark.parametrize(
    ("terminal", "term", "missing", "drawn", "printed"),
    [
        (True, "xterm", None, True, ""),
        (True, "dumb", MISSING, False, ""),
        (False, "xterm", MISSING, False, ""),
        (True, "xterm", MISSING, False, f"note: {MISSING}\n"),
    ],
)
def test_the_view_needs_a_terminal_and_textual(
    monkeypatch, capsys, terminal, term, missing, drawn, printed
):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(installation, "find_missing", lambda extra: missing)
    console = Console()
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, SimpleNamespace(isatty=lambda: terminal))
    assert view.has_screen(console) is drawn
    assert capsys.readouterr().err == printed
