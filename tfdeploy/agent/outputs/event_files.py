"""A task's TensorBoard event files: in its checkpoint directory and elsewhere in its directory."""

from __future__ import annotations

import os
from itertools import islice
from typing import Dict, List

from ...shared.event_records import EVENTS
from ...shared.filesystem import walk
from ...shared.protocol.outputs import EventFiles
from ...shared.units import MAX_ENTRIES
from .. import paths
from ..machine import stored
from ..refusal import Refusal
from ..releases import release_files


class EventFile:
    """`path` is relative to `folder`; `changed` is its mtime in seconds, by this host's clock."""

    def __init__(self, folder: str, path: str, stat: os.stat_result) -> None:
        self.folder, self.path = folder, path
        self.changed, self.size, self.mtime_ns = stat.st_mtime, stat.st_size, stat.st_mtime_ns

    @property
    def full_path(self) -> str:
        return os.path.join(self.folder, self.path)


def events(project: str, run: str, task: str) -> EventFiles:
    """List a task's event files, sorted by the folder that has them; none for a task that was never
    started on this host. If all tasks share one checkpoint directory, its files are the chief's."""
    if task not in paths.tasks(project, run):
        return EventFiles({})
    task_dir = paths.task(project, run, task)
    try:
        launch = stored.launch(task_dir)
    except Refusal:  # the verb `outputs` lists all files then
        return EventFiles({})
    is_shared = os.path.isabs(launch.directory.checkpoint_dir) and not launch.is_chief
    folders: Dict[str, List[str]] = {}
    for file in of_task(task_dir, "." if is_shared else launch.directory.checkpoint_dir):
        folders.setdefault(file.folder, []).append(file.path)
    return EventFiles({folder: sorted(names) for folder, names in folders.items()})


def of_task(task_dir: str, checkpoint_dir: str) -> List[EventFile]:
    """Return all event files of a task. Never raises."""
    work, saves = paths.work(task_dir), paths.checkpoints(task_dir, checkpoint_dir)
    if os.path.normpath(saves) == os.path.normpath(work):
        return _without_release_files(task_dir, in_folder(work))
    own = [] if _belongs_to_another_task(task_dir, saves) else in_folder(saves)
    return [*own, *_without_release_files(task_dir, in_folder(work, excluded=saves))]


def _without_release_files(task_dir: str, files: List[EventFile]) -> List[EventFile]:
    """Return the files that are not as in the release."""
    of_release = release_files.of_task(task_dir) if files else None
    return [file for file in files if not (of_release and of_release.has(
        file.folder, file.path, (file.size, file.mtime_ns)
    ))]  # fmt: skip


def in_folder(folder: str, excluded: str = "") -> List[EventFile]:
    """Return the regular event files below a folder, without those below the folder `excluded`.

    Looks at the first MAX_ENTRIES entries of `walk`.
    """
    found, folder = [], os.path.normpath(folder)
    for entry in islice(walk(folder, os.path.normpath(excluded)), MAX_ENTRIES):
        try:
            if EVENTS in entry.name and entry.is_file(follow_symlinks=False):
                path = os.path.relpath(entry.path, folder)
                found.append(EventFile(folder, path, entry.stat()))
        except OSError:  # it was deleted
            continue
    return found


def _belongs_to_another_task(task_dir: str, folder: str) -> bool:
    """An evaluator's link may lead to the chief's checkpoints on the same host (Launch.links)."""
    run = os.path.realpath(os.path.dirname(task_dir))
    parts = os.path.relpath(os.path.realpath(folder), run).split(os.sep)
    return parts[1:2] == ["work"] and parts[0] not in ("..", os.path.basename(task_dir))
