"""`tfdeploy stop`: end every process of one run, and verify it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.commands.status import status
from tfdeploy.config.cluster import Task
from tfdeploy.errors import RunBeingChanged, TaskError, TfdeployError, raise_all
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import Fleet, answers_of
from tfdeploy.planning.plan import tasks_by_host
from tfdeploy.shared.protocol.preflight import UnfinishedTasks
from tfdeploy.shared.protocol.runs import Stop, StoppedTask
from tfdeploy.shared.records import ENDED, STOPPED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.runs import SavedCheckpoint

    Outcomes = Mapping[str, list[StoppedTask] | TfdeployError]

MARGIN_S = 40.0
# Supervisors ask the chief's supervisor every second, in a cluster of 500 tasks every 10 seconds.
HEARTBEAT_WAIT_S = 10.0
POLL_S = 0.5
CHANGE_WAIT_S = 600.0  # a large checkpoint may be on its way to another host
_log = logging.getLogger(__name__)
# How long the chief's supervisor may take to exit by itself, when all tasks have ended.
LINGER_S = 2.0


@dataclass(frozen=True)
class OtherTask:
    """A task that ran on a host where the run's plan does not have it."""

    task: str
    """The task's name."""
    host: str
    """The host's name."""
    state: str
    """The state in which it was left."""


@dataclass(frozen=True)
class StopResult:
    """What was stopped."""

    __repr__ = short_repr
    KEYS = (
        *("run", "states", "saved", "names_ended_unasked", "names_unconfirmed", "others"),
        *("silent_hosts", "errors"),
    )
    NAMES: ClassVar = {
        "states": "tasks",
        "names_ended_unasked": "ended_unasked",
        "names_unconfirmed": "unconfirmed",
    }

    states: dict[str, str]
    """The state in which each task was left."""
    saved: SavedCheckpoint | None
    """The newest checkpoint of a chief that still trained."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of hosts."""
    ended_unasked: tuple[Placement, ...] = ()
    unconfirmed: tuple[Placement, ...] = ()
    others: tuple[OtherTask, ...] = ()
    """Tasks that ran on hosts where the plan does not have them."""
    silent_hosts: tuple[str, ...] = ()
    """Hosts without a task of the plan that did not answer."""
    run: str = ""
    """The run's id."""

    @property
    def names_ended_unasked(self) -> tuple[str, ...]:
        """Tasks on silent hosts, which ended by the run's own network."""
        return tuple(str(placement.task) for placement in self.ended_unasked)

    @property
    def names_unconfirmed(self) -> tuple[str, ...]:
        """Tasks on silent hosts, which may still run."""
        return tuple(str(placement.task) for placement in self.unconfirmed)


def stop(fleet: Fleet, run: Run, *, silent: bool = False, launched: str = "") -> StopResult:
    """Stop as `stop_reachable` does; then raise what went wrong: a host that can't be reached, a
    task that may still run, a process that survived SIGKILL."""
    stopped = stop_reachable(fleet, run, silent=silent, launched=launched)
    raise_errors(run, stopped)
    return stopped


def raise_errors(run: Run, stopped: StopResult) -> None:
    """Raise the errors of a stop, and one for each task that may still run."""
    raise_all([*stopped.errors, *unconfirmed_errors(run, stopped)])


def unconfirmed_errors(run: Run, stopped: StopResult) -> list[TaskError]:
    """Return an error for each task that may still run."""
    hint = f"when its host answers again: tfdeploy stop {run.flags}"
    return [
        TaskError(str(p.task), p.host, "may still be running: no answer", hint)
        for p in stopped.unconfirmed
    ]


