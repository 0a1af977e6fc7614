"""Hand the files of a run's earlier chief over to its new chief, by way of the controller.

For Keras files, BackupAndRestore folders and other files that a script looks for when it starts;
TensorFlow's checkpoints: see checkpoints/handover.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.hosts import parallel
from tfdeploy.hosts.pipelines.rounds import run_alone
from tfdeploy.shared import hashing
from tfdeploy.shared.protocol.outputs import (
    REPLICAS,
    DeliveredUnit,
    DeliverUnits,
    ExpectUnits,
    ListReplicas,
)
from tfdeploy.shared.units import Walk
from tfdeploy.transfer.checkpoints.handover import checkpoint_hosts
from tfdeploy.transfer.outputs import fetch_outputs, list_outputs, outputs_folder, task_request
from tfdeploy.transfer.run_folder import disk_errors, exclusive
from tfdeploy.transfer.units import Unit, fetch_units, local_path, parse_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.own_folder import OwnFolder
    from tfdeploy.run import Run

DELIVER_TIMEOUT_S = 2000.0


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
    incoming = agent.ask(ExpectUnits(**task_request(new, chief))).incoming
    units = parse_units(agent, list_outputs(agent, new, chief).outputs)
    present = {unit.path: unit for unit in units}
    moved = (chief.host, chief.task) != (old.plan.chief.host, old.plan.chief.task)
    if moved or not present:
        _fetch_from_old_chief(fleet, old)
        for host in checkpoint_hosts(fleet, old, new):
            _fetch_replicas(fleet.agents[host], old, folder)
    with disk_errors(agent):
        stored = _units_on_controller(old, new, folder)
        sent = [
            unit
            for unit in stored
            if unit.path not in present or (moved and unit.mtime_ns > present[unit.path].mtime_ns)
        ]
        if sent:
            _send(agent, new, folder, sent, incoming)
    return sorted({*present, *(unit.path for unit in sent)})


def _fetch_from_old_chief(fleet: Fleet, old: Run) -> None:
    """Fetch what the old chief's host has, if the run continues with that host."""
    chief = old.plan.chief
    agent = fleet.agents.get(chief.host)
    if agent:
        with exclusive(old), disk_errors(agent):
            run_alone(agent, lambda pipeline: fetch_outputs(pipeline, old, chief))


def _fetch_replicas(agent: Agent, old: Run, folder: OwnFolder) -> None:
    """Fetch a host's replicas of the old chief's files that are newer than the controller's."""
    request = {"project": old.inventory.project, "run": old.id}
    with exclusive(old), disk_errors(agent):
        units = parse_units(agent, agent.ask(ListReplicas(**request)).outputs)
        newer = [unit for unit in units if unit.is_safe and not unit.is_in_or_newer(folder)]
        incoming = old.open() / f".incoming-outputs/{agent.host}"
        task = {**request, "task": REPLICAS}
        run_alone(agent, lambda pipe: fetch_units(pipe, task, newer, incoming, folder))


def _units_on_controller(old: Run, new: Run, folder: OwnFolder) -> Iterator[Unit]:
    """Yield the chief's units on the controller, under the paths that its script uses."""
    other_tasks = {p.task.file_name for p in (*old.plan.placements, *new.plan.placements)}
    training = new.inventory.training
    wanted = training.outputs_of(new.plan.chief.task.job, is_chief=True)
    paths = (*wanted, training.checkpoint_dir)
    absolute = [path.strip("/") + "/" for path in paths if path.startswith("/")]
    for unit in Walk().units(str(folder.checked()), ""):
        if unit.path.partition("/")[0] in other_tasks:
            continue
        root = "/" if f"{unit.path}/".startswith(tuple(absolute)) else ""
        yield Unit(root + unit.path, unit.kind, {root + p: s for p, s in unit.files.items()})


def _send(agent: Agent, run: Run, folder: OwnFolder, units: Sequence[Unit], incoming: str) -> None:
    files = [local_path(path) for unit in units for path in unit.files]
    digests = parallel.each(folder.sha256, files, hashing.THREADS)
    hashes = dict(zip(files, digests, strict=True))
    total = sum(folder.size(name) for name in files)
    with agent.transfers.begin(f"to {agent.host}", total) as transfer:
        agent.transport.push(folder.checked(), incoming, files, on_progress=transfer)
    listed = [_describe(unit, hashes) for unit in units]
    agent.ask(DeliverUnits(**task_request(run, run.plan.chief), units=listed), DELIVER_TIMEOUT_S)


def _describe(unit: Unit, hashes: dict[str, str]) -> DeliveredUnit:
    files = [(local_path(path), hashes[local_path(path)]) for path in unit.files]
    return DeliveredUnit(unit.path, unit.kind, files)
