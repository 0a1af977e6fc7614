"""Hand what a run's earlier chief wrote over to its next chief, by way of the controller.

First its newest checkpoint, from whichever host has it; then Keras files, BackupAndRestore folders
and other files that a script looks for when it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tfdeploy.hosts import parallel
from tfdeploy.hosts.pipeline import run_alone
from tfdeploy.planning import launch
from tfdeploy.results.checkpoints import validate_checkpoints
from tfdeploy.results.fetch import HOLD_TIMEOUT_S, announced, check_free_space
from tfdeploy.results.held_files import HeldFiles
from tfdeploy.results.outputs import fetch_outputs, list_outputs
from tfdeploy.results.run_folder import (
    disk_errors,
    exclusive,
    folders_of_others,
    outputs_folder,
    read_state,
    task_request,
)
from tfdeploy.results.units import (
    fetch_units,
    is_in_or_newer,
    is_safe,
    local_path,
    parse_units,
)
from tfdeploy.shared import filesystem, state_file
from tfdeploy.shared.protocol.outputs import (
    CHECKPOINT,
    REPLICAS,
    DeliveredUnit,
    DeliverUnits,
    ExpectUnits,
    FindNewest,
    LetGoOfCopies,
    ListReplicas,
)
from tfdeploy.shared.units import Unit, Walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.outputs import HashedFile, HeldCopy

CONTROLLER = ""
ON_THE_WAY = ".handover"


@dataclass(frozen=True)
class CheckpointCopy:
    """The checkpoint from which a run continues: the newest complete one in its folder."""

    KEYS = ("host", "folder", "name", "step")

    host: str
    """The host that had it; "": it was on the controller."""
    folder: str
    """Its folder on that host."""
    name: str
    """Its name."""
    step: int | None
    """Its step, if its name has one."""
    files: tuple[str, ...]
    """The names of its files."""
    details: tuple[HashedFile, ...] = ()
    """Its files, as their host reported them."""


def hand_over_checkpoint(fleet: Fleet, old: Run, new: Run) -> CheckpointCopy | None:
    """Copy the newest checkpoint of a run into its chief's checkpoint_dir.

    `old` and `new` are the run before and after it is resumed. Return the copy that was used; None
    if there is no checkpoint. Raises the errors of all hosts.
    """
    tasks = list(dict.fromkeys(str(run.plan.chief.task) for run in (new, old)))
    where = (new.inventory.project, new.id, tasks, new.inventory.training.checkpoint_dir)
    hosts = checkpoint_hosts(fleet, old, new)
    try:
        source = _find_newest(fleet, hosts, new, FindNewest(*where))
        if source:
            _copy_to_chief(fleet, new, source)
    finally:
        with fleet.cancellation.delayed():
            fleet.outcomes(hosts, lambda agent: agent.ask(LetGoOfCopies(*where)))
    return source


def checkpoint_hosts(fleet: Fleet, *runs: Run) -> list[str]:
    """Return the hosts of the fleet that have the results of these runs by their records: the
    chief's, and those that keep replicas. No other host can offer what a run continues from."""
    hosts = {run.plan.chief.host for run in runs}
    for run in runs:
        replicas = launch.replica_placements(run.inventory.training, run.plan)
        hosts |= {placement.host for placement in replicas}
    return [host for host in fleet.agents if host in hosts]


def _find_newest(
    fleet: Fleet, hosts: Sequence[str], new: Run, request: FindNewest
) -> CheckpointCopy | None:
    """Return the copy with the highest step; of equal ones, prefer the nearest to the chief."""

    def find(agent: Agent) -> list[CheckpointCopy]:
        with fleet.transfers.begin(agent.host, note="reading its checkpoints"):
            copies = agent.ask(request, HOLD_TIMEOUT_S).copies
        validate_checkpoints(agent, copies)
        return [_parse_copy(agent.host, copy) for copy in copies]

    by_host = fleet.each(hosts, find)
    copies = [*(copy for found in by_host.values() for copy in found), *_copies_on_controller(new)]
    near = (new.plan.chief.host, CONTROLLER)
    copies.sort(key=lambda copy: (copy.step is None, -(copy.step or 0), copy.host not in near))
    return copies[0] if copies else None


