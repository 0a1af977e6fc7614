"""`tfdeploy start`: start every task of a plan and wait until all are READY; else stop all."""

from __future__ import annotations

import os
import secrets
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tfdeploy import run as runs
from tfdeploy.commands.collect import collect_events_and_logs
from tfdeploy.commands.environments import require_environments
from tfdeploy.commands.free_hosts import plan_on_free
from tfdeploy.commands.intent import UNWATCHED, StartWatcher
from tfdeploy.commands.launching.hosts import Launching
from tfdeploy.commands.launching.reachability import check_reachability
from tfdeploy.commands.launching.readiness import wait_until_ready
from tfdeploy.commands.preflight.plan_warnings import plan_warnings, unlisted_gpus
from tfdeploy.commands.push import push, refuse_missing_release
from tfdeploy.commands.signals import delay_signals
from tfdeploy.commands.stop import stop
from tfdeploy.config import AUTO_PORTS, edits
from tfdeploy.errors import (
    AgentError,
    Cancelled,
    CommandFailed,
    HostError,
    LeaseConflict,
    PlanError,
    TfdeployError,
    individual_errors,
    raise_all,
)
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts import agent_bundle
from tfdeploy.planning import launch as launches
from tfdeploy.planning import placing
from tfdeploy.planning.versions import differences
from tfdeploy.release import git
from tfdeploy.shared.protocol.preflight import Ports
from tfdeploy.shared.protocol.runs import ForgetRecord
from tfdeploy.shared.records import QueuePlace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tfdeploy.commands.intent import Intent, Queue
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Plan
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import Started
    from tfdeploy.shared.records import Launch


@dataclass(frozen=True)
class StartResult:
    """The run that has started, or that waits in the queue."""

    __repr__ = short_repr
    NAMES: ClassVar = {"warnings": "notes"}
    MERGED: ClassVar = {"run": runs.Run}

    run: Run
    warnings: tuple[TfdeployError, ...]
    """What may matter and prevents nothing."""


def start_run(fleet: Fleet, intent: Intent, watcher: StartWatcher) -> StartResult:
    """Check what can be refused without a host's help, push if that is wanted, start the tasks, and
    wait until every one is READY.

    With a queue, its hosts start the run when it is its turn. With `workers` in [training] the
    release is always pushed; if another start was faster, look once more which hosts are free.
    Raises what went wrong on any host or task (HostError, TaskFailed, TaskNotReady), after
    everything was stopped again.
    """
    if not intent.all_hosts:
        return _start(fleet, intent, watcher, push_first=intent.options.push)
    try:
        return _start(fleet, intent, watcher, push_first=True)
    except TfdeployError as error:
        is_conflict = any(isinstance(each, LeaseConflict) for each in individual_errors(error))
        if not (is_conflict and _are_refusals(error)):  # else it may still have tasks
            raise
    again = plan_on_free(fleet, intent.all_hosts, intent.options)
    return _start(fleet, again, watcher, push_first=True)


def _start(fleet: Fleet, intent: Intent, watcher: StartWatcher, *, push_first: bool) -> StartResult:
    secret_values(intent.inventory)
    warnings = tuple(plan_warnings(intent))
    watcher.on_notes(warnings)
    if push_first:
        push(fleet, intent, watcher)
    with watcher.starting():
        if intent.environment_ids:
            require_environments(fleet, intent.plan, intent.environment_ids)
        run = launch(fleet, plan_run(fleet, intent), watcher, intent.options.queue)
    return StartResult(run, warnings)


def plan_run(fleet: Fleet, intent: Intent) -> Run:
    """Return the run for an intent, with ports that are free now. Nothing is started."""
    if intent.options.release:
        refuse_missing_release(fleet, intent)
    inventory, plan = intent.inventory, intent.plan
    auto = tuple(host.name for host in inventory.hosts if host.ports == AUTO_PORTS)
    if auto:
        inventory = with_free_ports(fleet, inventory, plan)
        plan = placing.make_plan_from_addresses(inventory)
    return runs.Run(
        runs.new_id(inventory.file.parent / runs.FOLDER),
        intent.release.id,
        agent_bundle.current_version(),
        inventory,
        plan,
        auto,
        data=intent.data_ids,
        environments=intent.environment_ids,
        name=intent.options.name,
        words=intent.options.words,
        written=edits.digests(inventory.file),
        source=git.describe(intent.release.root, intent.release.manifest),
    )


