"""Fetch what tasks wrote: `outputs` in hosts.toml says which files, and of which tasks.

runs/<run>/outputs/            the chief's
runs/<run>/outputs/<task>/     another task's, if its job has `outputs`
runs/<run>/.incoming-outputs-*/  the remains of an interrupted collect; the next one continues them
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.results import hashes
from tfdeploy.results.fetch import HOLD_TIMEOUT_S
from tfdeploy.results.run_folder import (
    checkpoint_dir,
    checkpoint_outputs,
    exclusive,
    folders_of_others,
    outputs_folder,
    task_request,
)
from tfdeploy.results.units import fetch_units, is_in, is_safe, local_path, parse_units
from tfdeploy.shared import state_file
from tfdeploy.shared.protocol.outputs import ListOutputs, TaskOutputs, Unit
from tfdeploy.shared.units import SET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

MEGA = 1000 * 1000


@dataclass(frozen=True)
class Output:
    """A file or folder on the controller, with the same content as on its host."""

    task: str
    """The task that wrote it."""
    folder: str
    """A folder on the controller."""
    path: str
    """Its path below that folder."""
    size: int
    """Its size in bytes."""


@dataclass(frozen=True)
class SkippedOutput:
    """A file or folder that stays on its host."""

    task: str
    """The task that wrote it."""
    host: str
    """The task's host."""
    path: str
    """Its path, as `tfdeploy fetch` takes it."""
    size: int
    """Its size in bytes."""
    why: str
    """Why it was not fetched."""
    can_fetch: bool = True
    """Whether `tfdeploy fetch` takes it."""


@dataclass(frozen=True)
class UnlistedFiles:
    """The files of a task that no key of hosts.toml selects."""

    task: str
    """The task that wrote them."""
    host: str
    """The task's host."""
    files: int
    """Their number."""
    size: int
    """Their size in bytes."""


@dataclass(frozen=True)
class SavedElsewhere:
    """What a task wrote elsewhere."""

    task: str
    """The task that wrote it."""
    host: str
    """The task's host."""
    path: str
    """Its path on the host."""
    exists: bool
    """Whether it is still on the host."""


@dataclass(frozen=True)
class Outputs:
    """What tasks wrote besides checkpoints, events and logs."""

    KEYS = ("outputs", "skipped", "unlisted", "elsewhere", "elsewhere_more")
    NAMES: ClassVar = {"skipped": "left", "unlisted": "others"}

    fetched: tuple[Output, ...] = ()
    """Files and folders that were fetched now."""
    unchanged: tuple[Output, ...] = ()
    """Those that were on the controller before."""
    skipped: tuple[SkippedOutput, ...] = ()
    """Files and folders that were not fetched."""
    unlisted: tuple[UnlistedFiles, ...] = ()
    """Files that no key of hosts.toml selects."""
    deleted: tuple[str, ...] = ()
    """The tasks, with their hosts, that have deleted their own directory."""
    elsewhere: tuple[SavedElsewhere, ...] = ()
    """What tasks wrote elsewhere, the newest 64 of each."""
    elsewhere_more: int = 0
    """The number of further ones."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What tasks wrote and is on the controller now."""
        return self.fetched + self.unchanged

    def __add__(self, more: Outputs) -> Outputs:
        return Outputs(
            self.fetched + more.fetched,
            self.unchanged + more.unchanged,
            self.skipped + more.skipped,
            self.unlisted + more.unlisted,
            self.deleted + more.deleted,
            self.elsewhere + more.elsewhere,
            self.elsewhere_more + more.elsewhere_more,
        )


def keep_all(task: str, path: str) -> bool:
    """Return True: each path of each task is fetched."""
    return True


