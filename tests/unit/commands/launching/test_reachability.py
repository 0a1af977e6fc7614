"""Which tasks hosts can't reach, and what the user can do."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.commands.launching.reachability import judge, unreached_tasks
from tfdeploy.commands.status import RunStatus, TaskStatus
from tfdeploy.errors import TaskNotReady, Unreachable
from tfdeploy.run import Run
from tfdeploy.shared.protocol.preflight import REFUSED, PeerHealth, PeersAsked
from tfdeploy.shared.records import (
    BACKOFF,
    ENDED,
    FROZEN,
    NOT_LISTENING,
    READY,
    RUNNING,
    UNREACHABLE,
)
from unit.output.samples import make_report

HOSTS = "[hosts.p]\nps = 1\n" + "".join(f"[hosts.{name}]\nworkers = 1\n" for name in "abc")


def test_hosts_that_the_guard_refuses_get_another_hint_than_those_behind_a_firewall():
    plan = make_plan(HOSTS)
    verdicts = {"a": READY, "b": REFUSED, "c": UNREACHABLE}
    answers = {
        host: PeersAsked([PeerHealth("ps:0", verdict, f"{verdict} here")], "")
        for host, verdict in verdicts.items()
    }
    behind, refused = map(str, unreached_tasks(plan, answers))
    where = f"it at {plan.placements[0].endpoint}"
    assert behind.startswith(f"ps:0 on p: c can't reach {where}: UNREACHABLE here\n")
    assert "firewall" in behind
    assert refused.startswith(f"ps:0 on p: b can't reach {where}: REFUSED here\n  set one user")
    assert "firewall" not in refused


# What has ended meanwhile

ASKED_FOR_S = 2.0
NOT_REACHED = TaskNotReady("worker:1", "b", "a can't reach it", "check for a firewall")
NO_SUPERVISOR = TaskNotReady("worker:0", "a", "b can't reach its supervisor", "open this port")


def judged(worker, chief=None, errors=()):
    """Return which errors hold if worker:0, the chief, and worker:1 are so; None: no report."""
    plan = make_plan(HOSTS)
    reports = {"worker:0": chief or make_report(age_s=60.0), "worker:1": worker}
    tasks = tuple(TaskStatus(p, reports.get(str(p.task))) for p in plan.placements)
    found = RunStatus(Run("r-1", "f00d", "a9e", make_inventory(HOSTS), plan), tasks, errors)
    return judge(found, [NOT_REACHED], [NO_SUPERVISOR], ASKED_FOR_S)


def report(**changes):
    return make_report(task="worker:1", **{"age_s": 60.0, **changes})


@pytest.mark.parametrize("state", [*ENDED, BACKOFF, RUNNING])
def test_a_task_that_is_no_longer_ready_is_not_judged(state):
    assert judged(report(state=state, reason="killed by SIGSEGV")) == [NO_SUPERVISOR]


def test_a_task_that_was_restarted_meanwhile_is_not_judged():
    assert judged(report(age_s=ASKED_FOR_S - 0.5)) == [NO_SUPERVISOR]


def test_a_host_that_does_not_answer_any_more_is_the_error_and_its_task_is_not_judged():
    lost = Unreachable("b", "it restarts")
    assert judged(None, errors=(lost,)) == [lost, NO_SUPERVISOR]


@pytest.mark.parametrize("health", [READY, "-"])
def test_a_task_that_its_own_host_reaches_is_behind_a_firewall(health):
    assert judged(report(health=health)) == [NOT_REACHED, NO_SUPERVISOR]


@pytest.mark.parametrize("health", [FROZEN, NOT_LISTENING])
def test_no_firewall_is_named_if_its_own_host_does_not_reach_a_task(health):
    error, _ = judged(report(health=health))
    assert error.message == NOT_REACHED.message
    assert error.hint.startswith(f"its own host finds its port {health}, too")


@pytest.mark.parametrize("state", ENDED)
def test_nothing_is_judged_once_the_chief_has_ended(state):
    assert judged(report(), chief=make_report(state=state)) == []


@pytest.mark.parametrize("state", [READY, BACKOFF, RUNNING])
def test_the_supervisor_of_a_live_chief_is_judged(state):
    assert NO_SUPERVISOR in judged(report(), chief=make_report(state=state))
