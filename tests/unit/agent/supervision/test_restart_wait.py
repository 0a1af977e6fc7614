"""What a supervisor does between two attempts of its task."""

from __future__ import annotations

from types import MethodType, SimpleNamespace

from support.builders import make_launch

from tfdeploy.agent.supervision.supervisor import Supervisor
from tfdeploy.agent.supervision.watch import STOP
from tfdeploy.shared.records import GETS_CHECKPOINTS


def waits(delay_s, orders):
    """Return whether the task is restarted after the delay, and the states that were written."""
    states = []
    supervisor = SimpleNamespace(
        launch=make_launch(),
        _run_order=lambda: next(orders),
        write=lambda state, **_: states.append(state),
        membership=SimpleNamespace(end_order=lambda: None),
    )
    supervisor._wait = MethodType(Supervisor._wait, supervisor)
    return Supervisor._wait_for_restart(supervisor, delay_s), states


def test_a_task_says_that_it_gets_the_chiefs_checkpoints_before_its_first_start():
    states = []
    supervisor = SimpleNamespace(
        attempts=[],
        state=SimpleNamespace(reason=""),
        membership=SimpleNamespace(backup=lambda is_restart: lambda: None),
        write=lambda state, **changes: states.append((state, changes)),
        _wait=lambda left_s: True,
    )
    assert Supervisor._wait_for_backup(supervisor)
    assert states == [("STARTING", {"reason": GETS_CHECKPOINTS}), ("STARTING", {"reason": ""})]


def test_a_restart_at_once_is_cancelled_by_an_order_that_has_arrived():
    assert waits(0.0, iter([STOP])) == (False, [STOP.state])


def test_a_restart_at_once_without_an_order_waits_for_nothing():
    assert waits(0.0, iter([None])) == (True, [])


def test_a_restart_is_cancelled_by_an_order_that_arrives_during_the_delay():
    assert waits(60.0, iter([None, STOP])) == (False, [STOP.state])