def _parse_copy(host: str, copy: HeldCopy) -> CheckpointCopy:
    files = tuple(file.path for file in copy.files)
    step = state_file.step(copy.name)
    return CheckpointCopy(host, copy.folder, copy.name, step, files, tuple(copy.files))


def _copies_on_controller(run: Run) -> list[CheckpointCopy]:
    folder = run.open() / "checkpoints"
    for name in read_state(folder)[:1]:
        files = state_file.file_set([*folder.files()], name)
        if files:
            step = state_file.step(name)
            return [CheckpointCopy(CONTROLLER, str(folder.path), name, step, tuple(files))]
    return []


def has_results(run: Run) -> bool:
    """Return whether the controller has a checkpoint of a run, or other files of its chief."""
    units = _units_on_controller(run, run, outputs_folder(run, run.plan.chief))
    return bool(_copies_on_controller(run)) or next(units, None) is not None


def _copy_to_chief(fleet: Fleet, run: Run, source: CheckpointCopy) -> None:
    """Copy a checkpoint into the chief's checkpoint_dir: on its own host directly, from another
    host by way of the controller."""
    chief, place = run.plan.chief, run.inventory.training.checkpoint_dir
    agent = fleet.agents[chief.host]
    hashes = {file.path: file.sha256 for file in source.details}
    if source.host == chief.host:
        unit = DeliveredUnit(source.name, CHECKPOINT, [*hashes.items()])
        task, held = task_request(run, chief), source.folder
        with fleet.transfers.begin(agent.host, note=f"reading {source.name}"):
            agent.ask(DeliverUnits(**task, units=[unit], folder=place, source=held), HOLD_TIMEOUT_S)
        return
    folder = run.open() / ("checkpoints" if source.host == CONTROLLER else ON_THE_WAY)
    try:
        with disk_errors(agent):
            if source.host != CONTROLLER:
                _fetch(fleet.agents[source.host], source, folder)
            stamps = dict.fromkeys(source.files, (0, 0))
            _deliver(agent, run, folder, [Unit(source.name, CHECKPOINT, stamps)], place, hashes)
    finally:
        (run.open() / ON_THE_WAY).delete()


def _fetch(agent: Agent, source: CheckpointCopy, folder: OwnFolder) -> None:
    folder.clean(lambda name: False)
    sizes = {file.path: file.size for file in source.details}
    check_free_space(agent, folder, sizes)
    files = HeldFiles(agent, folder.within(announced(sum(sizes.values()))))
    files.complete(source.folder, {file.path: file for file in source.details})
    files.verify(source.details)


def hand_over_outputs(fleet: Fleet, old: Run, new: Run) -> list[str]:
    """Bring what the chief of `old` wrote to the chief of `new`, unless it has newer files. A chief
    that stays has the last version of each of its files, whatever their times.

    `old` and `new` are one run before and after it is resumed. Return the paths of all files that
    the new chief's script finds. Raises as `collect` does.
    """
    chief = new.plan.chief
    agent = fleet.agents[chief.host]
    folder = outputs_folder(new, chief)
    # First, because it creates the run's folder: one that was deleted is resumed, too.
    agent.ask(ExpectUnits(**task_request(new, chief)))
    units = parse_units(agent, list_outputs(agent, new, chief).outputs)
    present = {unit.path: unit for unit in units}
    moved = (chief.host, chief.task) != (old.plan.chief.host, old.plan.chief.task)
    if moved or not present:
        _fetch_from_old_chief(fleet, old)
        for host in checkpoint_hosts(fleet, old, new):
            _fetch_replicas(fleet.agents[host], old, folder)
    with disk_errors(agent):
        sent = _missing(_units_on_controller(old, new, folder), present, moved=moved)
        if sent:
            _deliver(agent, new, folder, sent)
    return sorted({*present, *(unit.path for unit in sent)})


