"""The copies of a run's checkpoints on its hosts and on the controller: the newest whole one."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
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
from tfdeploy.shared.protocol.outputs import EndHold, HashedFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.outputs import Held, HeldUnit, HoldCopies

CONTROLLER = ""
NOT_COLLECTED = "its content is not what was collected"


@dataclass(frozen=True)
class CheckpointCopy:
    """The checkpoint from which a run continues."""

    KEYS = ("host", "folder", "name", "step")

    host: str
    """The host that had it; "": the controller."""
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


@contextmanager
def holding_copies(
    fleet: Fleet, hosts: Sequence[str], request: HoldCopies
) -> Iterator[dict[str, list[Held]]]:
    """Have hosts hold the newest good checkpoint in each of their places; yield what each holds."""
    folders: dict[str, list[str]] = {}

    def hold(agent: Agent) -> list[Held]:
        with fleet.transfers.begin(agent.host, note="reading its checkpoints"):
            copies = agent.ask(request, HOLD_TIMEOUT_S).copies
        folders[agent.host] = [held.folder for held in copies]
        for held in copies:
            validate_checkpoints(agent.host, held.units)
        return copies

    try:
        yield fleet.each(hosts, hold)
    finally:
        with fleet.cancellation.delayed():
            fleet.outcomes([*folders], lambda agent: agent.ask(EndHold(folders[agent.host])))


def choose_newest(held: Mapping[str, Sequence[Held]], old: Run, new: Run) -> CheckpointCopy | None:
    """Return the whole copy with the highest step. Of equal ones, prefer one that is as it was
    collected, and the nearest to the chief. Say which others are damaged, and which are newer than
    all that the chief's host of `old` and the controller know of: that is only a claim."""
    folder = new.open() / "checkpoints"
    hashes = Hashes(new, folder)
    places = [(host, place) for host, copies in held.items() for place in copies]
    on_hosts = [_parse_copy(host, place.folder, copy, hashes)
                for host, place in places for copy in place.units]  # fmt: skip
    bad = [(host, each) for host, place in places for each in place.bad]
    for host, each in bad:
        _say_damaged(each.path, host, each.error)
    chief_host = old.plan.chief.host
    known = {copy.name for copy in on_hosts if copy.host == chief_host}
    known |= {each.path for host, each in bad if host == chief_host}
    if known:  # else the chief's host is lost, or has lost its checkpoints: others have the newest
        on_hosts = [*_confirmed(on_hosts, chief_host, known, hashes)]
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


def _confirmed(
    copies: Sequence[CheckpointCopy], host: str, known: Collection[str], hashes: Hashes
) -> Iterator[CheckpointCopy]:
    """Yield the copies without those of other hosts that are newer than what the chief's host has,
    and that were not collected as they are: such a host could have invented them."""
    newest = max((copy.step or 0 for copy in copies if copy.host == host), default=0)
    for copy in copies:
        is_collected = all(hashes.has(file.path, file.sha256) for file in copy.details)
        if copy.host == host or copy.name in known or is_collected:
            yield copy
        elif (copy.step or 0) > newest:
            text = f"{copy.name} on {copy.host} is not used: {host}, where the chief ran, has none"
            warnings.warn(f"{text} of that name; --without {host} uses it", Note, stacklevel=2)


def _with_hashes(copy: CheckpointCopy, folder: OwnFolder) -> CheckpointCopy:
    """Return a copy of the controller with the sizes and hashes of its files. Raises OSError."""
    digests = parallel.call_each(folder.sha256, copy.files, filesystem.HASH_THREADS)
    details = map(HashedFile, copy.files, map(folder.size, copy.files), digests)
    return replace(copy, details=tuple(details))


def _say_damaged(name: str, place: str, why: str) -> None:
    warnings.warn(f"{name} on {place} is damaged: {why}", Note, stacklevel=2)


def _parse_copy(host: str, folder: str, copy: HeldUnit, hashes: Hashes) -> CheckpointCopy:
    files, step = tuple(file.path for file in copy.files), state_file.step(copy.path)
    # A checkpoint without a step may be written again and again under its name.
    is_known = not copy.verified and step is not None
    differs = is_known and _differs(copy.files, hashes)
    return CheckpointCopy(host, folder, copy.path, step, files, tuple(copy.files), differs)


def _differs(files: Iterable[HashedFile], hashes: Hashes) -> bool:
    return any(hashes.differ(file.path, file.sha256) for file in files)


def copies_on_controller(run: Run) -> list[CheckpointCopy]:
    """Return the complete checkpoints that were collected, the newest first."""
    folder = run.open() / "checkpoints"
    names = [*folder.files()]
    sets = {name: state_file.file_set(names, name) for name in read_state(folder)}
    parse = partial(CheckpointCopy, CONTROLLER, str(folder.path))
    return [parse(n, state_file.step(n), tuple(files)) for n, files in sets.items() if files]