def stop_reachable(
    fleet: Fleet,
    run: Run,
    *,
    silent: bool = False,
    launched: str = "",
    on_wait: Callable[[Mapping[str, str], list[str]], None] = lambda states, waiting: None,
) -> StopResult:
    """Stop all tasks on all hosts that can be reached. Raises only OutdatedRecord.

    With `launched`, only tasks of that launch: what cleans up after a failed start must not end
    what another one has started.

    When some hosts take longer, `on_wait` gets the states of the tasks that have stopped, and the
    names of the hosts that have not answered.

    Workers stop before the ps: a worker without its ps ignores SIGTERM for most of a minute. A
    chief that saves when it ends (save_on_stop) stops first, because its last step may need the
    others.

    The chief's supervisor stays until all hosts were reached: it orders the tasks on hosts that SSH
    can't reach to end. If `silent`, it does not notify anybody, because this is not the run's end.
    """
    found, chief = _Answers(run), _chief(run)
    to_stop = replace(run, launched=launched)

    def report(outcomes: Outcomes, waiting: list[str]) -> None:
        on_wait(_states(run, outcomes), waiting)

    *first, last = waves = _waves(run)
    for number, wave in enumerate(first, 1):
        later = {placement.host for wave in waves[number:] for placement in wave}
        found.take(_stop_tasks(fleet, to_stop, wave, report, later, silent=silent))
    # With the last tasks, the chief is asked again: its supervisor exits when all have ended.
    again = [chief] if chief and chief not in last and not found.errors else []
    linger_s = 0.0 if found.errors else LINGER_S
    found.take(
        _stop_tasks(fleet, to_stop, [*last, *again], report, silent=silent, linger_s=linger_s)
    )
    if chief and not found.errors and not found.chief_left:
        _stop_tasks(fleet, to_stop, [chief], report, informs=False, silent=silent)
    unasked = [p for p in run.plan.placements if str(p.task) not in found.states]
    if unasked:
        on_wait(found.states, [*dict.fromkeys(p.host for p in unasked)])
    unconfirmed = _wait_for_unasked(fleet, run, unasked) if unasked else []
    ended_unasked = tuple(p for p in unasked if p not in unconfirmed)
    errors = [*found.errors, *([] if launched else found.live())]
    unique = tuple({str(error): error for error in errors}.values())
    return StopResult(
        found.states,
        found.saved,
        unique,
        ended_unasked,
        tuple(unconfirmed),
        tuple(found.others),
        run=run.id,
    )


def stop_everywhere(
    fleet: Fleet,
    run: Run,
    current: Callable[[], Inventory],
    on_wait: Callable[[Mapping[str, str], list[str]], None] = lambda states, waiting: None,
) -> StopResult:
    """Stop as `stop_reachable` does, and also what runs on hosts without a task of the plan: hosts
    that a resume has left out, and those on which another controller may have resumed the run.

    `current` reads hosts.toml, which alone says how hosts that were left out are reached. Raises
    OutdatedRecord; RunDeleted if nothing ran, and the run was deleted from all hosts.
    """
    stopped = _stop_after_changes(fleet, run, on_wait)
    stopped = _stop_elsewhere(run, fleet.record, current, stopped)
    if stopped == StopResult(dict.fromkeys(stopped.states, UNKNOWN), None, run=run.id):
        status(fleet, run)
    return stopped


def _stop_after_changes(
    fleet: Fleet, run: Run, on_wait: Callable[[Mapping[str, str], list[str]], None]
) -> StopResult:
    """Stop as `stop_reachable` does, once no other controller resumes or scales the run: what it
    starts would go on. Its start makes the record newer, so this raises OutdatedRecord then."""
    deadline, said = time.monotonic() + CHANGE_WAIT_S, False
    while True:
        stopped = stop_reachable(fleet, run, on_wait=on_wait)
        changes = [error for error in stopped.errors if isinstance(error, RunBeingChanged)]
        if not changes or time.monotonic() > deadline:
            return stopped
        if not said:
            _log.warning("%s; it is stopped after that", changes[0].message)
        said = True
        time.sleep(POLL_S)


def _stop_elsewhere(
    run: Run, record: Run | None, current: Callable[[], Inventory], stopped: StopResult
) -> StopResult:
    """Add to what was stopped what still ran on hosts without a task of the plan. `record` is as in
    Fleet: None stops by the controller's record although a host has another one."""
    left = {*run.left_out} - {host.name for host in run.inventory.hosts}
    idle = [host for host in run.inventory.hosts if host.name not in run.plan.hosts]
    names, errors = (*(host.name for host in idle), *sorted(left)), stopped.errors
    if not names:
        return stopped
    try:
        idle += [host for host in current().hosts if host.name in left] if left else []
    except TfdeployError as error:  # the hosts that were left out can't be asked
        errors = (*errors, error)
    request = Stop(run.inventory.project, run.id, [], others=True)
    timeout_s = run.inventory.training.stop_grace_s * 2 + MARGIN_S
    with Fleet(run.inventory.copy_with({"hosts": tuple(idle)}), record=record) as fleet:
        outcomes = fleet.outcomes(fleet.agents, lambda agent: agent.ask(request, timeout_s).tasks)
    found = _Answers(run)
    found.take(answers := answers_of(outcomes))
    return replace(
        stopped,
        errors=(*errors, *found.errors, *found.live()),
        others=(*stopped.others, *found.others),
        silent_hosts=tuple(host for host in names if host not in answers),
    )


