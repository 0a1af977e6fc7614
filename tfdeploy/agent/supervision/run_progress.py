"""Find out whether a run has progressed since an earlier failure: a restart helps only then.

Progress is a higher training step in the chief's event files, a new file name where the chief
writes, or other content of a model under a fixed name. The time of a file is no sign of progress: a
program whose training is complete may save the same model again. TensorFlow's own checkpoints have
their step in the name, and a session saves the step that it has restored again.
"""

from __future__ import annotations

import os
import threading
from itertools import islice
from typing import Iterator, Set, Tuple

from ...shared import filesystem, state_file
from ...shared.event_records import EVENTS
from ...shared.units import MAX_ENTRIES
from .. import paths
from ..outputs import event_files
from ..reports import progress

FileVersion = Tuple[object, ...]


# An index has the checksum of every tensor, also of a SavedModel's variables.
MODELS = (".keras", ".h5", ".index", ".npz", ".pt", ".pth", ".safetensors")
TIME_OF_SAVE = "metadata.json"  # a member of a .keras file
MAX_READ_BYTES = 1 << 26  # a larger file is compared by size and time


class RunProgress:
    """Counts how often the chief of `task_dir` had progressed since the check before."""

    def __init__(self, task_dir: str, checkpoint_dir: str) -> None:
        self._task_dir = task_dir
        self._checkpoint_dir = checkpoint_dir
        self._files: Set[FileVersion] = set()
        self._step = -1
        self._count = 0
        self._checking = threading.Lock()

    def count(self) -> int:
        """Check again and return the count. Equal counts mean no progress. Never raises."""
        with self._checking:
            step, files = self._newest_step(), set(self._written_files())
            if step > self._step or files - self._files:
                self._count += 1
            self._step = max(step, self._step)
            self._files |= files
            return self._count

    def _newest_step(self) -> int:
        newest = progress.last_step(event_files.of_task(self._task_dir, self._checkpoint_dir))
        return newest.step if newest else -1

    def _written_files(self) -> Iterator[FileVersion]:
        work = paths.work(self._task_dir)
        folders = dict.fromkeys([work, paths.checkpoints(self._task_dir, self._checkpoint_dir)])
        for folder in folders:
            for entry in islice(filesystem.walk(folder), MAX_ENTRIES):
                try:
                    if entry.is_file(follow_symlinks=False) and _counts(entry):
                        yield _file_version(entry)
                except OSError:  # it was deleted
                    continue


def _counts(entry: os.DirEntry[str]) -> bool:
    """Return whether a new file of this name is progress.

    Event files and profiles get a new name at each restart.
    """
    is_profile = os.sep + "plugins" + os.sep in entry.path
    return not (is_profile or EVENTS in entry.name)


def _file_version(entry: os.DirEntry[str]) -> FileVersion:
    prefix, extension = os.path.splitext(entry.name)
    if extension not in MODELS or state_file.step(prefix) is not None:
        return (entry.path,)
    content = _member_checksums(entry.path) if extension == ".keras" else _content(entry)
    return (entry.path, *content)


def _member_checksums(path: str) -> FileVersion:
    """Return the checksums in the directory of a .keras file, without reading its members."""
    import zipfile  # as in _newest_step

    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile:
        return (filesystem.sha256(path),)
    return tuple((each.filename, each.CRC) for each in members if each.filename != TIME_OF_SAVE)


def _content(entry: os.DirEntry[str]) -> FileVersion:
    info = entry.stat()
    if info.st_size > MAX_READ_BYTES:
        return (info.st_size, info.st_mtime_ns)
    return (filesystem.sha256(entry.path),)
