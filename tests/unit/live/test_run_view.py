"""`run --watch`: what leaving the view means depends on whether the run has ended."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from tfdeploy.commands.following.run_follow import Watcher
from tfdeploy.commands.watch import Ending
from tfdeploy.live import run_view
from tfdeploy.live.app import WatchApp
from unit.live.samples import sample, task_use
from unit.output.samples import make_run

ONE = "[hosts.w]\nworkers = 1"


class Fleet:
    """Hosts that have reported the task in this state."""

    def __init__(self, state):
        self._state = state

    @contextmanager
    def follow(self, run, placements, **asked):
        yield self

    def events(self):
        yield "w", sample(task_use(state=self._state))
        threading.Event().wait(60)


@pytest.fixture
def left_view(monkeypatch):
    """Replace the terminal: the user types q as soon as the task is reported. Return what the view
    has said by then about the run's end."""
    said = []

    def run(app):
        host, event = next(app._events)
        app._watched.take(host, event, 0.0)
        said.append(app._end_line(app._watched))
        return Ending.QUIT

    monkeypatch.setattr(WatchApp, "run", run)
    return said


def follow_on_screen(state, follow, cancel):
    run = make_run(ONE)
    return run_view.follow_on_screen(Fleet(state), run, follow, Watcher(), cancel)


def test_leaving_the_view_of_an_ended_run_returns_its_result(left_view):
    cancel = threading.Event()

    def follow(watcher):
        return "cancelled" if cancel.wait(0.3) else "the result"

    try:
        assert follow_on_screen("SUCCEEDED", follow, cancel) == "the result"
    except KeyboardInterrupt:
        pytest.fail("leaving the view ended the following")
    assert left_view == ["succeeded"]  # the command collects: nothing has to be typed


def test_leaving_the_view_of_a_run_that_continues_ends_the_following(left_view):
    cancel = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        follow_on_screen("READY", lambda watcher: cancel.wait(60), cancel)
    assert cancel.is_set()
    assert left_view == [""]
