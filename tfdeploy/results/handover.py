"""Hand what a run's earlier chief wrote over to its next chief, by way of the controller.

First its newest checkpoint, from whichever host has it; then Keras files, BackupAndRestore folders
and other files that a script looks for when it starts.
"""

from __future__ import annotations

import posixpath
import warnings
from functools import partial
from typing import TYPE_CHECKING

from tfdeploy.errors import Note
from tfdeploy.hosts import parallel
from tfdeploy.hosts.pipeline import run_alone
from tfdeploy.results import hashes
from tfdeploy.results.checkpoint_copies import (
    CONTROLLER,
    NOT_COLLECTED,
    CheckpointCopy,
    checkpoint_hosts,
    choose_newest,
    copies_on_controller,
    holding_copies,
)
from tfdeploy.results.checkpoints import refuse_damaged
from tfdeploy.results.damage import find_damaged
from tfdeploy.results.fetch import HOLD_TIMEOUT_S, announced, check_free_space
from tfdeploy.results.held_files import HeldFiles
from tfdeploy.results.outputs import fetch_outputs, list_outputs
from tfdeploy.results.run_folder import (
    TaskKeys,
    disk_errors,
    exclusive,
    folders_of_others,
    outputs_folder,
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
    HoldCopies,
    ListReplicas,
    Unit,
)
from tfdeploy.shared.units import SET, Walk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run

ON_THE_WAY = ".handover"


def hand_over_checkpoint(fleet: Fleet, old: Run, new: Run) -> CheckpointCopy | None:
    """Copy the newest checkpoint of a run into its chief's checkpoint_dir.

    `old` and `new` are the run before and after it is resumed. Return the copy that was used; None
    if there is no checkpoint. Raises the errors of all hosts.
    """
    tasks = list(dict.fromkeys(str(run.plan.chief.task) for run in (new, old)))
    where = (new.inventory.project, new.id, tasks, new.inventory.training.checkpoint_dir)
    with holding_copies(fleet, checkpoint_hosts(fleet, old, new), HoldCopies(*where)) as copies:
        source = choose_newest(copies, old, new)
        if source:
            _copy_to_chief(fleet, new, source)
    return source


def has_results(run: Run) -> bool:
    """Return whether the controller has a checkpoint of a run, or other files of its chief."""
    units = _units_on_controller(run, run, outputs_folder(run, run.plan.chief))
    return bool(copies_on_controller(run)) or next(units, None) is not None


def _copy_to_chief(fleet: Fleet, run: Run, source: CheckpointCopy) -> None:
    """Copy a checkpoint into the chief's checkpoint_dir: on its own host directly, from another
    host by way of the controller."""
    chief, place = run.plan.chief, run.inventory.training.checkpoint_dir
    agent = fleet.agents[chief.host]
    files = [(file.path, file.sha256) for file in source.details]
    unit = DeliveredUnit(source.name, CHECKPOINT, files)
    if source.host == chief.host:
        _install(agent, run, [unit], place, f"reading {source.name}", source=source.folder)
        return
    folder = run.open() / ("checkpoints" if source.host == CONTROLLER else ON_THE_WAY)
    try:
        with disk_errors(agent, run):
            if source.host != CONTROLLER:
                _fetch(fleet.agents[source.host], source, folder)
            _deliver(agent, run, folder, [unit], place)
    finally:
        (run.open() / ON_THE_WAY).delete()


