"""The verb `results`: list everything that would be lost if `prune` deleted a run from this host.

Not listed: logs, what tfdeploy itself wrote, and checkpoints older than the newest complete one.
"""

from __future__ import annotations

import os
from typing import Iterator, List, Tuple

from ...shared import state_file
from ...shared.protocol.outputs import (
    CHECKPOINT,
    EVENTS,
    ResultsAnswer,
    SavedPath,
    TaskResults,
    Unit,
)
from ...shared.records import Launch
from ...shared.units import Walk
from .. import paths
from ..machine import stored
from ..outputs import event_files, listing
from ..outputs.saves import MAX_PATHS, Saves
from ..supervision.replication import offered_files
from . import disk


def results(project: str, runs: List[str]) -> Iterator[ResultsAnswer]:
    """List what the tasks of each run have written in the run's folder."""
    for run in runs:
        chief = ""
        for task, task_dir in sorted(disk.task_dirs(project, run).items()):
            launch = stored.launch_if_readable(task_dir)
            if launch is None:
                if os.path.isdir(paths.work(task_dir)):
                    why = "its launch.json can't be read"
                    yield TaskResults(run, task, False, [], [], incomplete=why)
                continue
            chief = launch.heartbeat.chief
            yield _of_task(run, task, task_dir, launch)
        yield from _of_replicas(project, run, chief)


def _of_task(run: str, task: str, task_dir: str, launch: Launch) -> TaskResults:
    walk = Walk()
    units = list(listing.own_units(walk, task_dir, launch, []))
    if launch.is_chief and not os.path.isabs(launch.directory.checkpoint_dir):
        units += _newest_checkpoint(paths.checkpoints(task_dir, launch.directory.checkpoint_dir))
    if listing.has_collected_events(launch):
        work = os.path.join(paths.work(task_dir), "")
        files = event_files.of_task(task_dir, launch.directory.checkpoint_dir)
        units += [_of_events(file, work) for file in files if file.full_path.startswith(work)]
    run_folder = os.path.join(os.path.realpath(os.path.dirname(task_dir)), "")
    saved = Saves(task_dir, launch).left()
    beside = [path for path in saved if path.startswith(run_folder)]
    elsewhere = [path for path in saved if not path.startswith(run_folder)]
    units += [unit for path in beside for unit in listing.units_at(path, path)]
    return TaskResults(
        run,
        task,
        launch.is_chief,
        units,
        listing.special_files(walk, task_dir, launch),
        walk.incomplete,
        elsewhere=[SavedPath(path, exists=True) for path in elsewhere[:MAX_PATHS]],
        slot=bool(launch.trials.points),
    )


def _of_replicas(project: str, run: str, chief: str) -> Iterator[TaskResults]:
    walk = Walk()
    units = list(offered_files.replica_units(walk, project, run))
    units += _newest_checkpoint(paths.replica_dir(project, run))
    if units or walk.incomplete:
        yield TaskResults(run, chief, True, units, [], walk.incomplete, replica=True)


def _newest_checkpoint(folder: str) -> List[Unit]:
    """Return the newest complete checkpoint of a folder, if there is one."""
    saved = state_file.read(folder)
    present = os.listdir(folder) if saved else []
    for name in saved:
        files = state_file.file_set(present, name)
        if files:
            return [Unit(name, CHECKPOINT, {file: _stamp(folder, file) for file in files})]
    return []


def _stamp(folder: str, file: str) -> Tuple[int, int]:
    info = os.stat(os.path.join(folder, file))
    return info.st_size, info.st_mtime_ns


def _of_events(file: event_files.EventFile, work: str) -> Unit:
    return Unit(file.full_path[len(work) :], EVENTS, {file.path: (file.size, file.mtime_ns)})
