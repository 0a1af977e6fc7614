"""Units: what a task wrote that is useful only if it is complete.

A unit is a file, a TensorFlow checkpoint, or the folder of a SavedModel or an Orbax checkpoint.
Links are not followed: they lead to the release and to data.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Dict, Iterator, List, Set, Tuple

from . import state_file
from .protocol.outputs import Unit

MAX_ENTRIES = 200_000  # of all folders that are looked through for one task
FILE, SET, SAVED_MODEL, FOLDER, ANY = "file", "set", "saved_model", "folder", "any"
MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
ORBAX = ("_CHECKPOINT_METADATA", "_METADATA")
SKIPPED_FOLDER = re.compile(r"__pycache__$|.*\.orbax-checkpoint-tmp")
# A Saver writes model.ckpt-7_temp/part-00000-of-00001.index, and moves the parts when all are
# complete. Sources: tensorflow/python/training/saver.py, BaseSaverBuilder._AddShardedSaveOps;
# tensorflow/core/util/tensor_bundle/tensor_bundle.cc, BundleWriter.
TEMPORARY = "_temp"
PART = re.compile(r"part(-\d+-of-\d+)?\.(index|data-\d+-of-\d+)(\.tempstate\d+)?")


def is_folder(kind: str) -> bool:
    """Return whether units of this kind are whole folders."""
    return kind in (SAVED_MODEL, FOLDER)


class Walk:
    """Looks through folders. `left` falls below 0 if there are more than MAX_ENTRIES; `unread` says
    why folders could not be listed. `special` has the path of everything that is neither a folder
    nor a regular file, as a path on this host and as units have it."""

    def __init__(self) -> None:
        self.left = MAX_ENTRIES
        self.unread: List[str] = []
        self.special: List[Tuple[str, str]] = []

    @property
    def incomplete(self) -> str:
        """Why there may be files that were not yielded; "" if there are none."""
        if self.left < 0:
            return "it has more than {} files".format(MAX_ENTRIES)
        return self.unread[0] if self.unread else ""

    def units(self, folder: str, name: str) -> Iterator[Unit]:
        """Yield the units in `folder`; `name` is its path in units."""
        files, folders = self._scan(folder, name)
        kind = _folder_kind({os.path.basename(path) for path in files}) if name else ""
        below = [unit for subfolder in folders for unit in self.units(*subfolder)]
        if kind:
            for unit in below:
                files.update(unit.files)
            yield Unit(name, kind, files)
            return
        yield from _group_files(name, files)
        yield from below

    def _scan(
        self, folder: str, name: str
    ) -> Tuple[Dict[str, Tuple[int, int]], List[Tuple[str, str]]]:
        files: Dict[str, Tuple[int, int]] = {}
        folders: List[Tuple[str, str]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.left -= 1
                    if self.left < 0:
                        break
                    path = os.path.join(name, entry.name)
                    if _is_temporary_folder(entry):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, path))
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # it was removed
                            info = entry.stat(follow_symlinks=False)
                            files[path] = (info.st_size, info.st_mtime_ns)
                    else:
                        self.special.append((entry.path, path))
        except FileNotFoundError:  # the folder was removed
            pass
        except OSError as error:
            self.unread.append("{}: {}".format(name or ".", error.strerror))
        return files, sorted(folders)


def _is_temporary_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a cache, or a folder that a saver has not completed. A file is never
    skipped because of its name, nor a folder with other files."""
    if not entry.is_dir(follow_symlinks=False):
        return False
    if SKIPPED_FOLDER.match(entry.name):
        return True
    try:
        names = os.listdir(entry.path) if entry.name.endswith(TEMPORARY) else ["other"]
        return all(map(PART.fullmatch, names))
    except OSError:  # the walk into it says why
        return False


def _folder_kind(names: Set[str]) -> str:
    """Return the kind of a folder with these files, "" if it is an ordinary one."""
    if names.intersection(MODEL_FILES):
        return SAVED_MODEL
    return FOLDER if names.intersection(ORBAX) else ""


def _group_files(folder: str, files: Dict[str, Tuple[int, int]]) -> Iterator[Unit]:
    """Yield checkpoints, then the files that belong to none."""
    remaining = dict(files)
    names = [os.path.basename(path) for path in files]
    for prefix in [name[: -len(".index")] for name in names if name.endswith(".index")]:
        found = state_file.file_set(names, prefix)
        if found:
            own = [os.path.join(folder, name) for name in found]
            checkpoint = {path: remaining.pop(path) for path in own}
            yield Unit(os.path.join(folder, prefix), SET, checkpoint)
    for path, stamp in remaining.items():
        yield Unit(path, FILE, {path: stamp})
