"""Check that the hosts of a started run reach the tasks that they depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.commands.following.failure_report import BAD_ENDS, start_failure
from tfdeploy.commands.preflight.port_check import not_reached
from tfdeploy.commands.status import LOG_LINES, status
from tfdeploy.errors import TaskNotReady, raise_all
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.planning import frameworks, roles
from tfdeploy.shared.protocol.preflight import REFUSED, Peer, Peers, PeersAsked
from tfdeploy.shared.records import PORT, READY, SERVER, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Following
    from tfdeploy.planning.plan import Plan
    from tfdeploy.run import Run

TIMEOUT_S = 15.0  # a busy host answers late, and a false alarm would end the start
ONE_USER = (
    'set one user for all hosts of this machine in hosts.toml; or network = "open", which guards '
    "no port"
)


def check_reachability(fleet: Fleet, run: Run, following: Following) -> None:
    """End the following of a run whose tasks are READY by asking each host whom it reaches; raise
    TaskNotReady for each task that a host can't reach although its tasks depend on it.

    The host of each worker connects to the ps (without ps: to workers) at the addresses in the
    cluster spec, unless the tasks have met at the chief's port; every host asks the chief's
    supervisor for the state of the run. A host that can't would give up later.
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
        return Peers(run.inventory.project, run.id, peers, TIMEOUT_S)

    answers, failed = following.finish_with({host: request(host) for host in plan.hosts})
    raise_all(failed)
    # The stream of a host whose tasks have succeeded has ended before.
    unasked = [host for host in plan.hosts if host not in answers]
    answers |= fleet.each(unasked, lambda agent: agent.ask(request(agent.host)))
    errors = [*unreached_tasks(plan, answers), *_unreached_supervisor(plan, answers)]
    if errors:
        _raise_unless_ended_well(fleet, run, errors)


def _raise_unless_ended_well(fleet: Fleet, run: Run, errors: list[TaskNotReady]) -> None:
    """Raise the errors, except those of a short training that is over by now. If a task has failed
    meanwhile, raise why: nobody reaches what has ended."""
    found = status(fleet, run, LOG_LINES)
    if any(task.report and task.report.state in BAD_ENDS for task in found.tasks):
        raise start_failure(found)
    chief = found.report(str(run.plan.chief.task))
    succeeded = {t.report.task for t in found.tasks if t.report and t.report.state == SUCCEEDED}
    if not chief or chief.state != SUCCEEDED:
        raise_all([error for error in errors if error.task not in succeeded])


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
