"""`tfdeploy resume`: a run goes on from its newest checkpoint, on the hosts that are left."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tfdeploy import bundle, launch, replan
from tfdeploy import plan as plans
from tfdeploy.agent import state_file
from tfdeploy.agent.records import BACKOFF, READY, RUNNING, STARTING, SUCCEEDED
from tfdeploy.errors import CommandTimedOut, PlanError, RunError, Unreachable, raise_all
from tfdeploy.fields import AUTO
from tfdeploy.fleet import Fleet
from tfdeploy.hostnames import folded, unfolded
from tfdeploy.steps.collect import refuse_different, refuse_too_much, refuse_tricks
from tfdeploy.steps.plan import data_set, readers, snapshot
from tfdeploy.steps.push import send
from tfdeploy.steps.start import NothingStarted, begin, with_ports
from tfdeploy.steps.status import status
from tfdeploy.steps.stop import stop
from tfdeploy.steps.traces import PIN_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.agent.records import TaskReport
    from tfdeploy.inventory import Inventory
    from tfdeploy.release import Release
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run

GOING = (STARTING, RUNNING, READY, BACKOFF)
READ_TIMEOUT_S = PIN_TIMEOUT_S  # the same work
HOME = ""


@dataclass(frozen=True)
class Copy:
    """A complete checkpoint: on `host` (HOME: here), in `folder`, its newest there. `told` is what
    the host says of each file: {path, size, sha256}."""

    host: str
    folder: str
    name: str
    step: int | None
    files: tuple[str, ...]
    told: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Resumed:
    """The run as it goes on, and the checkpoint that it goes on from (None: from the beginning)."""

    run: Run
    source: Copy | None


def resume(
    known: Run,
    without: Sequence[str] = (),
    on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
) -> Resumed:
    """End what is left of the run, plan it on the hosts but `without`, bring the newest checkpoint
    to its chief, and start it again under the same id.

    Raises RunError for a run that has succeeded or is well, PlanError where the hosts that are left
    can't carry it, and what `stop` and `start` raise.
    """
    without = _named(without)
    inventory = _planned(known, without)
    left = _on(known, [host.name for host in inventory.hosts])
    with (
        _alone(known),
        Fleet(known.inventory, version=known.agent) as old,
        Fleet(inventory) as fleet,
    ):
        _refuse_if_well(old, known, left, without)
        again = _placed(fleet, inventory, known, elsewhere=bool(without))
        _deliver(fleet, again)
        # All that can be refused was refused by now, while the run is as it was.
        stop(old, left)
        source = _newest_handed_over(fleet, known, again)
        try:
            return Resumed(begin(fleet, again, on_report), source)
        except NothingStarted as refused:
            raise refused.error from None


@contextmanager
def _alone(known: Run) -> Iterator[None]:
    """Two resumes of one run would end each other's tasks. The kernel drops the lock with us."""
    with (known.folder / ".resuming").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"another resume of run {known.id} is at work", f"tfdeploy status {known.flags}"
            ) from None
        yield


def _named(without: Sequence[str]) -> list[str]:
    try:
        return [name for text in without for name in unfolded(text)]
    except ValueError as error:
        raise PlanError(f"--without: {error}") from None


def _planned(known: Run, without: Sequence[str]) -> Inventory:
    planned = known.inventory
    for host in without:
        planned = replan.without(planned, host)
    hosts = (
        host.model_copy(update={"ports": AUTO}) if host.name in known.auto_ports else host
        for host in planned.hosts
    )
    return planned.model_copy(update={"hosts": tuple(hosts)})


def _on(known: Run, hosts: Sequence[str]) -> Run:
    """The run as far as it is on these hosts."""
    placements = tuple(p for p in known.plan.placements if p.host in hosts)
    return replace(known, plan=replace(known.plan, placements=placements))


def _refuse_if_well(old: Fleet, known: Run, left: Run, without: Sequence[str]) -> None:
    seen = status(old, left)
    chief = seen.report(str(known.plan.chief.task))
    if chief and chief.state == SUCCEEDED:
        raise RunError(
            f"run {known.id} has succeeded: there is nothing to resume",
            f"tfdeploy collect {known.flags}",
        )
    gone = [e.host for e in seen.errors if isinstance(e, Unreachable | CommandTimedOut)]
    if gone:
        flags = " ".join(f"--without {host}" for host in (*without, *gone))
        raise_all(seen.errors, f"go on elsewhere with tfdeploy resume {known.flags} {flags}")
    going = all(task.report and task.report.state in GOING for task in seen.tasks)
    if going and not without:
        raise RunError(
            f"run {known.id} is going on all of its hosts: there is nothing to resume",
            f"tfdeploy status {known.flags}",
        )


