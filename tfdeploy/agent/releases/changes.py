"""Find what was changed in a complete release on this host, and repair it.

Root, and the owner of a file, can write into it although it is read-only.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Tuple

from ...shared import parallel
from ...shared.filesystem import folders_above, stamp, walk
from .. import paths
from . import manifest
from .manifest import FINGERPRINT, Manifest
from .staging import make_writable

MANIFEST = "its list of files"
# A release with a larger list, of more than about 25,000 files, is not compared before a start: on
# a file server that takes up to a millisecond for each file.
MAX_MANIFEST_BYTES = 4_000_000


def changed_file(project: str, release: str) -> str:
    """Return a path of a complete release that is not as it was received, or is gone; "" if there
    is none.

    Sizes and times are compared (4 ms for 1,000 files); only a file for which they differ is read,
    and if its content is the same, its new time is remembered. Inodes are not compared: on some
    network file systems they differ between hosts.
    """
    file = paths.manifest(project, release)
    if _size(file) > MAX_MANIFEST_BYTES:
        return ""
    entries, folder = manifest.read(project, release), paths.release(project, release)
    if not entries:
        return MANIFEST
    touched: Dict[str, List[Any]] = {}
    for path, found in _touched(folder, entries):
        if not manifest.matches(folder, path, entries[path]):
            return path
        touched[path] = [*entries[path][:-3], *found]
    if touched:
        with suppress(OSError):  # a full or read-only disk: they are read again the next time
            manifest.write(file, {**entries, **touched})
    return ""


def _touched(folder: str, entries: Manifest) -> Iterator[Tuple[str, Tuple[int, ...]]]:
    """Yield each path whose size or time is not that of its entry, and its stamp; () if it is
    gone."""
    found = parallel.each_file(lambda path: stamp(os.path.join(folder, path)), list(entries))
    for (path, entry), now in zip(entries.items(), found):  # noqa: B905 - Python 3.8
        if now[:2] != tuple(entry[FINGERPRINT][:2]):
            yield path, now


def is_whole(project: str, release: str) -> bool:
    """Return whether this host has a release as it was received."""
    return os.path.isdir(paths.release(project, release)) and not changed_file(project, release)


def repair(project: str, release: str, incoming: str, entries: Manifest) -> None:
    """Replace what was changed in a release by the files in the folder `incoming`, which has all
    that `entries` lists. Raises OSError.

    What was changed stays beside it, under another name: a task may have written it.
    """
    folder = paths.release(project, release)
    for each in (folder, incoming):
        make_writable(each)
    for path, entry in entries.items():
        if not manifest.matches(folder, path, entry):
            _set_aside(folder, path)
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(os.path.join(incoming, path), target)
    for top, _, _ in os.walk(folder):
        os.chmod(top, 0o555)
    repaired = {path: [*entry, *manifest.fingerprint(os.path.join(folder, path))]
                for path, entry in entries.items()}  # fmt: skip
    manifest.write(paths.manifest(project, release), repaired)


def added_files(project: str, release: str) -> List[str]:
    """Return the paths of files that were written into a release, beside its own ones."""
    folder, entries = paths.release(project, release), manifest.read(project, release)
    found = (entry.path for entry in walk(folder) if not entry.is_dir(follow_symlinks=False))
    names = [os.path.relpath(path, folder) for path in found] if entries else []
    return [name for name in names if name not in entries]


def overwritten_files(project: str, release: str) -> List[str]:
    """Return the paths of a release's own files that have another content now, however many files
    it has."""
    folder, entries = paths.release(project, release), manifest.read(project, release)
    return [path for path, now in _touched(folder, entries)
            if now and not manifest.matches(folder, path, entries[path])]  # fmt: skip


def _set_aside(folder: str, path: str) -> None:
    """Rename what is in the place of a path, or of a folder above it."""
    for part in (*reversed([*folders_above(path)]), path):
        place = os.path.join(folder, part)
        if os.path.lexists(place) and (part == path or not _is_folder(place)):
            os.rename(place, "{}.changed-{:.0f}".format(place, time.time()))
            return


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
