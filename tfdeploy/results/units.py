"""Fetch units of a task: each arrives whole and verified, or not at all.

Its host keeps a consistent copy of it during the transfer and checks it (agent/outputs/hold.py,
agent/outputs/integrity.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.results.arrival import Destination, fetch_held
from tfdeploy.results.fetch import is_safe_path, pull_limit
from tfdeploy.results.run_folder import install
from tfdeploy.shared.protocol.outputs import Hold, Unit
from tfdeploy.shared.units import is_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.results.run_folder import TaskKeys
    from tfdeploy.shared.protocol.outputs import HashedFile, Held, HeldUnit


def is_safe(unit: Unit) -> bool:
    """Return whether its paths, which a host chose, stay in the folder that they are written to."""
    inside = all(f"{path}/".startswith(f"{unit.path}/") for path in unit.files)
    return all(is_safe_path(local_path(path)) for path in unit.files) and (
        inside or not is_folder(unit.kind)
    )


def is_in(unit: Unit, folder: OwnFolder) -> bool:
    """Return whether `folder` has all files with the same sizes and mtimes."""
    return all(_stamp(folder, local_path(path)) == stamp for path, stamp in unit.files.items())


def is_in_or_newer(unit: Unit, folder: OwnFolder) -> bool:
    """Return whether `folder` has all files, none of them older."""
    found = [(_stamp(folder, local_path(path)), stamp) for path, stamp in unit.files.items()]
    return all(own is not None and own[1] >= mtime_ns for own, (_, mtime_ns) in found)


def parse_units(agent: Agent, units: Sequence[Unit]) -> list[Unit]:
    """Return the units that a host listed, each once: one may be in several of the folders that
    were looked through. Raises AgentError if one is invalid."""
    for unit in units:
        if not unit.files:
            raise AgentError(agent.host, f"invalid answer: {unit.path!r:.40} has no files")
    return [*{unit.path: unit for unit in units}.values()]


def local_path(path: str) -> str:
    """Return where a file is stored below a task's folder: an absolute path loses its slash."""
    return path.lstrip("/")


def fetch_units(
    pipeline: Pipeline,
    task: TaskKeys,
    units: Sequence[Unit],
    incoming: OwnFolder,
    place: OwnFolder,
    on_whole: Callable[[Sequence[HashedFile]], None] = lambda files: None,
) -> Steps[tuple[list[Unit], dict[str, str]]]:
    """Fetch units into the folder `place`, by way of `incoming`.

    `on_whole` is called with the files that are about to be moved into `place`. Return the units
    that arrived, and for each other unit, by its path, why it did not. Raises as `fetch_held` does.
    """
    if not units:
        incoming.delete()  # a fetch was killed after all had arrived
        return [], {}
    destination = _Place(pipeline.agent.host, units, incoming, place, on_whole)
    held = yield from fetch_held(pipeline, Hold(**task, units=[*units]), destination)
    bad = {unit.path: unit.error for unit in held.bad} | destination.damaged
    sizes = {file.path: file.size for unit in held.units for file in unit.files}
    return [_as_held(unit, sizes) for unit in units if unit.path not in bad], bad


class _Place(Destination):
    """A folder for units. `damaged` says how those that did not arrive whole differ, by path."""

    note = "reading its outputs"

    def __init__(
        self,
        host: str,
        units: Sequence[Unit],
        incoming: OwnFolder,
        place: OwnFolder,
        on_whole: Callable[[Sequence[HashedFile]], None],
    ) -> None:
        """Make the folder `incoming`, with nothing in it but what can be continued."""
        super().__init__(incoming)
        self.damaged: dict[str, str] = {}
        self._host, self._units = host, {unit.path: unit for unit in units}
        self._place, self._on_whole = place, on_whole
        names = {local_path(path) for unit in units for path in unit.files}
        incoming.clean(names.__contains__)

    def check(self, held: Held) -> None:
        """Raise AgentError unless these are the requested files, with about the sizes that were
        listed: their space was checked."""
        bad = {unit.path for unit in held.bad}
        wanted = [unit for unit in self._units.values() if unit.path not in bad]
        sizes = {file.path: file.size for unit in held.units for file in unit.files}
        names = {local_path(path) for unit in wanted for path in unit.files}
        if {*sizes} != names or {each.path for each in held.units} != {u.path for u in wanted}:
            raise AgentError(self._host, "it offers other files than those requested")
        limit = pull_limit(sum(unit.size for unit in self._units.values()))
        if min(sizes.values(), default=0) < 0 or sum(sizes.values()) > limit:
            raise AgentError(self._host, "it offers files of other sizes than it listed")

    def refuse(self, damaged: Mapping[str, str]) -> None:
        for unit in self._units.values():
            found = [damaged[name] for name in map(local_path, unit.files) if name in damaged]
            if found:
                self.damaged[unit.path] = f"it arrived with {found[0]}"

    def install(self, units: Sequence[HeldUnit], files: Sequence[HashedFile], held: Held) -> None:
        whole = [self._units[unit.path] for unit in units if unit.path not in self.damaged]
        names = {local_path(path) for unit in whole for path in unit.files}
        self._on_whole([file for file in files if file.path in names])
        for unit in whole:
            names = {local_path(path) for path in unit.files}
            for name in names & held.mtimes_ns.keys():
                self.incoming.set_time(name, held.mtimes_ns[name])
            moved = [local_path(unit.path)] if is_folder(unit.kind) else names
            install(self.incoming, self._place, moved)


def _as_held(unit: Unit, sizes: Mapping[str, int]) -> Unit:
    """Return the unit with the sizes that its files had when the host held them."""
    files = unit.files.items()
    held = {path: (sizes[local_path(path)], mtime_ns) for path, (_, mtime_ns) in files}
    return Unit(unit.path, unit.kind, held)


def _stamp(folder: OwnFolder, name: str) -> tuple[int, int] | None:
    """Return the size and the mtime (ns) of a regular file; None for anything else."""
    info = folder.stat(name)
    return (info.st_size, info.st_mtime_ns) if info else None