def launch(
    fleet: Fleet,
    run: Run,
    watcher: StartWatcher = UNWATCHED,
    queue: Queue | None = None,
) -> Run:
    """Write a planned run's record, start its tasks, and wait until every one is READY. With
    `queue`, its hosts start them when it is its turn.

    The secrets with which the tasks sign their messages are sent with them and stored nowhere
    else. Raises what went wrong, after everything was stopped again. If no task of a new run can be
    running, because hosts have refused it, no record is left.
    """
    secret, values = secrets.token_hex(32), secret_values(run.inventory)
    is_new = not run.starts
    # A clock that was set back must not make a run new that is resumed.
    age_s = 0.0 if is_new else max(1.0, runs.age_s(run.id))
    turn = launches.NO_TURN
    if queue:
        run, submitted = _submit(fleet, run)
        turn = QueuePlace(submitted, queue.priority)
    make = launches.maker(run.inventory, run.plan, run.names, secret, values, age_s, turn)

    def launches_on(host: str) -> tuple[Launch, ...]:
        return make(run.plan.placements_on(host))

    launch_name = launches_on(run.plan.chief.host)[0].heartbeat.launch_name
    # Seconds, because a record that is older than another controller's may be started again when no
    # host has the newer one any more.
    starts = max(run.starts + 1, int(runs.age_s(run.id)))
    run = replace(run, launched=launch_name, starts=starts)
    runs.save(run)
    try:
        with (
            closing(Launching(fleet, run, launches_on)) as launching,
            _stopped_at_failure(fleet, run, launching, is_new=is_new),
        ):
            answers = launching.start_hosts()
            sick = [
                HostError(h, f"not used: {each}") for h, a in answers.items() for each in a.sick
            ]
            others = _other_folders(run, answers)
            watcher.on_notes([*sick, *_unlisted_gpus(run, answers), *others])
            _refuse_other_versions(run, answers)
            turn_s = queue.wait_s if queue else None
            if turn_s is None and queue:
                return run  # its hosts start the tasks
            with fleet.follow(
                run, run.plan.placements, announced=False, opened=launching.streams
            ) as following:
                if wait_until_ready(fleet, run, following, watcher, turn_s):
                    check_reachability(fleet, run, following, watcher.on_report)
    except (KeyboardInterrupt, Cancelled):
        with delay_signals():
            errors = _try_to_stop(fleet, run)
        raise_all(errors, f"interrupted; to stop tasks that may be left: tfdeploy stop {run.flags}")
        raise
    return run


def _submit(fleet: Fleet, run: Run) -> tuple[Run, int]:
    """Return the run as it can wait, and the time by the clock of its chief's host, so that the
    order does not depend on the clocks of controllers.

    While runs wait, each has a heartbeat port: of fixed ports, one that is free now.
    """
    chief = run.plan.chief
    host = run.inventory.host(chief.host)
    used = [p.port for p in run.plan.placements if p.address == chief.address]
    rest = [] if host.name in run.auto_ports else [p for p in host.ports if p not in used]
    try:
        answer = fleet.agents[chief.host].ask(Ports(1, rest))
    except AgentError as error:
        more = f"a run that waits needs a port for its heartbeat: give hosts.{host.name}.ports more"
        raise error.with_hint(f'{more} ports, or set ports = "auto"') from None
    if rest:
        own = [port for port in host.ports if port in used]
        ports = dict.fromkeys((*own, *answer.ports, *rest))
        changed = host.copy_with({"ports": tuple(ports)})
        hosts = (changed if each.name == host.name else each for each in run.inventory.hosts)
        inventory = run.inventory.copy_with({"hosts": tuple(hosts)})
        plan = placing.make_plan_from_addresses(inventory)
        run = replace(run, inventory=inventory, plan=plan)
    return run, int(answer.time)


