"""Fetch units of a task: each arrives whole and verified, or not at all.

Its host keeps a consistent copy of it during the transfer and checks it (agent/outputs/hold.py,
agent/outputs/integrity.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.hosts.agent_session import BULK
from tfdeploy.results.fetch import (
    HOLD_TIMEOUT_S,
    FileFetch,
    announced,
    check_free_space,
    is_safe_path,
    pull_limit,
    released_on_failure,
)
from tfdeploy.results.held_files import HeldFiles
from tfdeploy.results.run_folder import install
from tfdeploy.shared.protocol.outputs import (
    HashedFile,
    HeldUnits,
    HoldUnits,
    LetGo,
    OutputUnit,
    UnitToHold,
)
from tfdeploy.shared.units import Unit, is_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipeline import Pipeline, Steps


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


def parse_units(agent: Agent, answers: Sequence[OutputUnit]) -> list[Unit]:
    """Return the units that a host listed, each once: one may be in several of the folders that
    were looked through. Raises AgentError if one is invalid."""
    units = [_parse_unit(agent.host, answer) for answer in answers]
    return [*{unit.path: unit for unit in units}.values()]


def local_path(path: str) -> str:
    """Return where a file is stored below a task's folder: an absolute path loses its slash."""
    return path.lstrip("/")


def fetch_units(
    pipeline: Pipeline,
    request: dict[str, str],
    units: Sequence[Unit],
    incoming: OwnFolder,
    dest: OwnFolder,
    held: str = "",
    on_whole: Callable[[Sequence[HashedFile]], None] = lambda files: None,
) -> Steps[tuple[list[Unit], dict[str, str]]]:
    """Fetch units into `dest`, by way of the folder `incoming`.

    `request` names the project, the run and the task; `held` is the folder in which the host will
    hold them, if it is known before the host has answered; `on_whole` is called with the files that
    are about to be moved into `dest`. Return the units that arrived, and for
    each other unit, by its path, why it did not. Raises as `FileFetch` does, and OSError.
    """
    if not units:
        return [], {}
    incoming = incoming.within(announced(sum(unit.size for unit in units)))
    let_go, files = LetGo(**request), HeldFiles(pipeline.agent, incoming)
    with released_on_failure(pipeline.agent, let_go):
        _prepare(pipeline.agent, incoming, units)
        listed = [UnitToHold(unit.path, unit.kind, [*unit.files]) for unit in units]
        hold = pipeline.send(HoldUnits(**request, units=listed), HOLD_TIMEOUT_S)
        names = [local_path(path) for unit in units for path in unit.files]
        is_small = 2 * sum(unit.size for unit in units) <= BULK  # also if they grow meanwhile
        fetch = FileFetch(pipeline, held, incoming, names) if is_small and held else None
        if fetch:
            pipeline.send(let_go)
        yield
        with pipeline.agent.transfers.begin(pipeline.agent.host, note="reading its outputs"):
            answer = hold.answer()
        expected = _parse_hashes(pipeline.agent, answer, units)
        if is_small:
            (fetch or FileFetch(pipeline, answer.pin, incoming, [*expected])).receive()
        else:
            files.complete(answer.pin, expected)
            listed_files = (file for unit in units for file in unit.files.items())
            files.set_times({local_path(path): mtime_ns for path, (_, mtime_ns) in listed_files})
        if not fetch:
            pipeline.send(let_go)
            pipeline.flush()
    bad = {unit.path: unit.error for unit in answer.bad} | _damage(files, units, expected)
    arrived = [unit for unit in units if unit.path not in bad]
    on_whole([expected[local_path(path)] for unit in arrived for path in unit.files])
    for unit in arrived:
        names = [unit.path] if is_folder(unit.kind) else [*unit.files]
        install(incoming, dest, map(local_path, names))
    incoming.delete()
    return [_as_held(unit, expected) for unit in arrived], bad


def _damage(
    files: HeldFiles, units: Sequence[Unit], expected: dict[str, HashedFile]
) -> dict[str, str]:
    """Return how units differ from what their host reported, by path."""
    damaged = files.remove_damaged(expected.values())
    found = [(unit.path, damaged.get(local_path(path))) for unit in units for path in unit.files]
    return {path: f"it arrived with {text}" for path, text in found if text}


def _as_held(unit: Unit, hashes: dict[str, HashedFile]) -> Unit:
    """Return the unit with the sizes that its files had when the host held them."""
    files = unit.files.items()
    held = {path: (hashes[local_path(path)].size, mtime_ns) for path, (_, mtime_ns) in files}
    return Unit(unit.path, unit.kind, held)


def _prepare(agent: Agent, incoming: OwnFolder, units: Sequence[Unit]) -> None:
    """Make the folder for files on their way, with nothing in it but what they can continue."""
    wanted = {local_path(path) for unit in units for path in unit.files}
    incoming.clean(wanted.__contains__)
    files = [file for unit in units for file in unit.files.items()]
    check_free_space(agent, incoming, {local_path(path): size for path, (size, _) in files})


def _parse_hashes(agent: Agent, answer: HeldUnits, units: Sequence[Unit]) -> dict[str, HashedFile]:
    """Return the size and the hash of each file. Raises AgentError unless they are the requested
    files, with about the sizes that were listed: their space was checked."""
    hashes = {file.path: file for unit in answer.held for file in unit.files}
    bad = {unit.path for unit in answer.bad}
    held = [unit for unit in units if unit.path not in bad]
    if {*hashes} != {local_path(path) for unit in held for path in unit.files}:
        raise AgentError(agent.host, "it offers other files than those requested")
    sizes, limit = [file.size for file in hashes.values()], pull_limit(sum(u.size for u in units))
    if min(sizes, default=0) < 0 or sum(sizes) > limit:
        raise AgentError(agent.host, "it offers files of other sizes than it listed")
    return hashes


def _parse_unit(host: str, answer: OutputUnit) -> Unit:
    files = {path: (size, mtime_ns) for path, size, mtime_ns in answer.files}
    if not files:
        raise AgentError(host, f"invalid answer: {answer.path!r:.40} has no files")
    return Unit(answer.path, answer.kind, files)


def _stamp(folder: OwnFolder, name: str) -> tuple[int, int] | None:
    """Return the size and the mtime (ns) of a regular file; None for anything else."""
    info = folder.stat(name)
    return (info.st_size, info.st_mtime_ns) if info else None
