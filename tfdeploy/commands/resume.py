"""`tfdeploy resume`: continue a run from its newest checkpoint, on the remaining hosts."""

from __future__ import annotations

import shlex
import time
import warnings
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tfdeploy import run as runs
from tfdeploy.commands.changing import changing
from tfdeploy.commands.collect import collect_reachable
from tfdeploy.commands.environments import restore_environments
from tfdeploy.commands.intent import StartWatcher, readers
from tfdeploy.commands.plan import data_release, source_release
from tfdeploy.commands.push import describe_lacking
from tfdeploy.commands.start import launch, secret_values, with_free_ports
from tfdeploy.commands.status import status
from tfdeploy.commands.stop import StopResult, stop, stop_reachable
from tfdeploy.config import AUTO_PORTS, edits
from tfdeploy.errors import (
    Cancelled,
    CommandTimedOut,
    LeaseConflict,
    Note,
    OutdatedRecord,
    PlanError,
    RunDeleted,
    RunError,
    TaskError,
    TfdeployError,
    Unreachable,
    prefix_plan_errors,
    raise_all,
)
from tfdeploy.formatting.hostlist import expand_list
from tfdeploy.formatting.humanize import format_count
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts import agent_bundle
from tfdeploy.hosts.fleet import Fleet, errors_of
from tfdeploy.planning import launch as launches
from tfdeploy.planning import placing, replanning
from tfdeploy.planning.replanning import describe, with_counts
from tfdeploy.results import checkpoint_copies, handover
from tfdeploy.results.run_folder import has_end_of
from tfdeploy.shared import parallel
from tfdeploy.shared.protocol.preflight import RequireUnawaited
from tfdeploy.shared.protocol.releases import FindRelease
from tfdeploy.shared.records import (
    BACKOFF,
    ENDED,
    QUEUED,
    READY,
    RUNNING,
    STARTING,
    SUCCEEDED,
    gpu_need,
)
from tfdeploy.transfer.send import send

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdeploy.commands.intent import Queue, Waiting
    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.release.snapshot import Release
    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport

COUNTS = ("ps", "workers")  # the keys that --with replaces
MAX_KEYS = 6  # that are named
ACTIVE = (QUEUED, STARTING, RUNNING, READY, BACKOFF)


@dataclass(frozen=True)
class ResumeResult:
    """The run that has started again."""

    __repr__ = short_repr
    KEYS = ("run", "left_running", "source", "files", "stop_s", "start_s")
    NAMES: ClassVar = {"source": "checkpoint", "left_running": "notes"}
    MERGED: ClassVar = {"run": runs.Run}

    run: Run
    source: checkpoint_copies.CheckpointCopy | None
    """The checkpoint from which the run continues."""
    files: tuple[str, ...]
    """The other files that the chief's script finds."""
    stopped: StopResult
    stop_s: float
    """The seconds until everything had stopped."""
    start_s: float
    """The seconds until every task was READY."""
    left_running: tuple[TfdeployError, ...] = ()
    """Tasks that may still run on hosts that were left out."""


@dataclass(frozen=True)
class Changes:
    """How a resumed run differs: hosts that are gone, other numbers of ps and workers by their keys
    in hosts.toml, and hosts that may run the additional tasks."""

    without: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    on: Sequence[Host] = ()


def resume_command(run: Run, changes: Changes) -> str:
    """Return the command that resumes a run with these changes."""
    counts, on = describe(changes.counts), [host.name for host in changes.on]
    flags = [f"--without {shlex.quote(host)}" for host in changes.without]
    flags += [f"--with {counts}"] if counts else []
    flags += [f"--on {shlex.quote(host)}" for host in on]
    return " ".join(("tfdeploy resume", run.flags, *flags))