def _fetch(agent: Agent, source: CheckpointCopy, folder: OwnFolder) -> None:
    folder.clean(lambda name: False)
    sizes = {file.path: file.size for file in source.details}
    check_free_space(agent, folder, sizes)
    files = HeldFiles(agent, folder.within(announced(sum(sizes.values()))))
    files.complete(source.folder, {file.path: file for file in source.details})
    refuse_damaged(agent.host, files.remove_damaged(source.details))


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
    listed = list_outputs(agent, new, chief)
    present = {unit.path: unit for unit in parse_units(agent, listed.outputs)}
    moved = (chief.host, chief.task) != (old.plan.chief.host, old.plan.chief.task)
    if moved or not present:
        listed_there = _fetch_from_old_chief(fleet, old)
        for host in checkpoint_hosts(fleet, old, new):
            _fetch_replicas(fleet.agents[host], old, folder, listed_there)
    with disk_errors(agent, new):
        stored = [*_units_on_controller(old, new, folder)]
        damaged = {} if moved else find_damaged(agent, new, chief, present, stored)
        whole = {path: unit for path, unit in present.items() if path not in damaged}
        sent, digests = _hash(new, folder, _missing(stored, whole, moved=moved))
        states = _newest_sets(damaged, [*whole.values(), *sent])
        sent = [unit for unit in sent if unit.path not in states]
        if sent:
            # Of a checkpoint without one of its files, the others are no unit on the host.
            bad = [present.get(unit.path, unit) for unit in sent if unit.path in damaged]
            replaced = [path for unit in bad for path in unit.files]
            _deliver(agent, new, folder, [_describe(unit, digests) for unit in sent], "", replaced)
        for state, unit in states.items():
            _name_newest(agent, new, listed.folder, posixpath.dirname(state), unit)
    _say_damaged(agent.host, damaged, {unit.path for unit in sent}, states)
    return sorted({*present, *(unit.path for unit in sent)})


def _newest_sets(damaged: Mapping[str, str], units: Sequence[Unit]) -> dict[str, Unit]:
    """Return the newest whole checkpoint of each folder whose state file names another one, by the
    path of that file."""
    found: dict[str, Unit] = {}
    ordered = sorted(units, key=lambda unit: (state_file.step(unit.path) or -1, unit.mtime_ns))
    for unit in ordered:
        state = posixpath.join(posixpath.dirname(unit.path), state_file.STATE)
        if unit.kind == SET and state in damaged:
            found[state] = unit
    return found


def _name_newest(agent: Agent, run: Run, work: str, folder: str, unit: Unit) -> None:
    """Have the state file of a folder of the chief name a checkpoint that is there."""
    files = [(posixpath.basename(path), "") for path in unit.files]
    named = DeliveredUnit(posixpath.basename(unit.path), CHECKPOINT, files)
    source = posixpath.join(work, folder)
    _install(agent, run, [named], folder, f"reading {named.path}", source=source)


def _say_damaged(
    host: str, damaged: Mapping[str, str], sent: Collection[str], states: Mapping[str, Unit]
) -> None:
    """Say which files of the chief were damaged, and what the run continues from instead."""
    for path, why in damaged.items():
        instead = "there is no whole copy of it on the controller"
        if path in states:
            instead = f"now it names {posixpath.basename(states[path].path)}"
        elif path in sent:
            instead = "the collected copy replaces it, and its host keeps it in ../replaced"
        warnings.warn(f"{path} on {host} is damaged: {why}; {instead}", Note, stacklevel=2)


def _missing(stored: Iterable[Unit], present: Mapping[str, Unit], *, moved: bool) -> list[Unit]:
    """Return the `stored` units that a chief lacks. For one that has `moved`, what is there may be
    older. On the host of one that has not, a file may have become a folder, or a folder a file."""
    if moved:
        return [
            unit
            for unit in stored
            if unit.path not in present or unit.mtime_ns > present[unit.path].mtime_ns
        ]
    taken = {*present}.union(*map(filesystem.folders_above, present))
    return [
        unit
        for unit in stored
        if unit.path not in taken and present.keys().isdisjoint(filesystem.folders_above(unit.path))
    ]