class _Answers:
    """What the hosts answered so far; `chief_left` says that the chief's supervisor has exited."""

    def __init__(self, run: Run) -> None:
        self.states: dict[str, str] = {}
        self.others: list[OtherTask] = []
        self.saved: SavedCheckpoint | None = None
        self.errors: list[TfdeployError] = []
        self.chief_left = False
        self._run = run

    def take(self, outcomes: Outcomes) -> None:
        chief = str(self._run.plan.chief.task) if _chief(self._run) else ""
        self.states = _states(self._run, outcomes) | self.states
        for host, outcome in outcomes.items():
            if isinstance(outcome, TfdeployError):
                self.errors.append(outcome)
                continue
            saved = (each.saved for each in outcome if each.state == STOPPED and each.saved)
            self.saved = self.saved or next(saved, None)
            self.errors += [_survivors(host, each) for each in outcome if each.survivors]
            self.chief_left |= any(each.left for each in outcome if each.task == chief)
            own = {str(p.task) for p in self._run.plan.placements_on(host)}
            more = (each for each in outcome if each.task not in own)
            self.others += [OtherTask(each.task, host, each.state) for each in more]

    def live(self) -> list[TaskError]:
        """Return an error for each task that runs after its stop: only a start at the same moment
        leaves one."""
        placements = self._run.plan.placements
        tasks = [(str(p.task), p.host, self.states.get(str(p.task), UNKNOWN)) for p in placements]
        tasks += [(other.task, other.host, other.state) for other in self.others]
        hint = f"tfdeploy stop {self._run.flags}"
        return [
            TaskError(task, host, f"it is {escape_line(state)} after the stop", hint)
            for task, host, state in tasks
            if state not in (*ENDED, UNKNOWN)
        ]


def _states(run: Run, outcomes: Outcomes) -> dict[str, str]:
    """Return the states of the tasks that the plan has on the hosts that answered."""
    in_plan = {(str(p.task), p.host) for p in run.plan.placements}
    return {
        answer.task: answer.state
        for host, answers in answers_of(outcomes).items()
        for answer in answers
        if (answer.task, host) in in_plan
    }


def _wait_for_unasked(fleet: Fleet, run: Run, unasked: list[Placement]) -> list[Placement]:
    """Give the tasks that could not be asked time to end; return those that did not report to the
    chief's supervisor that they ended."""
    chief = _chief(run)
    if chief is None:
        return unasked
    request = UnfinishedTasks(run.inventory.project, run.id, str(chief.task), POLL_S)
    deadline, unconfirmed = time.monotonic() + HEARTBEAT_WAIT_S, unasked
    while unconfirmed and chief not in unasked:
        try:
            active = fleet.agents[chief.host].ask(request).tasks
        except TfdeployError:
            break
        unconfirmed = [p for p in unconfirmed if str(p.task) in active]
        if not unconfirmed or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return unconfirmed


def _waves(run: Run) -> list[list[Placement]]:
    """Return the tasks in groups that are stopped one after another, at least one group."""
    ps = [p for p in run.plan.placements if p.task.job == "ps"]
    others = [p for p in run.plan.placements if p.task.job != "ps"]
    if run.inventory.training.save_on_stop and others:
        chief = _chief(run)
        first = [chief] if chief else []
        waves = [first, [p for p in others if p not in first], ps]
    else:
        waves = [others, ps]
    return [wave for wave in waves if wave] or [[]]


def _chief(run: Run) -> Placement | None:
    """Return the run's chief; None if its host is lost and only the other hosts are stopped."""
    chiefs = [p for p in run.plan.placements if p.task in (Task("chief", 0), Task("worker", 0))]
    return chiefs[-1] if chiefs else None


def _stop_tasks(
    fleet: Fleet,
    run: Run,
    placements: list[Placement],
    on_wait: Callable[[Outcomes, list[str]], None],
    stopped_later: Collection[str] = (),
    *,
    informs: bool = True,
    silent: bool = False,
    linger_s: float = 0.0,
) -> Outcomes:
    """Stop tasks; the fields of `Stop` say how. A person's stop includes all other tasks of the run
    on each host, once the host is not `stopped_later`."""
    by_host = tasks_by_host(placements)

    def ask(agent: Agent) -> list[StoppedTask]:
        tasks, project = by_host[agent.host], run.inventory.project
        others = not run.launched and agent.host not in stopped_later
        request = Stop(project, run.id, tasks, run.launched, informs, silent, linger_s, others)
        timeout_s = run.inventory.training.stop_grace_s * 2 + MARGIN_S + linger_s
        return agent.ask(request, timeout_s).tasks

    def report(outcomes: Outcomes) -> None:
        on_wait(outcomes, [host for host in by_host if host not in outcomes])

    return fleet.outcomes(by_host, ask, on_wait=report)


def _survivors(host: str, answer: StoppedTask) -> TaskError:
    pids = ", ".join(str(pid) for pid in answer.survivors)
    noun = "process" if len(answer.survivors) == 1 else "processes"
    return TaskError(
        answer.task,
        host,
        f"{noun} {pids} survived SIGKILL",
        "the kernel is waiting for a lost disk or GPU: only a reboot ends such processes",
    )
