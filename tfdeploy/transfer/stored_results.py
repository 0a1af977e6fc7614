"""List what hosts store of runs, and whether the controller has it in its newest form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.outputs import state_file
from tfdeploy.agent.protocol.outputs import ListResults, RunResult
from tfdeploy.agent.runs.results import CHECKPOINT
from tfdeploy.cluster import Task
from tfdeploy.transfer.units import TIMEOUT_S, Unit, local_path, parse_units

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdeploy.hosts.agent_client import Agent

FETCHED = "fetched"  # the folder of `tfdeploy fetch` in runs/<run>/


@dataclass(frozen=True)
class StoredResult:
    """A file, folder or checkpoint that a task wrote, on its host; `size` is in bytes.

    `collected`: the controller has it, and its copy is not older.
    """

    run: str
    task: str
    host: str
    path: str
    size: int
    collected: bool


def stored_results(
    agent: Agent, project: str, runs: list[str], base: Path
) -> tuple[StoredResult, ...]:
    """Return what these runs have written on one host.

    `base` is the folder runs/ on the controller. Raises HostError.
    """
    found = agent.ask(ListResults(project, runs), TIMEOUT_S).results
    return tuple(result for run in runs for result in _parse(agent, base / run, found.get(run, [])))


def is_current(folder: Path, unit: Unit) -> bool:
    """Return whether `folder` has all files of the unit, none older than on its host."""
    mtimes = [_mtime_ns(folder / local_path(path)) for path in unit.files]
    stamps = unit.files.values()
    return all(own >= mtime_ns for own, (_, mtime_ns) in zip(mtimes, stamps, strict=True))


def _parse(agent: Agent, run_folder: Path, found: list[RunResult]) -> Iterator[StoredResult]:
    for entry, unit in zip(found, parse_units(agent, found), strict=True):
        collected = _is_collected(run_folder, entry.task, entry.is_chief, unit)
        yield StoredResult(run_folder.name, entry.task, agent.host, unit.path, unit.size, collected)


def _is_collected(run_folder: Path, task: str, is_chief: bool, unit: Unit) -> bool:
    if unit.kind == CHECKPOINT:
        checkpoints = run_folder / "checkpoints"
        return _has_later_step(checkpoints, unit) or is_current(checkpoints, unit)
    name = Task.parse(task).file_name
    outputs = run_folder / "outputs" if is_chief else run_folder / "outputs" / name
    return is_current(outputs, unit) or is_current(run_folder / FETCHED / name, unit)


def _has_later_step(checkpoints: Path, unit: Unit) -> bool:
    """Return whether the controller's newest checkpoint has a later step than the host's.

    The run was then resumed on another host.
    """
    newest = state_file.read(str(checkpoints))[:1]
    own_step = state_file.step(newest[0]) if newest else None
    host_step = state_file.step(unit.path)
    return own_step is not None and host_step is not None and own_step > host_step


def _mtime_ns(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() and not file.is_symlink() else -1