def resume(
    old: Run,
    changes: Changes = Changes(),
    on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
    transfers: Transfers | None = None,
    cancel: threading.Event | None = None,
    queue: Queue | None = None,
    waiting: Waiting = lambda: nullcontext(lambda conflicts: None),
) -> ResumeResult:
    """Stop what is left of the run, plan it with the `changes`, bring the newest checkpoint to its
    chief, and start it again under the same id.

    With `queue` and `waiting`, it waits as `launch` does. If another thread sets `cancel`, raise
    Cancelled: the run is as it was, or stopped on all hosts.
    Raises RunError if the run has succeeded, or is well and nothing changes; PlanError if the hosts
    can't run it, and what `stop` and `start` raise.
    """
    without = _expand_hosts(changes.without)
    inventory = _with_counts(_without_hosts(old, without), changes)
    remaining = _restrict(old, [host.name for host in inventory.hosts])
    # A second resume at the same time would stop what this one starts.
    refusal = RunError(f"another resume of run {old.id} is running", f"tfdeploy status {old.flags}")
    with (
        old.open().locked(".resuming", refusal),
        changing(old, without, cancel) as release,
        Fleet(
            old.inventory, version=old.agent, record=old, transfers=transfers, cancel=cancel
        ) as old_fleet,
        Fleet(inventory, transfers=transfers, cancel=cancel) as fleet,
    ):
        _refuse_if_not_needed(old_fleet, old, remaining, changes)
        new = _prepare(fleet, inventory, old, changes, queues=queue is not None)
        # When the tasks have started, a stop finds them: nobody waits until they are READY.
        watcher = StartWatcher(
            on_report=on_report, waiting=waiting, on_notes=lambda notes: release()
        )
        # Everything that can be refused was refused by now, while the run is as it was.
        return _start_again(old_fleet, old, fleet, new, partial(launch, fleet, new, watcher, queue))


def _prepare(
    fleet: Fleet, inventory: Inventory, old: Run, changes: Changes, *, queues: bool
) -> Run:
    """Return the run as it will be started again, after its hosts got what it needs and everything
    was refused that can be."""
    new = _plan_again(fleet, inventory, old, on_other_hosts=bool(changes.without))
    _send_releases(fleet, new)
    new = replace(new, environments=restore_environments(fleet, new))
    if not queues:
        _refuse_awaited(fleet, new, changes)
    _say_edits(old, changes)
    return new


def _start_again(
    old_fleet: Fleet, old: Run, fleet: Fleet, new: Run, start: Callable[[], Run]
) -> ResumeResult:
    """Stop what is left of the run, bring what it continues from to its chief, and start it."""
    remaining = _restrict(old, [host.name for host in new.inventory.hosts])
    started_at = time.monotonic()
    left_out = _begin_to_stop(old_fleet, _restrict(old, new.left_out))
    with _named(left_out):
        with old_fleet.cancellation.delayed():
            stopped = stop(old_fleet, remaining, silent=True)
        stop_s = time.monotonic() - started_at
        _collect_removed(old_fleet, old, new)
        source = handover.hand_over_checkpoint(fleet, old, new)
        files = tuple(handover.hand_over_outputs(fleet, old, new))
        resumed = start()
    times = (round(stop_s, 3), round(time.monotonic() - started_at - stop_s, 3))
    return ResumeResult(resumed, source, files, stopped, *times, left_out())


def _expand_hosts(without: Sequence[str]) -> list[str]:
    try:
        return [name for text in without for name in expand_list(text)]
    except ValueError as error:
        raise PlanError(f"--without: {error}") from None


def _without_hosts(run: Run, without: Sequence[str]) -> Inventory:
    """Return the run's inventory without some hosts; "auto" ports will be chosen again."""
    inventory = run.inventory
    for host in without:
        inventory = replanning.remove_host(inventory, host)
    hosts = (
        host.copy_with({"ports": AUTO_PORTS}) if host.name in run.auto_ports else host
        for host in inventory.hosts
    )
    return inventory.copy_with({"hosts": tuple(hosts)})


def _with_counts(inventory: Inventory, changes: Changes) -> Inventory:
    """Return the inventory with other numbers of tasks, and no more replicas than other hosts."""
    if not changes.counts:
        return inventory
    present = {host.name for host in inventory.hosts}
    added = tuple(host for host in changes.on if host.name not in present)
    if added:
        placing.refuse_loopback(inventory.hosts)
    larger = inventory.copy_with({"hosts": (*inventory.hosts, *added)})
    with prefix_plan_errors(describe(changes.counts)):
        changed = with_counts(larger, changes.counts, [host.name for host in changes.on])
    return replanning.limit_replicas(changed)


