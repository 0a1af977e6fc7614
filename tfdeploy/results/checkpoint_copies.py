"""The copies of a run's checkpoints on its hosts and on the controller: the newest whole one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tfdeploy.errors import Note
from tfdeploy.hosts import parallel
from tfdeploy.planning import launch
from tfdeploy.results.checkpoints import validate_checkpoints
from tfdeploy.results.fetch import HOLD_TIMEOUT_S
from tfdeploy.results.hashes import Hashes
from tfdeploy.results.run_folder import read_state
from tfdeploy.shared import filesystem, state_file
from tfdeploy.shared.protocol.outputs import HashedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.outputs import FindNewest, HeldCopy

CONTROLLER = ""
NOT_COLLECTED = "its content is not what was collected"


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
    differs: bool = False
    """Whether it has another content than was collected under its name, and no TensorFlow has read
    it."""


def checkpoint_hosts(fleet: Fleet, *runs: Run) -> list[str]:
    """Return the hosts of the fleet that have the results of these runs by their records: the
    chief's, and those that keep replicas. No other host can offer what a run continues from."""
    hosts = {run.plan.chief.host for run in runs}
    for run in runs:
        replicas = launch.replica_placements(run.inventory.training, run.plan)
        hosts |= {placement.host for placement in replicas}
    return [host for host in fleet.agents if host in hosts]


def find_newest(
    fleet: Fleet, hosts: Sequence[str], new: Run, request: FindNewest
) -> CheckpointCopy | None:
    """Return the whole copy with the highest step. Of equal ones, prefer one that is as it was
    collected, and the nearest to the chief. Say which others are damaged."""
    folder = new.open() / "checkpoints"
    hashes = Hashes(new, folder)

    def find(agent: Agent) -> list[CheckpointCopy]:
        with fleet.transfers.begin(agent.host, note="reading its checkpoints"):
            answer = agent.ask(request, HOLD_TIMEOUT_S)
        validate_checkpoints(agent, answer.copies)
        for bad in answer.bad:
            _say_damaged(bad.name, agent.host, bad.error)
        return [_parse_copy(agent.host, copy, hashes) for copy in answer.copies]

    on_hosts = [copy for found in fleet.each(hosts, find).values() for copy in found]
    near = (new.plan.chief.host, CONTROLLER)
    # Older ones of the controller only replace damaged ones: a program may count from the beginning
    # again, and its newest checkpoint then has a lower step.
    collected = copies_on_controller(new)
    while copies := [*on_hosts, *collected[:1]]:
        copies.sort(key=lambda c: (c.step is None, -(c.step or 0), c.differs, c.host not in near))
        chosen = copies[0] if copies[0].host != CONTROLLER else _with_hashes(copies[0], folder)
        if chosen.host != CONTROLLER or not _differs(chosen.details, hashes):
            break
        _say_damaged(chosen.name, "the controller", NOT_COLLECTED)
        collected = collected[1:]
    else:
        return None
    for copy in on_hosts:
        if copy.differs and copy.step == chosen.step:
            _say_damaged(copy.name, copy.host, NOT_COLLECTED)
    return chosen


def _with_hashes(copy: CheckpointCopy, folder: OwnFolder) -> CheckpointCopy:
    """Return a copy of the controller with the sizes and hashes of its files. Raises OSError."""
    digests = parallel.call_each(folder.sha256, copy.files, filesystem.HASH_THREADS)
    details = map(HashedFile, copy.files, map(folder.size, copy.files), digests)
    return replace(copy, details=tuple(details))


def _say_damaged(name: str, place: str, why: str) -> None:
    warnings.warn(f"{name} on {place} is damaged: {why}", Note, stacklevel=2)


def _parse_copy(host: str, copy: HeldCopy, hashes: Hashes) -> CheckpointCopy:
    files, step = tuple(file.path for file in copy.files), state_file.step(copy.name)
    # A checkpoint without a step may be written again and again under its name.
    is_known = not copy.verified and step is not None
    differs = is_known and _differs(copy.files, hashes)
    return CheckpointCopy(host, copy.folder, copy.name, step, files, tuple(copy.files), differs)


def _differs(files: Iterable[HashedFile], hashes: Hashes) -> bool:
    return any(hashes.differ(file.path, file.sha256) for file in files)


def copies_on_controller(run: Run) -> list[CheckpointCopy]:
    """Return the complete checkpoints that were collected, the newest first."""
    folder = run.open() / "checkpoints"
    names = [*folder.files()]
    sets = {name: state_file.file_set(names, name) for name in read_state(folder)}
    parse = partial(CheckpointCopy, CONTROLLER, str(folder.path))
    return [parse(n, state_file.step(n), tuple(files)) for n, files in sets.items() if files]
