"""Check that the hosts of a started run reach the tasks that they depend on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.commands.launching.failure_report import BAD_ENDS, start_failure
from tfdeploy.commands.preflight.port_check import not_reached
from tfdeploy.commands.status import LOG_LINES, status
from tfdeploy.errors import TaskNotReady, raise_all
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.planning import frameworks, roles
from tfdeploy.shared.protocol.preflight import REFUSED, Peer, Peers, PeersAsked
from tfdeploy.shared.records import ENDED, NOT_LISTENING, PORT, READY, SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdeploy.commands.status import RunStatus
    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Following
    from tfdeploy.planning.plan import Plan
    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport

CONNECT_TIMEOUT_S = 15.0  # a busy host answers late, and a false alarm would end the start
SETTLE_S, POLL_S = 10.0, 0.1
NOT_HERE = "its own host finds its port {}, too, so no firewall is the reason: see its log"
ONE_USER = (
    'set one user for all hosts of this machine in hosts.toml; or network = "open", which guards '
    "no port"
)


def check_reachability(
    fleet: Fleet, run: Run, following: Following, on_report: Callable[[str, TaskReport], None]
) -> None:
    """End the following of a run whose tasks are READY by asking each host whom it reaches; raise
    TaskNotReady for each task that a host can't reach although its tasks depend on it.

    The host of each worker connects to the ps (without ps: to workers) at the addresses in the
    cluster spec, unless the tasks have met at the chief's port; every host asks the chief's
    supervisor for the state of the run. A host that can't would give up later. Nobody reaches what
    has ended meanwhile: `on_report` gets how, and a failure is raised as itself.
    """
    plan, training = run.plan, run.inventory.training
    ready = {p: frameworks.ready(training, plan, p) for p in plan.placements}
    names = {p: str(roles.script_task(training, p.task)) if ready[p] == SERVER else ""
             for p in ready}  # fmt: skip

    def request(host: str) -> Peers:
        peers = [
            Peer(str(p.task), names[p], p.address, p.port)
            for p in plan.reachability_targets(host)
            if ready[p] in (SERVER, PORT) and p.port is not None
        ]
        return Peers(run.inventory.project, run.id, peers, CONNECT_TIMEOUT_S)

    started_at = time.monotonic()
    answers, failed = following.finish_with({host: request(host) for host in plan.hosts})
    raise_all(failed)
    # The stream of a host whose tasks have succeeded has ended before.
    unasked = [host for host in plan.hosts if host not in answers]
    answers |= fleet.each(unasked, lambda agent: agent.ask(request(agent.host)))
    tasks = [*unreached_tasks(plan, answers)]
    supervisor = [*_unreached_supervisor(plan, answers)]
    if tasks or supervisor:
        for_s = time.monotonic() - started_at
        found = _settled_status(fleet, run)
        _report_ends(found, on_report)
        raise_all(judge(found, tasks, supervisor, for_s))


def _settled_status(fleet: Fleet, run: Run) -> RunStatus:
    """Return the status once no task is called READY that does not listen any more, as it is while
    its supervisor ends what its process has left; or after SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = status(fleet, run, LOG_LINES)
        reports = (task.report for task in found.tasks)
        is_settled = not any(r and (r.state, r.health) == (READY, NOT_LISTENING) for r in reports)
        if is_settled or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def _report_ends(found: RunStatus, on_report: Callable[[str, TaskReport], None]) -> None:
    """Report what is not READY any more; raise why a task has failed."""
    for task in found.tasks:
        if task.report and task.report.state != READY:
            on_report(task.placement.host, task.report)
    if any(task.report and task.report.state in BAD_ENDS for task in found.tasks):
        raise start_failure(found)


def judge(
    found: RunStatus,
    tasks: Sequence[TaskNotReady],
    supervisor: Sequence[TaskNotReady],
    for_s: float,
) -> list[TfdeployError]:
    """Return the errors that still hold: hosts that give no status, and what was not reached for
    `for_s` seconds, of tasks that were READY for that time. None once the chief has ended: then its
    supervisor and the other tasks end, too."""
    chief = found.report(str(found.run.plan.chief.task))
    if chief and chief.state in ENDED:
        return []
    return [*found.errors, *_of_live(found, tasks, for_s), *(supervisor if chief else ())]


def _of_live(
    found: RunStatus, errors: Sequence[TaskNotReady], for_s: float
) -> Iterator[TaskNotReady]:
    """Yield the errors of tasks that have been READY for longer than `for_s` seconds. If their own
    hosts don't reach them either, no firewall is the reason."""
    for error in errors:
        report = found.report(error.task)
        if report and report.state == READY and report.age_s >= for_s:
            is_here = report.health in (READY, "-")
            yield error if is_here else error.with_hint(NOT_HERE.format(escape_line(report.health)))


def unreached_tasks(plan: Plan, answers: Mapping[str, PeersAsked]) -> Iterator[TaskNotReady]:
    """Yield one error for each task that is not reached, with all hosts that can't reach it, and
    one for those that its guard refuses."""
    found: dict[tuple[str, bool], dict[str, str]] = {}
    for host, answer in answers.items():
        for peer in answer.peers:
            if peer.verdict != READY:
                key = peer.task, peer.verdict == REFUSED
                found.setdefault(key, {})[host] = peer.detail
    for placement in plan.placements:
        where = f"it at {placement.endpoint}"
        if details := found.get((str(placement.task), False)):
            yield not_reached(placement, where, details)
        if details := found.get((str(placement.task), True)):
            yield not_reached(placement, where, details).with_hint(ONE_USER)


def _unreached_supervisor(plan: Plan, answers: Mapping[str, PeersAsked]) -> Iterator[TaskNotReady]:
    """Yield an error if hosts can't ask the chief's supervisor."""
    chief = plan.chief
    details = {host: escape_line(a.chief) for host, a in answers.items() if a.chief}
    if details:
        yield TaskNotReady(
            str(chief.task),
            chief.host,
            f"{fold_names(details)} can't reach its supervisor at "
            f"{chief.address}:{plan.heartbeat_port}: {next(iter(details.values()))}",
            f"open this port of {chief.host} to the other hosts, like the ports of the tasks",
        )