def _restrict(run: Run, hosts: Sequence[str]) -> Run:
    """Return the run with only the tasks on these hosts."""
    placements = tuple(p for p in run.plan.placements if p.host in hosts)
    return replace(run, plan=replace(run.plan, placements=placements))


def _say_edits(run: Run, changes: Changes) -> None:
    """Say which keys of hosts.toml were edited since the start: the run continues with its record.
    Those of hosts that the changes name are no news."""
    named = tuple(f"hosts.{host}." for host in (*changes.without, *(h.name for h in changes.on)))
    file, record = run.inventory.file, run.folder / "hosts.toml"
    unused = {*edits.edited(edits.digests(record), file)}  # what was edited in both is used
    edited = (key for key in edits.edited(run.written, file) if not key.startswith(named))
    keys = [key for key in edited if key in unused]
    if keys:
        more = f" and {format_count(len(keys) - MAX_KEYS, 'more key')}" if keys[MAX_KEYS:] else ""
        has_counts = any(key.rpartition(".")[2] in COUNTS for key in keys)
        counts = ", or for other numbers of tasks add --with workers=8" if has_counts else ""
        warnings.warn(
            f"{file.name} was edited since run {run.id} started, and the run does not use the "
            f"edits: {', '.join(keys[:MAX_KEYS])}{more}; to use them, edit {record}, too{counts}",
            Note,
            2,
        )


def _begin_to_stop(fleet: Fleet, run: Run) -> Callable[[], tuple[TfdeployError, ...]]:
    """Stop the tasks of hosts that are left out, while the run continues: most such hosts do not
    answer. Return a function that waits for them, and returns an error for each task that may
    still run."""

    def stop_them() -> tuple[TfdeployError, ...]:
        states: Mapping[str, str] = {}
        with suppress(OutdatedRecord):  # another controller has continued the run there
            states = stop_reachable(fleet, run, silent=True).states
        hint = f"if it does: tfdeploy stop {run.flags} ends it, and the run"
        message = "it may still be running: its host, which is left out, did not answer"
        return tuple(
            TaskError(str(p.task), p.host, message, hint)
            for p in run.plan.placements
            if states.get(str(p.task)) not in ENDED
        )

    return parallel.begin(stop_them) if run.plan.placements else tuple


@contextmanager
def _named(left_out: Callable[[], tuple[TfdeployError, ...]]) -> Iterator[None]:
    """Add the tasks that may still run on hosts that were left out to an error."""
    try:
        yield
    except Cancelled:
        raise
    except TfdeployError as error:
        raise_all([error, *left_out()])


def _collect_removed(fleet: Fleet, old: Run, new: Run) -> None:
    """Fetch the results of tasks that the run will not have any more where they are, on hosts that
    stay: its record does not name them then. The chief's are handed over, those of trials are not
    fetched of each slot."""
    remaining = {(p.task, p.host) for p in new.plan.placements}
    removed = [
        str(p.task)
        for p in old.plan.placements
        if p != old.plan.chief and p.host not in new.left_out and (p.task, p.host) not in remaining
    ]
    if not removed or old.inventory.trials.points:
        return
    with suppress(RunDeleted):  # then it continues from what was collected
        for error in collect_reachable(fleet, old, tasks=removed).errors:
            warnings.warn(f"results of {', '.join(removed)} were not fetched: {error}", Note, 2)