def _missing(stored: Iterable[Unit], present: Mapping[str, Unit], *, moved: bool) -> list[Unit]:
    """Return the `stored` units that a chief lacks. For one that has `moved`, what is there may be
    older. On the host of one that has not, a file may have become a folder, or a folder a file."""
    if moved:
        return [
            unit
            for unit in stored
            if unit.path not in present or unit.mtime_ns > present[unit.path].mtime_ns
        ]
    taken = {*present}.union(*map(_folders_above, present))
    return [
        unit
        for unit in stored
        if unit.path not in taken and present.keys().isdisjoint(_folders_above(unit.path))
    ]


def _folders_above(path: str) -> list[str]:
    return [folder.as_posix() for folder in PurePosixPath(path).parents]


def _fetch_from_old_chief(fleet: Fleet, old: Run) -> None:
    """Fetch what the old chief's host has, if the run continues with that host."""
    chief = old.plan.chief
    agent = fleet.agents.get(chief.host)
    if agent:
        with exclusive(old, agent.transfers), disk_errors(agent):
            run_alone(agent, lambda pipeline: fetch_outputs(pipeline, old, chief))


def _fetch_replicas(agent: Agent, old: Run, folder: OwnFolder) -> None:
    """Fetch a host's replicas of the old chief's files that are newer than the controller's."""
    request = {"project": old.inventory.project, "run": old.id}
    with exclusive(old, agent.transfers), disk_errors(agent):
        units = parse_units(agent, agent.ask(ListReplicas(**request)).outputs)
        newer = [unit for unit in units if is_safe(unit) and not is_in_or_newer(unit, folder)]
        incoming = old.open() / f".incoming-outputs-{agent.host}"
        task = {**request, "task": REPLICAS}
        run_alone(agent, lambda pipe: fetch_units(pipe, task, newer, incoming, folder))


def _units_on_controller(old: Run, new: Run, folder: OwnFolder) -> Iterator[Unit]:
    """Yield the chief's units on the controller, under the paths that its script uses."""
    of_old, of_new = (folders_of_others(run, run.plan.chief) for run in (old, new))
    training = new.inventory.training
    wanted = training.outputs_of(new.plan.chief.task.job, is_chief=True)
    paths = (*wanted, training.checkpoint_dir)
    absolute = [path.strip("/") + "/" for path in paths if path.startswith("/")]
    for unit in Walk().units(str(folder.checked()), ""):
        if unit.path.partition("/")[0] in of_old | of_new:
            continue
        root = "/" if f"{unit.path}/".startswith(tuple(absolute)) else ""
        yield Unit(root + unit.path, unit.kind, {root + p: s for p, s in unit.files.items()})


def _deliver(
    agent: Agent,
    run: Run,
    folder: OwnFolder,
    units: Sequence[Unit],
    place: str = "",
    hashes: Mapping[str, str] | None = None,
) -> None:
    """Send units of a folder to the chief, which installs them in `place`, relative to its
    directory. `hashes` are the SHA-256 of the files by name, if they are known."""
    request = task_request(run, run.plan.chief)
    incoming = agent.ask(ExpectUnits(**request)).incoming
    files = [local_path(path) for unit in units for path in unit.files]
    if not hashes:
        digests = parallel.call_each(folder.sha256, files, filesystem.HASH_THREADS)
        hashes = dict(zip(files, digests, strict=True))
    total = sum(folder.size(name) for name in files)
    with agent.transfers.begin(f"to {agent.host}", total) as transfer:
        agent.transport.push(folder.checked(), incoming, files, on_progress=transfer)
    listed = [_describe(unit, hashes) for unit in units]
    with agent.transfers.begin(agent.host, note="reading what arrived"):
        agent.ask(DeliverUnits(**request, units=listed, folder=place), HOLD_TIMEOUT_S)


def _describe(unit: Unit, hashes: Mapping[str, str]) -> DeliveredUnit:
    files = [(local_path(path), hashes[local_path(path)]) for path in unit.files]
    return DeliveredUnit(unit.path, unit.kind, files)
