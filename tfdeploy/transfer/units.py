"""Fetch files of one task: each unit arrives whole and verified, or not at all.

A unit is a set of files that is of use only as a whole: a single file, a checkpoint, the folder of
a SavedModel. Its host keeps a consistent copy of it during the transfer and checks it
(agent/outputs/hold.py, agent/outputs/integrity.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.hosts import parallel
from tfdeploy.shared import hashing
from tfdeploy.shared.protocol.outputs import (
    HashedFile,
    HeldUnits,
    HoldUnits,
    LetGo,
    OutputUnit,
    UnitToHold,
)
from tfdeploy.shared.units import FOLDER, SAVED_MODEL
from tfdeploy.transfer.fetch import (
    BULK,
    FileFetch,
    announced,
    check_free_space,
    difference,
    is_safe_path,
    pull_limit,
    released_on_failure,
)
from tfdeploy.transfer.streamed_files import StreamedFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipelines.pipeline import Pipeline
    from tfdeploy.hosts.pipelines.rounds import Steps
    from tfdeploy.own_folder import OwnFolder

TIMEOUT_S = 2000.0  # the host copies, reads and hashes the files before it answers


@dataclass(frozen=True)
class Unit:
    """Files of a task that belong together.

    `files` maps each path to its size (bytes) and its mtime (ns). Paths are relative to the task's
    directory, or absolute.
    """

    path: str
    kind: str
    files: dict[str, tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())

    @property
    def mtime_ns(self) -> int:
        """The mtime of the newest file."""
        return max(mtime_ns for _, mtime_ns in self.files.values())

    @property
    def is_safe(self) -> bool:
        """Whether its paths, which a host chose, stay in the folder that they are written to."""
        inside = all(f"{path}/".startswith(f"{self.path}/") for path in self.files)
        is_folder = self.kind in (SAVED_MODEL, FOLDER)
        return all(is_safe_path(local_path(path)) for path in self.files) and (
            inside or not is_folder
        )

    def is_in(self, folder: OwnFolder) -> bool:
        """Return whether `folder` has all files with the same sizes and mtimes."""
        return all(_stamp(folder, local_path(path)) == stamp for path, stamp in self.files.items())

    def is_in_or_newer(self, folder: OwnFolder) -> bool:
        """Return whether `folder` has all files, none of them older."""
        found = [(_stamp(folder, local_path(path)), stamp) for path, stamp in self.files.items()]
        return all(own is not None and own[1] >= mtime_ns for own, (_, mtime_ns) in found)


def parse_units(agent: Agent, answers: Sequence[OutputUnit]) -> list[Unit]:
    """Return the units that a host listed. Raises AgentError if one is invalid."""
    return [_parse_unit(agent.host, answer) for answer in answers]


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
) -> Steps[tuple[list[Unit], dict[str, str]]]:
    """Fetch units into `dest`, by way of the folder `incoming`.

    `request` names the project, the run and the task; `held` is the folder in which the host will
    hold them, if it is known before the host has answered. Return the units that arrived, and for
    each other unit, by its path, why it did not. Raises as `FileFetch` does, and OSError.
    """
    if not units:
        return [], {}
    incoming = incoming.within(announced(sum(unit.size for unit in units)))
    let_go, streamed = LetGo(**request), StreamedFiles(pipeline.agent, incoming)
    with released_on_failure(pipeline.agent, let_go):
        _prepare(pipeline.agent, incoming, units)
        listed = [UnitToHold(unit.path, unit.kind, [*unit.files]) for unit in units]
        hold = pipeline.send(HoldUnits(**request, units=listed), TIMEOUT_S)
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
            streamed.fetch(answer.pin, {file.path: file.size for file in expected.values()})
            streamed.fetch_stale(answer.pin, expected)
            files = (file for unit in units for file in unit.files.items())
            streamed.set_times({local_path(path): mtime_ns for path, (_, mtime_ns) in files})
        if not fetch:
            pipeline.send(let_go)
            pipeline.flush()
    damaged = _find_damaged(streamed, units, expected)
    bad = {unit.path: unit.error for unit in answer.bad} | damaged
    arrived = [unit for unit in units if unit.path not in bad]
    for unit in arrived:
        _install(unit, incoming, dest)
    incoming.delete()
    return [_as_held(unit, expected) for unit in arrived], bad


def _as_held(unit: Unit, hashes: dict[str, HashedFile]) -> Unit:
    """Return the unit with the sizes that its files had when the host held them."""
    files = unit.files.items()
    held = {path: (hashes[local_path(path)].size, mtime_ns) for path, (_, mtime_ns) in files}
    return replace(unit, files=held)


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


def _find_damaged(
    streamed: StreamedFiles, units: Sequence[Unit], expected: dict[str, HashedFile]
) -> dict[str, str]:
    """Return how units differ from what their host reported, by path; delete files that do."""
    files, incoming, hashes = [*expected.values()], streamed.folder, streamed.hashes
    differences = parallel.each(
        lambda file: difference(incoming, file, hashes.get(file.path)),
        files,
        hashing.THREADS,
    )
    wrong = {file.path: text for file, text in zip(files, differences, strict=True) if text}
    for name in wrong:
        incoming.remove(name)
    found = [(unit.path, wrong.get(local_path(path))) for unit in units for path in unit.files]
    return {path: f"it arrived with {text}" for path, text in found if text}


def _install(unit: Unit, incoming: OwnFolder, dest: OwnFolder) -> None:
    """Move a unit into `dest`: a folder in one step; the index of a checkpoint last, because it is
    what makes TensorFlow see the checkpoint."""
    if unit.kind in (SAVED_MODEL, FOLDER):
        names = [local_path(unit.path)]
    else:
        names = sorted(map(local_path, unit.files), key=lambda name: name.endswith(".index"))
    for name in names:
        incoming.move(name, dest)


def _parse_unit(host: str, answer: OutputUnit) -> Unit:
    files = {path: (size, mtime_ns) for path, size, mtime_ns in answer.files}
    if not files:
        raise AgentError(host, f"invalid answer: {answer.path!r:.40} has no files")
    return Unit(answer.path, answer.kind, files)


def _stamp(folder: OwnFolder, name: str) -> tuple[int, int] | None:
    """Return the size and the mtime (ns) of a regular file; None for anything else."""
    info = folder.stat(name)
    return (info.st_size, info.st_mtime_ns) if info else None
