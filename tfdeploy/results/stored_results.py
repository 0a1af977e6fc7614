"""List what hosts store of runs, and whether the controller has it.

Nothing may be deleted that is not proven to be here: a file counts as collected only if the
controller's copy has its size and its time, which a collect gives to a copy with the same content.
A replica also counts if the controller's copy is newer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy.config.cluster import Task
from tfdeploy.results.fetch import HOLD_TIMEOUT_S
from tfdeploy.results.run_folder import read_state
from tfdeploy.results.units import is_in, is_in_or_newer, local_path, parse_units
from tfdeploy.shared import state_file
from tfdeploy.shared.protocol.outputs import CHECKPOINT, EVENTS, ListResults, TaskResults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.shared.protocol.outputs import Unit

FETCHED = "fetched"  # the folder of `tfdeploy fetch` in runs/<run>/


@dataclass(frozen=True)
class StoredResult:
    """A file, folder or checkpoint that a task wrote, on its host; `size` is in bytes.

    `collected`: the controller has it. `note` says what it is if it is no file that can be
    fetched, or why nobody knows which other files there are: `path` is "." then. `outside`: it is
    outside of the run's folder, where nothing is deleted; it counts as collected if `fetch` has
    fetched it.
    """

    run: str
    task: str
    host: str
    path: str
    size: int
    collected: bool
    note: str = ""
    outside: bool = False


def stored_results(
    agent: Agent, project: str, runs: list[str], base: OwnFolder
) -> tuple[StoredResult, ...]:
    """Return what these runs have written on one host.

    `base` is the folder runs/ on the controller. Raises HostError.
    """
    if not runs:
        return ()
    answers = agent.stream(ListResults(project, runs), HOLD_TIMEOUT_S)
    return tuple(
        result
        for answer in answers
        if isinstance(answer, TaskResults) and answer.run in runs
        for result in _parse(agent, base / answer.run, answer)
    )


def _parse(agent: Agent, run_folder: OwnFolder, answer: TaskResults) -> Iterator[StoredResult]:
    def result(path: str, size: int, collected: bool, note: str = "") -> StoredResult:
        run, task, host = answer.run, answer.task, agent.host
        return StoredResult(run, task, host, path, size, collected, note)

    for unit in parse_units(agent, answer.results):
        folders = _folders_on_controller(run_folder, answer, unit)
        # A replica may be a copy of an older version of the chief's file.
        is_here = is_in_or_newer if answer.replica else is_in
        collected = any(is_here(unit, folder) for folder in folders)
        yield result(unit.path, unit.size, collected or _is_superseded(run_folder, unit))
    for special in answer.special:
        yield result(special.path, 0, False, special.what)
    if answer.incomplete:
        yield result(".", 0, False, answer.incomplete)
    for saved in answer.elsewhere:
        is_fetched = _is_fetched(run_folder, answer.task, saved.path)
        yield replace(result(saved.path, 0, is_fetched), outside=True)


def _is_fetched(run_folder: OwnFolder, task: str, path: str) -> bool:
    """Return whether `fetch` has stored a file or folder of this absolute path."""
    return (run_folder / f"{FETCHED}/{Task.parse(task).file_name}").has(local_path(path))


def _folders_on_controller(
    run_folder: OwnFolder, answer: TaskResults, unit: Unit
) -> list[OwnFolder]:
    """Return where a collect, or a fetch, stores a unit."""
    task = Task.parse(answer.task).file_name
    own = "" if answer.is_chief or answer.slot else task
    if unit.kind == CHECKPOINT:
        return [run_folder / "checkpoints"]
    collected = "events" if unit.kind == EVENTS else "outputs"
    return [run_folder / f"{collected}/{own}", run_folder / f"{FETCHED}/{task}"]


def _is_superseded(run_folder: OwnFolder, unit: Unit) -> bool:
    """Return whether the controller's newest checkpoint has a later step than this one, and is not
    older: the run was then resumed on another host. A program may also count from the beginning
    again.
    """
    folder = run_folder / "checkpoints"
    if unit.kind != CHECKPOINT:
        return False
    names = [*folder.files()]
    newest = [name for name in read_state(folder) if state_file.file_set(names, name)][:1]
    own_step = state_file.step(newest[0]) if newest else None
    host_step = state_file.step(unit.path)
    if own_step is None or host_step is None or own_step <= host_step:
        return False
    index = folder.stat(f"{newest[0]}.index")
    return index is not None and index.st_mtime_ns >= unit.mtime_ns