def secret_values(inventory: Inventory) -> dict[str, str]:
    """Return the values of training.secrets from this command's environment. Raises PlanError."""
    names = inventory.training.secrets
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise PlanError(
            f"training.secrets: {', '.join(missing)} not set in this command's environment",
            f"read -rs {missing[0]} && export {missing[0]} sets it, and leaves no trace in the "
            "shell's history",
        )
    return {name: os.environ[name] for name in names}


def with_free_ports(fleet: Fleet, inventory: Inventory, plan: Plan) -> Inventory:
    """Return the inventory with ports that are free now for the plan's hosts with "auto" ports."""
    auto = [host for host in plan.hosts if inventory.host(host).ports == AUTO_PORTS]

    def ask(agent: Agent) -> tuple[int, ...]:
        # One more than its tasks need: the supervisor on the chief's host takes it.
        return tuple(agent.ask(Ports(len(plan.placements_on(agent.host)) + 1)).ports)

    free = fleet.each(auto, ask)
    hosts = (
        host.copy_with({"ports": free[host.name]}) if host.name in free else host
        for host in inventory.hosts
    )
    return inventory.copy_with({"hosts": tuple(hosts)})


@contextmanager
def _stopped_at_failure(
    fleet: Fleet, run: Run, launching: Launching, *, is_new: bool
) -> Iterator[None]:
    """Stop all tasks if something fails. If hosts have refused to start those of a new run, and the
    others have stopped, nothing runs, and no record is left; a host that was lost might still run
    its tasks."""
    try:
        yield
    except Cancelled:
        raise
    except TfdeployError as error:
        launching.close()
        hint, stop_errors = "", _try_to_stop(fleet, run)
        if launching.has_started:
            hint = _collect_logs(fleet, run)
        elif not stop_errors and is_new and _are_refusals(error):
            runs.delete_record(run)
            forget = ForgetRecord(run.inventory.project, run.id, run.launched)
            fleet.outcomes(run.plan.hosts, lambda agent: agent.ask(forget))
        raise_all([error, *stop_errors], hint)


def _are_refusals(error: TfdeployError) -> bool:
    return all(isinstance(each, AgentError | CommandFailed) for each in individual_errors(error))


def _unlisted_gpus(run: Run, answers: Mapping[str, Started]) -> Iterator[TfdeployError]:
    """Yield a note for each host with GPUs that hosts.toml does not list."""
    for name, answer in answers.items():
        host = run.inventory.host(name)
        if answer.gpus > 0 and host.workers and not host.gpus:
            yield unlisted_gpus(name, answer.gpus)


def _refuse_other_versions(run: Run, answers: Mapping[str, Started]) -> None:
    """Raise if the tasks can't train together, by what is installed for them. What they import is
    compared before all are READY, but a task may be READY before it imports anything."""
    training = run.inventory.training
    needed = {host: _of_modules(each.versions, training.imports) for host, each in answers.items()}
    raise_all(differences(needed, training)[0])


def _of_modules(versions: Mapping[str, str], modules: Collection[str]) -> dict[str, str]:
    return {module: version for module, version in versions.items() if module in modules}


def _other_folders(run: Run, answers: Mapping[str, Started]) -> Iterator[TfdeployError]:
    """Yield a note for each other folder that starts runs of a project with the same name."""
    for folder in sorted({answer.other_folder for answer in answers.values()} - {""}):
        name = run.inventory.project
        yield TfdeployError(
            f'{folder} starts runs of a project "{name}" on the same hosts, too: `tfdeploy runs` '
            "and `tfdeploy prune` take both for one project",
            "if they are two, change `project` in one hosts.toml",
        )


def _try_to_stop(fleet: Fleet, run: Run) -> list[TfdeployError]:
    """Stop everything that this start has started; return what failed, to be reported after the
    first failure."""
    try:
        with fleet.cancellation.delayed():
            stop(fleet, run, silent=True, launched=run.launched)
    except TfdeployError as error:
        return [error]
    return []


def _collect_logs(fleet: Fleet, run: Run) -> str:
    """Fetch the logs of a start that failed; return a hint that says where they are.

    A host that does not answer is among the errors already.
    """
    with suppress(TfdeployError):
        collect_events_and_logs(fleet, run)
    folder = run.folder / "logs"
    if folder.is_dir():
        return f"the logs are in {folder}"
    return f"the logs: tfdeploy logs {run.flags}"
