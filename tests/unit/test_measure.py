"""Measuring one run: what is a failure, what Ctrl-C does to its end, and hosts that lie."""

from __future__ import annotations

import math
import os
import signal
from types import SimpleNamespace

import pytest

from tfdeploy.agent.records import FAILED, READY, SUCCEEDED
from tfdeploy.errors import AgentError
from tfdeploy.speedup import MEASURED, Cell, Load, Sample
from tfdeploy.steps import measure as steps
from tfdeploy.steps.start import uninterrupted
from unit.test_curves import scalars
from unit.test_progress import record, write
from unit.test_run import made

CELL = Cell(2, 1)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Measure a run of ten steps a second, in which a task has fallen or none, and whose chief has
    ended so."""
    known = made(tmp_path)
    write(known.folder / "events", *[record(scalars(n * 10, 5.0 + n, loss=1.0)) for n in range(9)])

    def one(fallen="", chief=READY, stop=lambda *_: None):
        watch = SimpleNamespace(fallen=fallen, points=[], load=Load(), go_on=lambda seconds: None)
        seen = SimpleNamespace(report=lambda task: SimpleNamespace(state=chief))
        monkeypatch.setattr(steps, "_Watch", lambda *_: watch)
        monkeypatch.setattr(steps, "stop", stop)
        monkeypatch.setattr(steps, "collect_traces", lambda *_: None)
        monkeypatch.setattr(steps, "status", lambda *_: seen)
        monkeypatch.setattr(steps, "blame", lambda seen, first: f"{first} fell")
        return steps.measure(None, known, CELL, 1.0, None)

    return one


def test_a_run_is_measured_by_its_events(measure):
    found = measure()
    assert (found.result, found.rate.steps_per_s) == (MEASURED, 10.0)


def test_a_task_that_falls_spoils_it_unless_the_chief_has_ended_well(measure):
    fell = measure("worker:1", FAILED)
    assert (fell.result, fell.reason, fell.rate) == ("failed", "worker:1 fell", None)
    assert measure("worker:1", READY).reason == "worker:1 fell"
    assert measure("worker:1", SUCCEEDED).rate.steps_per_s == 10.0


@pytest.fixture(autouse=True)
def heard():
    """A shell lets what it runs in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press(*_):
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_during_the_stop_is_heard_after_it(measure):
    stopped = []

    def stop(*_):
        press()
        stopped.append(True)

    with pytest.raises(KeyboardInterrupt):
        measure(stop=stop)
    assert stopped


def test_a_second_ctrl_c_ends_no_cleaning_up_and_hides_no_error():
    with uninterrupted():
        press()
    with pytest.raises(ValueError, match="what went wrong"), uninterrupted(heard_after=True):
        press()
        raise ValueError("what went wrong")
    with pytest.raises(KeyboardInterrupt):
        press()


TOLD = {"at": 1.5, "cpu_s": {"ps:0": 2}, "busy_s": 3.0, "received": 4, "sent": 5}


def test_what_a_host_tells_is_taken_as_numbers():
    assert steps._sample("a", TOLD) == Sample(1.5, {"ps:0": 2.0}, 3.0, 4, 5)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 10**400, "1", None, {}])
@pytest.mark.parametrize("key", list(TOLD))
def test_whatever_is_no_number_is_refused(key, odd):
    answer = {**TOLD, key: {"ps:0": odd} if key == "cpu_s" else odd}
    with pytest.raises(AgentError, match="are no numbers"):
        steps._sample("a", answer)