def _refuse_if_not_needed(old_fleet: Fleet, old: Run, remaining: Run, changes: Changes) -> None:
    """Raise unless the run has ended on a host, or something changes; and if other hosts than those
    that are gone give no answer, or the run was deleted from all and nothing was collected."""
    try:
        found = status(old_fleet, remaining)
    except RunDeleted as deleted:
        if old.inventory.trials.points or not handover.has_results(old):
            raise deleted.with_hint("nothing to continue from; a new run: tfdeploy start") from None
        warnings.warn(f"{deleted.message}; it continues from what was collected", Note, 2)
        return
    chief = found.report(str(old.plan.chief.task))
    if chief and chief.state == SUCCEEDED:
        is_here = has_end_of(old, "")
        raise RunError(
            f"run {old.id} has succeeded: nothing to resume",
            f"its results are in {old.folder}" if is_here else f"tfdeploy collect {old.flags}",
        )
    gone = [e.host for e in found.errors if isinstance(e, Unreachable | CommandTimedOut)]
    if gone:
        without = replace(changes, without=(*changes.without, *gone))
        them = "it" if len(gone) == 1 else "them"
        raise_all(found.errors, f"continue without {them}: {resume_command(old, without)}")
    all_active = all(task.report and task.report.state in ACTIVE for task in found.tasks)
    if all_active and changes == Changes():
        raise RunError(
            f"run {old.id} is active on all of its hosts: nothing to resume",
            f"tfdeploy status {old.flags}",
        )


def _plan_again(fleet: Fleet, inventory: Inventory, old: Run, *, on_other_hosts: bool) -> Run:
    """Return the run as it will be started again."""
    if on_other_hosts:
        inventory = replanning.rotate_ports(inventory, old.plan)
    auto_ports = tuple(host.name for host in inventory.hosts if host.ports == AUTO_PORTS)
    inventory = with_free_ports(fleet, inventory, placing.make_plan_from_addresses(inventory))
    plan = placing.make_plan_from_addresses(inventory)
    launches.make(inventory, plan, old.names, "")  # raises what it refuses
    secret_values(inventory)
    agent = agent_bundle.current_version()
    left_out = {*old.left_out, *(host.name for host in old.inventory.hosts)}
    left_out -= {host.name for host in inventory.hosts}
    return replace(
        old, agent=agent, inventory=inventory, plan=plan, auto_ports=auto_ports,
        left_out=tuple(sorted(left_out)),
    )  # fmt: skip


def _refuse_awaited(fleet: Fleet, new: Run, changes: Changes) -> None:
    """Raise if a run in the queue waits for what the new tasks need: it takes that as soon as the
    old ones have stopped."""
    make = launches.maker(new.inventory, new.plan, new.names, "")

    def ask(agent: Agent) -> None:
        tasks = make(new.plan.placements_on(agent.host))
        numbers = [port for task in tasks for port in task.leased_ports]
        agent.ask(RequireUnawaited(new.id, numbers, gpu_need(tasks)))

    errors = errors_of(fleet.outcomes(new.plan.hosts, ask))
    again = f"{resume_command(new, changes)} --queue"
    hint = f"nothing was stopped; to stop the run and wait behind it: {again}"
    raise_all([e.with_hint(hint) if isinstance(e, LeaseConflict) else e for e in errors])


def _send_releases(fleet: Fleet, new: Run) -> None:
    """Send the run's releases to the hosts that lack them. Spare hosts have them since the first
    push."""
    inventory, plan = new.inventory, new.plan
    _send_release(fleet, new.release, plan.hosts, partial(source_release, inventory))
    for place, release in new.data.items():
        hosts = readers(inventory, plan, place)
        _send_release(fleet, release, hosts, partial(data_release, inventory, place))


def _send_release(
    fleet: Fleet, wanted: str, hosts: Sequence[str], read: Callable[[], Release]
) -> None:
    """Send one release. Raises RunError if a host lacks it, or has changed it, and the source (or
    the data set) has changed since the start."""
    project = fleet.inventory.project
    request = FindRelease(project, wanted)
    offers = fleet.each(hosts, lambda agent: agent.ask(request))
    lacking = {host: offer for host, offer in offers.items() if not offer.present}
    if not lacking:
        return
    current = read()
    if current.id != wanted:
        raise RunError(
            f"{describe_lacking(wanted, lacking)}, and {current.root} has changed since: it is "
            f"release {current.id} now",
            "restore the files as they were at the start, or start a new run",
        )
    send(fleet, project, current, lacking)