def _fetch_from_old_chief(fleet: Fleet, old: Run) -> Collection[str]:
    """Fetch what the old chief's host has and is not damaged, if the run continues with that
    host. Return the paths of all that it has."""
    chief = old.plan.chief
    agent = fleet.agents.get(chief.host)
    present: dict[str, Unit] = {}
    if agent:
        folder = outputs_folder(old, chief)
        with exclusive(old, agent.transfers), disk_errors(agent, old):
            listed = parse_units(agent, list_outputs(agent, old, chief).outputs)
            stored = [*_units_on_controller(old, old, folder)]
            present = {unit.path: unit for unit in listed}
            damaged = find_damaged(agent, old, chief, present, stored)
            run_alone(
                agent,
                lambda pipe: fetch_outputs(pipe, old, chief, lambda _, path: path not in damaged),
            )
        for path, why in damaged.items():
            text = f"{path} on {agent.host} is damaged: {why}; the collected copy is used"
            warnings.warn(text, Note, stacklevel=2)
    return present


def _fetch_replicas(agent: Agent, old: Run, folder: OwnFolder, of_chief: Collection[str]) -> None:
    """Fetch a host's replicas of the old chief's files that are newer than the controller's: if the
    chief's host has answered, only files that it has, too, because others could be invented."""
    task = TaskKeys(project=old.inventory.project, run=old.id, task=REPLICAS)
    with exclusive(old, agent.transfers), disk_errors(agent, old):
        listed = agent.ask(ListReplicas(task["project"], task["run"])).outputs
        units = parse_units(agent, listed)
        known = [unit for unit in units if not of_chief or unit.path in of_chief]
        newer = [unit for unit in known if is_safe(unit) and not is_in_or_newer(unit, folder)]
        incoming = old.open() / f".incoming-outputs-{agent.host}"
        store = partial(hashes.store, old, folder)
        run_alone(
            agent, lambda pipe: fetch_units(pipe, task, newer, incoming, folder, on_whole=store)
        )


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


def _hash(run: Run, folder: OwnFolder, units: Sequence[Unit]) -> tuple[list[Unit], dict[str, str]]:
    """Return the units of a folder that are as they were collected, and the SHA-256 of all files by
    name. Say which units are not. Raises OSError."""
    files = [local_path(path) for unit in units for path in unit.files]
    digests = parallel.call_each(folder.sha256, files, filesystem.HASH_THREADS)
    found, collected = dict(zip(files, digests, strict=True)), hashes.Hashes(run, folder)
    damaged = [
        unit.path
        for unit in units
        if any(collected.differ(n, found[n]) for n in map(local_path, unit.files))
    ]
    for path in damaged:
        text = f"{folder.path / local_path(path)} is damaged: {NOT_COLLECTED}; it is not used"
        warnings.warn(text, Note, stacklevel=2)
    return [unit for unit in units if unit.path not in damaged], found


def _deliver(
    agent: Agent,
    run: Run,
    folder: OwnFolder,
    units: Sequence[DeliveredUnit],
    place: str,
    replaced: Sequence[str] = (),
) -> None:
    """Send units of a folder to the chief, which installs them as `_install` says."""
    incoming = agent.ask(ExpectUnits(**task_request(run, run.plan.chief))).incoming
    files = [name for unit in units for name, _ in unit.files]
    total = sum(folder.size(name) for name in files)
    with agent.transfers.begin(f"to {agent.host}", total) as transfer:
        agent.transport.push(folder.checked(), incoming, files, on_progress=transfer)
    _install(agent, run, units, place, "reading what arrived", replaced=replaced)


def _install(
    agent: Agent,
    run: Run,
    units: Sequence[DeliveredUnit],
    place: str,
    note: str,
    *,
    source: str = "",
    replaced: Sequence[str] = (),
) -> None:
    """Have the chief's host install units in `place`, relative to the chief's directory, from where
    they have arrived, or from its folder `source`. It keeps the files `replaced`, which are
    damaged."""
    task, kept = task_request(run, run.plan.chief), [*replaced]
    request = DeliverUnits(**task, units=[*units], folder=place, source=source, replaced=kept)
    with agent.transfers.begin(agent.host, note=note):
        agent.ask(request, HOLD_TIMEOUT_S)


def _describe(unit: Unit, digests: Mapping[str, str]) -> DeliveredUnit:
    files = [(local_path(path), digests[local_path(path)]) for path in unit.files]
    return DeliveredUnit(unit.path, unit.kind, files)
