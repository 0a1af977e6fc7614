"""Measuring one run: its speed, its failure, and Ctrl-C while it is stopped."""

from __future__ import annotations

import os
import signal

import pytest

from tfdeploy.commands.following.signals import delay_signals
from tfdeploy.experiments import scalars
from tfdeploy.experiments.measure import failure_reason, rate_result, watch_then_stop
from tfdeploy.experiments.speedup import MEASURED, Cell, Load
from unit.agent.reports.test_progress import record, write
from unit.commands.following.test_failure_report import report, run_status
from unit.experiments.test_scalars import scalar_event

CELL = Cell(2, 1)


def test_the_speed_is_read_from_the_events(tmp_path):
    write(tmp_path, *[record(scalar_event(n * 10, 5.0 + n, loss=1.0)) for n in range(9)])
    steps = scalars.step_times(scalars.read_events(tmp_path))
    result = rate_result(CELL, "r", steps, Load(), None)
    assert (result.result, result.rate.steps_per_s) == (MEASURED, 10.0)


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
