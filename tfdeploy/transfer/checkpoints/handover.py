"""Hand a run's newest checkpoint over to its chief, from whichever host has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.planning import launch
from tfdeploy.shared import state_file
from tfdeploy.shared.protocol.runs import (
    AdoptCheckpoint,
    FindNewest,
    LetGoOfCopies,
    ReceiveCheckpoint,
)
from tfdeploy.transfer.artifacts import PIN_TIMEOUT_S
from tfdeploy.transfer.checkpoints.fetch import validate_checkpoints
from tfdeploy.transfer.checkpoints.state import read_state
from tfdeploy.transfer.fetch import announced, check_free_space, verify_file
from tfdeploy.transfer.outputs import task_request
from tfdeploy.transfer.run_folder import disk_errors
from tfdeploy.transfer.streamed_files import StreamedFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.own_folder import OwnFolder
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.outputs import CheckpointCopy as HeldCopy
    from tfdeploy.shared.protocol.outputs import HashedFile

READ_TIMEOUT_S = PIN_TIMEOUT_S  # the hosts do the same work as for `pin`
CONTROLLER = ""
ON_THE_WAY = ".handover"


@dataclass(frozen=True)
class CheckpointCopy:
    """A complete checkpoint, the newest in `folder` on `host` (CONTROLLER: on the controller).

    `details` are its files, as their host reported them.
    """

    host: str
    folder: str
    name: str
    step: int | None
    files: tuple[str, ...]
    details: tuple[HashedFile, ...] = ()


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
            copies = agent.ask(request, READ_TIMEOUT_S).copies
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


def _copy_to_chief(fleet: Fleet, run: Run, source: CheckpointCopy) -> None:
    """Copy a checkpoint into the chief's checkpoint_dir: on its own host directly, from another
    host by way of the controller."""
    chief = run.plan.chief
    agent = fleet.agents[chief.host]
    checkpoint_dir = run.inventory.training.checkpoint_dir
    request = {**task_request(run, chief), "checkpoint_dir": checkpoint_dir}
    if source.host != chief.host:
        incoming = agent.ask(ReceiveCheckpoint(**request)).incoming
        try:
            with disk_errors(agent):
                _send_from_controller(fleet, run, source, incoming)
        finally:
            (run.open() / ON_THE_WAY).delete()
    local_source = source.folder if source.host == chief.host else ""
    with fleet.transfers.begin(agent.host, note=f"reading {source.name}"):
        adopt = AdoptCheckpoint(**request, name=source.name, source=local_source)
        agent.ask(adopt, READ_TIMEOUT_S)


def _send_from_controller(fleet: Fleet, run: Run, source: CheckpointCopy, incoming: str) -> None:
    """Send a copy that the controller has, or fetches from another host, to the chief's host."""
    agent = fleet.agents[run.plan.chief.host]
    folder = run.open() / ("checkpoints" if source.host == CONTROLLER else ON_THE_WAY)
    if source.host != CONTROLLER:
        _fetch(fleet.agents[source.host], source, folder)
    total = sum(folder.size(name) for name in source.files)
    with fleet.transfers.begin(f"to {agent.host}", total) as transfer:
        agent.transport.push(folder.checked(), incoming, source.files, on_progress=transfer)


def _fetch(agent: Agent, source: CheckpointCopy, folder: OwnFolder) -> None:
    folder.clean(lambda name: False)
    sizes = {file.path: file.size for file in source.details}
    check_free_space(agent, folder, sizes)
    streamed = StreamedFiles(agent, folder.within(announced(sum(sizes.values()))))
    streamed.fetch(source.folder, sizes)
    for file in source.details:
        verify_file(agent, folder, file, streamed.hashes[file.path])
