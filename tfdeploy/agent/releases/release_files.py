"""The files of its release that a task's directory has, and which of them are as they were.

A copy that the task has changed is one of its outputs. The others are not: the controller has the
release.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ...shared import filesystem
from ...shared.records import Launch
from .. import paths
from ..machine import stored
from . import manifest

# A file that was written this recently may be changed without a new time: clocks of file systems
# tick every few milliseconds, or every second or two.
SETTLED_S = 3


class ReleaseFiles:
    """The paths of a manifest that a task's directory has: all but `excluded` ones, and those below
    or above these. A slot of trials has none in the place of its trials, and each trial has all."""

    def __init__(self, entries: manifest.Manifest, excluded: Sequence[str], trials: bool) -> None:
        self._manifest, self._has_trials = entries, trials
        self._excluded = [os.path.join(os.path.normpath(path), "") for path in excluded]

    def entries(self) -> manifest.Manifest:
        """Return what the manifest says about each of these paths."""
        return {path: entry for path, entry in self._manifest.items()
                if not self._is_excluded(path)
                and not (self._has_trials and _is_in_trials(path))}  # fmt: skip

    def has(self, work: str, path: str, stamp: Sequence[int]) -> bool:
        """Return whether a file of the task's directory `work`, which has this size and this mtime
        in ns, is as in the release. It is read only if its time differs."""
        kind, content, *_, size, mtime_ns, _inode = self._entry(path) or ("", "", 0, 0, 0)
        if kind != "file" or stamp[0] != size:
            return False
        return stamp[1] == mtime_ns or _sha256(os.path.join(work, path), *stamp[:2]) == content

    def have_all(self, work: str, files: Dict[str, Tuple[int, int]]) -> bool:
        """Return whether all of these files, with their sizes and mtimes, are as in the release."""
        return all(self.has(work, path, stamp) for path, stamp in files.items())

    def is_one_in(self, work: str) -> Callable[[os.DirEntry[str]], bool]:
        """Return a function that returns whether an entry of the directory `work`, or of a folder
        in it, is as in the release."""

        def is_one(entry: os.DirEntry[str]) -> bool:
            info = entry.stat(follow_symlinks=False)
            path = os.path.relpath(entry.path, work)
            return self.has(work, path, (info.st_size, info.st_mtime_ns))

        return is_one

    def has_link(self, work: str, path: str) -> bool:
        """Return whether a symbolic link of the task's directory is as in the release."""
        kind, target, *_ = self._entry(path) or ("", "")
        full = os.path.join(work, path)
        return bool(kind == "link" and os.path.islink(full) and os.readlink(full) == target)

    def _entry(self, path: str) -> Optional[List[Any]]:
        """Return the manifest's entry for a path of the task's directory, or of a trial's in it."""
        if self._has_trials and _is_in_trials(path):
            path = "".join(path.split(os.sep, 2)[2:])
        entry = self._manifest.get(path)
        return None if entry is None or self._is_excluded(path) else entry

    def _is_excluded(self, path: str) -> bool:
        path = path + os.sep
        return any(path.startswith(each) or each.startswith(path) for each in self._excluded)


def _is_in_trials(path: str) -> bool:
    return path.split(os.sep)[0] == paths.TRIALS


def of_launch(launch: Launch) -> ReleaseFiles:
    """Return the files of the release that a task has. The places of checkpoints, data sets and
    role files are its own."""
    excluded = (launch.directory.checkpoint_dir, *launch.directory.data, *launch.directory.files)
    entries = manifest.read(launch.project, launch.directory.release)
    return ReleaseFiles(entries, excluded, bool(launch.trials.points))


def of_task(task_dir: str) -> ReleaseFiles:
    """Return those of the task with this folder; none if its launch.json can't be read."""
    launch = stored.launch_if_readable(task_dir)
    return of_launch(launch) if launch else ReleaseFiles({}, [], False)


def _sha256(path: str, size: int, mtime_ns: int) -> str:
    is_settled = time.time() - mtime_ns / 1e9 > SETTLED_S
    try:
        return _known_sha256(path, size, mtime_ns) if is_settled else filesystem.sha256(path)
    except OSError:  # it was deleted
        return ""


@lru_cache(maxsize=1024)
def _known_sha256(path: str, size: int, mtime_ns: int) -> str:
    """Return the hash of a file with this size and time: supervisors ask every few seconds. Raises
    OSError."""
    return filesystem.sha256(path)
