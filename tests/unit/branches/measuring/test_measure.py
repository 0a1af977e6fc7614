"""Measuring one run: its speed, its failure, and Ctrl-C while it is stopped."""

from __future__ import annotations

import os
import signal

import pytest
from support.events import record, scalar_event, write

from tfdeploy.branches.measuring import scalars
from tfdeploy.branches.measuring.measure import (
    ended_reason,
    failure_reason,
    rate_result,
    watch_then_stop,
)
from tfdeploy.branches.measuring.scalars import Point
from tfdeploy.branches.measuring.speed.results import FAILED, MEASURED, Cell
from tfdeploy.commands.signals import delay_signals
from unit.commands.launching.test_failure_report import report, run_status

CELL = Cell(2, 1)
LOG = tuple(Point(3 * n, 100.0 + n, None) for n in range(9))


def test_the_speed_is_read_from_the_events(tmp_path):
    write(tmp_path, *[record(scalar_event(n * 10, 5.0 + n, loss=1.0)) for n in range(9)])
    steps = scalars.step_times(scalars.read_events(tmp_path))
    result = rate_result(CELL, "r", steps, LOG)
    assert (result.result, result.rate.steps_per_s) == (MEASURED, 10.0)
    assert result.rate.source == "events"


def test_without_steps_in_the_events_the_speed_is_read_from_the_log():
    for events in ((), LOG[:1]):
        result = rate_result(CELL, "r", events, LOG)
        assert (result.rate.steps_per_s, result.rate.source) == (3.0, "log")


@pytest.mark.parametrize(
    ("events", "log", "reason"),
    [
        (1, 0, "reported only 1 step: raise --seconds"),
        (0, 2, "reported only 2 steps: raise --seconds"),
        (0, 0, "its chief's events have no step, and its log has no line such as step = 120"),
    ],
)
def test_too_few_steps_are_a_failure_with_a_reason(events, log, reason):
    result = rate_result(CELL, "r", LOG[:events], LOG[:log])
    assert (result.result, result.reason, result.rate) == (FAILED, reason, None)


def test_a_task_that_ended_early_is_named_with_what_to_do():
    assert ended_reason("worker:1", 31.4, 60.0) == (
        "worker:1 ended after 31 of 60 s: give it more steps, or lower --seconds"
    )


def test_a_failed_task_is_a_failure_unless_the_chief_succeeded():
    failed = report("worker:1")
    for chief in (report("worker:0", "FAILED", 1.0), report("worker:0", "READY")):
        assert "worker:1 on w: it ended" in failure_reason(run_status(failed, chief), "worker:1")
    succeeded = run_status(failed, report("worker:0", "SUCCEEDED"))
    assert failure_reason(succeeded, "worker:1") == ""


@pytest.fixture(autouse=True)
def default_sigint():
    """Handle Ctrl-C as in the foreground: a shell lets background processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c(*_):
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_while_the_run_is_stopped_takes_effect_afterwards():
    stopped = []

    def stop():
        press_ctrl_c()
        stopped.append(True)

    with pytest.raises(KeyboardInterrupt):
        watch_then_stop(lambda: None, stop)
    assert stopped


def test_a_second_ctrl_c_neither_ends_the_cleanup_nor_hides_an_error():
    with delay_signals():
        press_ctrl_c()
    with pytest.raises(ValueError, match="what went wrong"), delay_signals(raise_after=True):
        press_ctrl_c()
        raise ValueError("what went wrong")
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()
