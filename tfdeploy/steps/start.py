"""`tfdeploy start`: every task of a plan, detached and READY, or nothing left running."""

from __future__ import annotations

import secrets
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdeploy import bundle, launch, roles, run
from tfdeploy import plan as plans
from tfdeploy.agent.health import FROZEN, NOT_GRPC, WRONG_TASK
from tfdeploy.agent.records import (
    ENDED,
    PORT,
    PROCESS,
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
    HostError,
    Leased,
    TaskNotReady,
    TfdeployError,
    parts,
    raise_all,
)
from tfdeploy.fields import AUTO
from tfdeploy.hostnames import folded
from tfdeploy.steps.blame import blame
from tfdeploy.steps.status import status
from tfdeploy.steps.stop import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfdeploy.agent.records import Launch
    from tfdeploy.fleet import Fleet
    from tfdeploy.inventory import Inventory
    from tfdeploy.plan import Plan
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run
    from tfdeploy.steps.plan import Intent
    from tfdeploy.steps.status import TaskStatus

TAIL = 20
PEER_TIMEOUT_S = 5.0
# What shows that a port is reached, whoever's server it is.
ANY_ANSWER = (READY, NOT_GRPC, WRONG_TASK, FROZEN)
YIELD_S = 20.0
YIELD_LOOK_S = 0.5


def start(
    fleet: Fleet,
    intent: Intent,
    on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
) -> Run:
    """Start the run that `intent` describes and wait until every task is READY.

    `on_report(host, report)` is called at each change of a task's state. Raises what went wrong on
    any host or task (HostError, TaskFailed, TaskNotReady), after everything was stopped again.
    """
    return start_planned(fleet, planned(fleet, intent), on_report)


def planned(fleet: Fleet, intent: Intent) -> Run:
    """The run that an intent is going to be, on ports that are free now. Nothing is started."""
    inventory = with_ports(fleet, intent.inventory, intent.plan)
    plan = plans.remake(inventory)
    auto = tuple(host.name for host in intent.inventory.hosts if host.ports == AUTO)
    agent, data = bundle.current_version(), intent.data_ids
    return run.Run(run.new_id(), intent.release.id, agent, inventory, plan, auto, data=data)


def start_planned(fleet: Fleet, known: Run, on_report: Callable[[str, TaskReport], None]) -> Run:
    """As `start`, of a run whose id is known already."""
    try:
        return begin(fleet, known, on_report)
    except NothingStarted as refused:
        run.forget(known)
        raise refused.error from None


class NothingStarted(Exception):
    """Every host that didn't start its tasks refused to, and the others have stopped theirs."""

    def __init__(self, error: TfdeployError) -> None:
        super().__init__(str(error))
        self.error = error


def begin(fleet: Fleet, planned: Run, on_report: Callable[[str, TaskReport], None]) -> Run:
    """Write the run's record, start its tasks, and wait until every one is READY. The secret by
    which the tasks know each other travels with them, and is kept nowhere else.

    Raises what went wrong, after everything was stopped again; NothingStarted where that leaves
    nothing that a record would be needed for.
    """
    secret = secrets.token_hex(32)
    named = (planned.id, planned.release, secret, planned.data)
    launches = launch.make(planned.inventory, planned.plan, *named)
    begun = replace(planned, launched=launches[0].circle.name)
    run.save(begun)
    try:
        _launch_all(fleet, begun, launches)
        _ready_or_stop(fleet, begun, on_report)
    except KeyboardInterrupt:
        with uninterrupted():
            errors = _stopped(fleet, begun)
        raise_all(errors, f"interrupted; to end what may be left: tfdeploy stop {begun.flags}")
        raise
    return begun


def with_ports(fleet: Fleet, inventory: Inventory, plan: Plan) -> Inventory:
    """The inventory with free ports, found now, for the hosts of `plan` whose ports are "auto"."""
    auto = [host for host in plan.hosts if inventory.host(host).ports == AUTO]

    def ask(agent: Agent) -> tuple[int, ...]:
        # One more than its tasks need: the run itself takes it where the chief is.
        body = {"count": len(plan.on(agent.host)) + 1}
        return tuple(agent.ask("ports", body)["ports"])

    found = fleet.each(auto, ask)
    hosts = (
        host.model_copy(update={"ports": found[host.name]}) if host.name in found else host
        for host in inventory.hosts
    )
    return inventory.model_copy(update={"hosts": tuple(hosts)})