def fetch_outputs(
    pipeline: Pipeline,
    run: Run,
    placement: Placement,
    keeps: Callable[[str, str], bool] = keep_all,
) -> Steps[Outputs]:
    """Fetch what one task wrote, without the paths that `keeps` refuses for it. Raises as
    `FileFetch` does, and OSError."""
    agent, task = pipeline.agent, str(placement.task)
    listed = pipeline.send(_listing(run, placement), HOLD_TIMEOUT_S)
    yield
    answer = listed.answer()
    dest = outputs_folder(run, placement)
    units = [unit for unit in parse_units(agent, answer.outputs) if keeps(task, unit.path)]
    selected, skipped = _select(run, placement, units)
    if placement == run.plan.chief:
        link_checkpoints(run, [unit for unit in selected if not is_in(unit, dest)])
    unchanged = [unit for unit in selected if is_in(unit, dest)]
    here = {unit.path for unit in unchanged}
    missing = [unit for unit in selected if unit.path not in here]
    incoming = run.open() / f".incoming-outputs-{placement.task.file_name}"
    request = task_request(run, placement)
    fetched, broken = yield from fetch_units(
        pipeline, request, missing, incoming, dest, partial(hashes.store, run, dest)
    )
    why = {**{path: f"not fetched: {error}" for path, error in broken.items()}, **skipped}
    sizes = {unit.path: unit.size for unit in units}
    return replace(
        _left_on_host(agent.host, task, answer, why, sizes),
        fetched=_as_outputs(task, dest, fetched),
        unchanged=_as_outputs(task, dest, unchanged),
    )


def _left_on_host(
    host: str, task: str, answer: TaskOutputs, why: Mapping[str, str], sizes: Mapping[str, int]
) -> Outputs:
    """Return what was not fetched; `why` says why units were not, by path."""
    no_files = {each.path for each in answer.special if not each.is_link}
    why = {**why, **{each.path: f"it is {each.what}" for each in answer.special}}
    if answer.incomplete:
        why["."] = answer.incomplete
    others = answer.others
    return Outputs(
        skipped=tuple(
            SkippedOutput(task, host, p, sizes.get(p, 0), why[p], p not in no_files) for p in why
        ),
        unlisted=(UnlistedFiles(task, host, others.files, others.size),) if others.files else (),
        deleted=(f"{task} on {host}",) if answer.deleted else (),
        elsewhere=tuple(SavedElsewhere(task, host, s.path, s.exists) for s in answer.elsewhere),
        elsewhere_more=answer.elsewhere_more,
    )


def _as_outputs(task: str, dest: OwnFolder, units: Sequence[Unit]) -> tuple[Output, ...]:
    folder = str(dest.path)
    return tuple(Output(task, folder, local_path(unit.path), unit.size) for unit in units)


def list_outputs(agent: Agent, run: Run, placement: Placement) -> TaskOutputs:
    """Return the host's answer to `outputs`."""
    return agent.ask(_listing(run, placement), HOLD_TIMEOUT_S)


def _listing(run: Run, placement: Placement) -> ListOutputs:
    return ListOutputs(**task_request(run, placement))


def remove_output(run: Run, output: Output, transfers: Transfers) -> None:
    """Delete a fetched file or folder from the controller. Raises OSError."""
    path = Path(output.folder, output.path).relative_to(run.folder)
    with exclusive(run, transfers):
        run.open().remove(path.as_posix())


def link_checkpoints(run: Run, units: Sequence[Unit]) -> None:
    """Store those outputs of the chief once that are in checkpoints/ with the same sizes and times.
    Raises OSError."""
    checkpoints, outputs = run.open() / "checkpoints", checkpoint_outputs(run)
    for unit in units:
        files = {posixpath.basename(path): stamp for path, stamp in unit.files.items()}
        is_checkpoint = unit.kind == SET and (
            (posixpath.dirname(unit.path) or ".") == checkpoint_dir(run)
        )
        if is_checkpoint and is_in(Unit(unit.path, SET, files), checkpoints):
            for name in state_file.index_last(files):
                checkpoints.give(name, outputs)


def _select(run: Run, placement: Placement, units: list[Unit]) -> tuple[list[Unit], dict[str, str]]:
    """Return the newest units that fit into the task's limit, and why each other is skipped."""
    training, job = run.inventory.training, placement.task.job
    is_first = placement == run.plan.chief or bool(run.inventory.trials.points)
    limit_mb = training.outputs_limit_mb_of(job, is_chief=is_first)
    limit = f"outputs_limit_mb = {limit_mb}"
    if limit_mb < training.outputs_limit_mb:
        limit = f"{limit_mb} MB are fetched of a task if [training.{job}] has no outputs"
    free = limit_mb * MEGA
    selected, skipped = [], {}
    others = folders_of_others(run, placement)
    for unit in units:
        if not is_safe(unit):
            skipped[unit.path] = "its name is not allowed on the controller"
        elif unit.path.partition("/")[0] in others:
            skipped[unit.path] = "the outputs of another task have this name on the controller"
        elif unit.size > free:
            skipped[unit.path] = limit
        else:
            selected.append(unit)
            free -= unit.size
    return selected, skipped
