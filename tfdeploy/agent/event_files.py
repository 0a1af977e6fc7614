"""A task's TensorBoard event files: below where it saves, and elsewhere in its directory."""

from __future__ import annotations

import os
from collections import deque
from itertools import islice

from . import TYPE_CHECKING, paths, records

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

EVENTS = "events.out.tfevents."
ENTRIES = 50000


class EventFile:
    """`path` is relative to `folder`; `changed` is when it did so last, on this host's clock."""

    def __init__(self, folder: str, path: str, stat: os.stat_result) -> None:
        self.folder, self.path = folder, path
        self.changed, self.size = stat.st_mtime, stat.st_size

    @property
    def whole_path(self) -> str:
        return os.path.join(self.folder, self.path)


def events(project: str, run: str, task: str) -> Dict[str, Any]:
    """The verb: `{folders: {folder: [paths relative to it]}}`; none where it was never started."""
    if task not in paths.tasks(project, run):
        return {"folders": {}}
    task_dir = paths.task(project, run, task)
    launch = records.load(records.Launch, paths.launch(task_dir))
    # What all tasks share is told once.
    shared = os.path.isabs(launch.checkpoint_dir) and not launch.is_chief
    folders: Dict[str, List[str]] = {}
    for file in of(task_dir, "." if shared else launch.checkpoint_dir):
        folders.setdefault(file.folder, []).append(file.path)
    return {"folders": {folder: sorted(names) for folder, names in folders.items()}}


def of(task_dir: str, checkpoint_dir: str) -> List[EventFile]:
    """All of a task's own. Never raises."""
    work, saves = paths.work(task_dir), paths.checkpoints(task_dir, checkpoint_dir)
    if os.path.normpath(saves) == os.path.normpath(work):
        return below(work)
    own = [] if _is_of_another(task_dir, saves) else below(saves)
    return [*own, *below(work, besides=saves)]


def below(folder: str, besides: str = "") -> List[EventFile]:
    """Regular files, among the folder's first ENTRIES entries, but for what lies in `besides`."""
    found, folder = [], os.path.normpath(folder)
    for entry in islice(_entries(folder, os.path.normpath(besides)), ENTRIES):
        try:
            if EVENTS in entry.name and entry.is_file(follow_symlinks=False):
                path = os.path.relpath(entry.path, folder)
                found.append(EventFile(folder, path, entry.stat()))
        except OSError:  # it was deleted
            continue
    return found


def _is_of_another(task_dir: str, folder: str) -> bool:
    """An evaluator's link may lead to where the chief saves, beside it (see Launch.links)."""
    run = os.path.realpath(os.path.dirname(task_dir))
    inside = os.path.relpath(os.path.realpath(folder), run).split(os.sep)
    return inside[1:2] == ["work"] and inside[0] not in ("..", os.path.basename(task_dir))


def _entries(folder: str, besides: str) -> Iterator[os.DirEntry[str]]:
    """What lies in the folder, then what lies one deeper: the deepest is the last to be missed."""
    left = deque([folder])
    while left:
        try:
            with os.scandir(left.popleft()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and entry.path != besides:
                        left.append(entry.path)
                    yield entry
        except OSError:
            continue