@contextmanager
def uninterrupted(*, heard_after: bool = False) -> Iterator[None]:
    """A second Ctrl-C must not end the cleaning up after the first. Where nobody has pressed one
    yet, what is pressed meanwhile is to be `heard_after`."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread alone
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed and heard_after:
        raise KeyboardInterrupt


def _stopped(fleet: Fleet, begun: Run) -> list[TfdeployError]:
    """Stop everything; what fails in that is told after what failed first."""
    try:
        stop(fleet, begun)
    except TfdeployError as error:
        return [error]
    return []


def _launch_all(fleet: Fleet, begun: Run, launches: Sequence[Launch]) -> None:
    """A start that hosts refused leaves no record; one that a host was lost in might yet live."""
    try:
        _launch(fleet, begun, launches)
    except TfdeployError as error:
        left = _stopped(fleet, begun)
        refused = all(isinstance(part, AgentError | CommandFailed) for part in parts(error))
        if refused and not left:
            raise NothingStarted(error) from None
        raise_all([error, *left])


def _ready_or_stop(fleet: Fleet, begun: Run, on_report: Callable[[str, TaskReport], None]) -> None:
    try:
        _wait_ready(fleet, begun, on_report)
        _check_peers(fleet, begun)
    except TfdeployError as error:
        raise_all([error, *_stopped(fleet, begun)])


def _launch(fleet: Fleet, begun: Run, launches: Sequence[Launch]) -> None:
    """One call a host, with its tasks in the plan's order: ps before workers before chief."""

    def ask(agent: Agent) -> Any:
        mine = {str(p.task) for p in begun.plan.on(agent.host)}
        body = {"launches": [to_json(x) for x in launches if x.task in mine]}
        return _ask_or_yield(agent, begun, body)

    fleet.each(begun.plan.hosts, ask)


def _ask_or_yield(agent: Agent, begun: Run, body: dict[str, Any]) -> Any:
    """Of two runs that start at the same moment and each hold a host that the other needs, the one
    with the smaller id waits, and the other yields: so one of them gets all. Where there is but one
    host, whoever came first has got all."""
    deadline = time.monotonic() + (YIELD_S if len(begun.plan.hosts) > 1 else 0.0)
    while True:
        try:
            return agent.ask("start", body)
        except Leased as leased:
            if begun.id > leased.run or time.monotonic() > deadline:
                raise
        time.sleep(YIELD_LOOK_S)


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
                _raise_unless_over(fleet, begun, report)
                return
            if not waiting:
                return
    _raise_not_ready(fleet, begun, waiting)


def _raise_unless_over(fleet: Fleet, begun: Run, ended: TaskReport) -> None:
    """A short training may be over, and its ps stopped, before all of it was seen READY."""
    seen = status(fleet, begun, TAIL)
    chief = seen.report(str(begun.plan.chief.task))
    if ended.state != STOPPED or not chief or chief.state != SUCCEEDED:
        raise blame(seen, ended.task)


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
    """Each worker's host asks every ps under the address that the cluster spec gives, and every
    host asks the chief's how the run goes: whoever can't would give up after a while."""
    plan, training = begun.plan, begun.inventory.training
    named = {"project": begun.inventory.project, "run": begun.id}

    def ask(agent: Agent) -> Any:
        peers = [
            {
                "task": str(p.task),
                "name": str(roles.named(training, p.task)),
                "address": p.address,
                "port": p.port,
            }
            for p in plan.dialled_from(agent.host)
            if training.ready != PROCESS
        ]
        return agent.ask("peers", {**named, "peers_asked": peers, "timeout_s": PEER_TIMEOUT_S})

    answers = fleet.each(plan.hosts, ask)
    reached = ANY_ANSWER if training.ready == PORT else (READY,)
    unreached = [*_unreached(plan, answers, reached), *_unheard(plan, answers)]
    if unreached:
        seen = status(fleet, begun)  # a short training may be over before all of it was dialled
        chief = seen.report(str(plan.chief.task))
        done = {t.report.task for t in seen.tasks if t.report and t.report.state == SUCCEEDED}
        if not chief or chief.state != SUCCEEDED:
            raise_all([error for error in unreached if error.task not in done])


def _unreached(
    plan: Plan, answers: Mapping[str, Any], reached: Collection[str]
) -> Iterator[TaskNotReady]:
    """One error a peer that isn't reached, with all who don't reach it."""
    silent: dict[str, dict[str, str]] = {}
    for host, answer in answers.items():
        for peer in answer["peers"]:
            if peer["verdict"] not in reached:
                silent.setdefault(peer["task"], {})[host] = peer["detail"]
    for peer in plan.placements:
        if details := silent.get(str(peer.task)):
            hosts = folded(details)
            detail = next(iter(details.values()))
            yield TaskNotReady(
                str(peer.task),
                peer.host,
                f"{hosts} can't reach it at {peer.endpoint}: {detail}",
                f"is a firewall between them? is hosts.{peer.host}.address what {hosts} can dial?",
            )


def _unheard(plan: Plan, answers: Mapping[str, Any]) -> Iterator[TaskNotReady]:
    chief = plan.chief
    details = {host: answer["chief"] for host, answer in answers.items() if answer["chief"]}
    if details:
        detail = next(iter(details.values()))
        yield TaskNotReady(
            str(chief.task),
            chief.host,
            f"{folded(details)} can't ask its supervisor at {chief.address}:{plan.beacon_port}: "
            f"{detail}",
            f"that port of {chief.host} must be open to the other hosts, as those of the tasks are",
        )