def _placed(fleet: Fleet, inventory: Inventory, known: Run, *, elsewhere: bool) -> Run:
    if elsewhere:
        inventory = replan.on_other_ports(inventory, known.plan)
    inventory = with_ports(fleet, inventory, plans.remake(inventory))
    plan = plans.remake(inventory)
    named = (known.id, known.release, "", known.data)
    launch.make(inventory, plan, *named)  # what it refuses, it refuses now
    return replace(known, agent=bundle.current_version(), inventory=inventory, plan=plan)


def _deliver(fleet: Fleet, again: Run) -> None:
    """The run's releases to the hosts that lack them. A spare host has had them since the first
    push."""
    inventory, plan = again.inventory, again.plan
    _bring(fleet, again.release, plan.hosts, partial(snapshot, inventory))
    for place, release in again.data.items():
        _bring(fleet, release, readers(inventory, plan, place), partial(data_set, inventory, place))


def _bring(fleet: Fleet, wanted: str, hosts: Sequence[str], read: Callable[[], Release]) -> None:
    """One release; it can only come from a source, or a data set, that is still as it was."""
    project = fleet.inventory.project
    named = {"project": project, "release": wanted}
    offers = fleet.each(hosts, lambda agent: agent.ask("offer", named))
    lacking = [host for host, offer in offers.items() if not offer["present"]]
    if not lacking:
        return
    found = read()
    if found.id != wanted:
        raise RunError(
            f"release {wanted} is not on {folded(lacking)}, and {found.root} is another by now "
            f"({found.id})",
            "bring it back to what it was at the start, or run anew",
        )
    send(fleet, project, found, lacking)


def _newest_handed_over(fleet: Fleet, known: Run, again: Run) -> Copy | None:
    """Find the newest copy and bring it to the chief."""
    tasks = list(dict.fromkeys(str(run.plan.chief.task) for run in (again, known)))
    body = {"project": again.inventory.project, "run": again.id, "tasks": tasks}
    body["checkpoint_dir"] = again.inventory.training.checkpoint_dir
    hosts = [host for host in fleet.agents if host in (*known.plan.hosts, *again.plan.hosts)]
    try:
        source = _newest(fleet, hosts, again, body)
        if source:
            _hand_over(fleet, again, source)
    finally:
        fleet.outcomes(hosts, lambda agent: agent.ask("unhold", body))
    return source


def _newest(fleet: Fleet, hosts: Sequence[str], again: Run, body: dict[str, Any]) -> Copy | None:
    """The copy with the highest step; of equal ones that which lies nearest to the new chief."""

    def ask(agent: Agent) -> list[Copy]:
        answer = agent.ask("newest", body, READ_TIMEOUT_S)
        refuse_tricks(agent, {"checkpoints": answer["copies"]})
        return [_copy(agent.host, found) for found in answer["copies"]]

    outcomes = fleet.each(hosts, ask)
    copies = [*(copy for copies in outcomes.values() for copy in copies), *_at_home(again)]
    near = (again.plan.chief.host, HOME)
    copies.sort(key=lambda copy: (copy.step is None, -(copy.step or 0), copy.host not in near))
    return copies[0] if copies else None


def _copy(host: str, found: dict[str, Any]) -> Copy:
    told = tuple(found["files"])
    files = tuple(file["path"] for file in told)
    step = state_file.step(found["name"])
    return Copy(host, str(found["folder"]), found["name"], step, files, told)


def _at_home(again: Run) -> list[Copy]:
    folder = again.folder / "checkpoints"
    for name in state_file.read(str(folder))[:1]:
        files = state_file.file_set([file.name for file in folder.iterdir()], name)
        if files:
            return [Copy(HOME, str(folder), name, state_file.step(name), tuple(files))]
    return []


def _hand_over(fleet: Fleet, again: Run, source: Copy) -> None:
    """To the chief's checkpoint_dir: on its own host by a copy there, else by way of here."""
    chief = again.plan.chief
    agent = fleet.agents[chief.host]
    named = {
        "project": again.inventory.project,
        "run": again.id,
        "task": str(chief.task),
        "checkpoint_dir": again.inventory.training.checkpoint_dir,
    }
    if source.host != chief.host:
        incoming = agent.ask("receive", named)["incoming"]
        with TemporaryDirectory(dir=again.folder) as way:
            folder = Path(source.folder if source.host == HOME else way)
            if source.host != HOME:
                _pull(fleet.agents[source.host], source, folder)
            agent.transport.push(folder, incoming, source.files)
    there = source.folder if source.host == chief.host else ""
    agent.ask("adopt", {**named, "name": source.name, "source": there}, READ_TIMEOUT_S)


def _pull(agent: Agent, source: Copy, folder: Path) -> None:
    refuse_too_much(agent, folder, [file["size"] for file in source.told])
    agent.transport.pull(source.folder, folder, source.files)
    for file in source.told:
        refuse_different(agent, folder / file["path"], file)
