"""`tfdeploy start`: every task of a plan, detached and READY, or nothing left running."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tfdeploy import remote, run
from tfdeploy.agent.outcome import named
from tfdeploy.agent.records import (
    ENDED,
    FAILED,
    LOST,
    READY,
    STOPPED,
    SUCCEEDED,
    TaskReport,
    from_json,
    to_json,
)
from tfdeploy.errors import (
    AgentError,
    CommandFailed,
    FleetError,
    HostError,
    TaskFailed,
    TaskNotReady,
    TfdeployError,
    parts,
    raise_all,
)
from tfdeploy.steps.status import status
from tfdeploy.steps.stop import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.fleet import Fleet
    from tfdeploy.plan import Placement
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run
    from tfdeploy.steps.plan import Intent
    from tfdeploy.steps.status import TaskStatus

TAIL = 20
PEER_TIMEOUT_S = 5.0


def start(
    fleet: Fleet,
    intent: Intent,
    on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
) -> Run:
    """Start the run that `intent` describes and wait until every task is READY.

    `on_report(host, report)` is called at each change of a task's state. Raises what went wrong on
    any host or task (HostError, TaskFailed, TaskNotReady), after everything was stopped again.
    """
    begun = run.Run(
        run.new_id(), intent.release.id, remote.current_version(), intent.inventory, intent.plan
    )
    run.save(begun)
    try:
        _launch_or_forget(fleet, intent, begun)
        _ready_or_stop(fleet, begun, on_report)
    except KeyboardInterrupt:
        with uninterrupted():
            errors = _stopped(fleet, begun)
        raise_all(errors, f"interrupted; to end what may be left: tfdeploy stop {begun.flags}")
        raise
    return begun


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not end the cleaning up after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread alone
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stopped(fleet: Fleet, begun: Run) -> list[TfdeployError]:
    """Stop everything; what fails in that is told after what failed first."""
    try:
        stop(fleet, begun)
    except TfdeployError as error:
        return [error]
    return []


def _launch_or_forget(fleet: Fleet, intent: Intent, begun: Run) -> None:
    """A start that hosts refused leaves no record; one that a host was lost in might yet live."""
    try:
        _launch(fleet, intent, begun)
    except TfdeployError as error:
        left = _stopped(fleet, begun)
        refused = all(isinstance(part, AgentError | CommandFailed) for part in parts(error))
        if refused and not left:
            run.forget(begun)
        raise_all([error, *left])


def _ready_or_stop(fleet: Fleet, begun: Run, on_report: Callable[[str, TaskReport], None]) -> None:
    try:
        _wait_ready(fleet, begun, on_report)
        _check_peers(fleet, begun)
    except TfdeployError as error:
        raise_all([error, *_stopped(fleet, begun)])


def _launch(fleet: Fleet, intent: Intent, begun: Run) -> None:
    """One call a host, with its tasks in the plan's order: ps before workers before chief."""
    launches = intent.launches(begun.id)

    def ask(agent: Agent) -> Any:
        mine = {str(p.task) for p in begun.plan.on(agent.host)}
        return agent.ask("start", {"launches": [to_json(x) for x in launches if x.task in mine]})

    fleet.each(begun.plan.hosts, ask)


def _wait_ready(fleet: Fleet, begun: Run, on_report: Callable[[str, TaskReport], None]) -> None:
    deadline = time.monotonic() + begun.inventory.training.ready_timeout_s
    waiting = {str(p.task) for p in begun.plan.placements}
    with fleet.follow(begun, begun.plan.placements, logs=False) as following:
        for host, event in following.events(deadline):
            if isinstance(event, HostError):
                raise event
            if "state" not in event:
                continue
            report = from_json(TaskReport, event["state"])
            on_report(host, report)
            if report.state in (READY, SUCCEEDED):
                waiting.discard(report.task)
            elif report.state in ENDED:
                raise failures(fleet, begun, report.task)
            if not waiting:
                return
    _raise_not_ready(fleet, begun, waiting)


def failures(fleet: Fleet, begun: Run, first: str) -> TfdeployError:
    """Who failed: the first with its log's last lines, then any other, as one error to raise."""
    seen = status(fleet, begun, TAIL)
    bad = (FAILED, LOST, STOPPED)
    failed = [t for t in seen.tasks if t.report and t.report.state in bad]
    failed.sort(key=lambda t: str(t.placement.task) != first)
    hint = f"the logs are kept: tfdeploy logs {begun.flags}"
    told = [_failure(t.placement, t.report, n == 0) for n, t in enumerate(failed)]
    return FleetError([*told, *seen.errors], hint)


def _failure(placement: Placement, report: TaskReport | None, whole: bool) -> TaskFailed:
    assert report
    return TaskFailed(
        str(placement.task),
        placement.host,
        f"it ended: {report.reason or named(report.exit or 0)}",
        log=report.log if whole else (),
    )


def _raise_not_ready(fleet: Fleet, begun: Run, waiting: set[str]) -> None:
    limit_s = begun.inventory.training.ready_timeout_s
    seen = status(fleet, begun, TAIL)
    late = [task for task in seen.tasks if str(task.placement.task) in waiting]
    errors = [*seen.errors, *(_not_ready(task, limit_s) for task in late)]
    hint = "does the script open the port that it is told? training.ready_timeout_s is the limit"
    raise_all(errors, hint)


def _not_ready(task: TaskStatus, limit_s: float) -> TaskNotReady:
    placement, report = task.placement, task.report
    health = report.health if report else "nothing: its host doesn't tell"
    message = f"it was not ready within {limit_s:g} s: its port {placement.port} says {health}"
    log = report.log if report else ()
    return TaskNotReady(str(placement.task), placement.host, message, log=log)


def _check_peers(fleet: Fleet, begun: Run) -> None:
    """Each worker's host asks every ps under the address that the cluster spec gives."""

    def ask(agent: Agent) -> list[TaskNotReady]:
        dialled = {str(p.task): p for p in begun.plan.dialled_from(agent.host)}
        peers = [
            {"task": task, "address": p.address, "port": p.port} for task, p in dialled.items()
        ]
        body = {"peers_asked": peers, "timeout_s": PEER_TIMEOUT_S}
        answers = agent.ask("peers", body)["peers"] if peers else []
        return [
            _unreached(agent.host, dialled[answer["task"]], answer["detail"])
            for answer in answers
            if answer["verdict"] != READY
        ]

    found = fleet.each(begun.plan.hosts, ask)
    unreached = [error for errors in found.values() for error in errors]
    if unreached:
        seen = status(fleet, begun)  # a short task may have ended well before it was dialled
        done = {t.report.task for t in seen.tasks if t.report and t.report.state == SUCCEEDED}
        raise_all([error for error in unreached if error.task not in done])


def _unreached(host: str, peer: Placement, detail: str) -> TaskNotReady:
    return TaskNotReady(
        str(peer.task),
        peer.host,
        f"{host} can't reach it at {peer.endpoint}: {detail}",
        f"is a firewall between them? is hosts.{peer.host}.address what {host} can dial?",
    )
