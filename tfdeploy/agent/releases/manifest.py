"""What a release on this host holds: each path's content, and a fingerprint that shows changes.

A manifest maps each path to `["file", <content>, <executable>]` or `["link", <target>]`, followed
on the host by its fingerprint. A content is named by its sha256, or by `<size>.<mtime in ns>`; then
the file is not read to compare it.
"""

from __future__ import annotations

import json
import os
import stat
from functools import lru_cache
from typing import Any, Dict, List, Optional, Tuple

from ...shared import filesystem, records
from .. import paths

Manifest = Dict[str, List[Any]]

FINGERPRINT = slice(-3, None)  # of an entry: size, mtime in ns and inode
# The resolutions, in ns, with which file systems store times.
TIME_RESOLUTIONS = (1, 100, 10**3, 10**6, 10**9)


def read(project: str, release: str) -> Manifest:
    """Return the manifest of a release, which the caller must not change; {} if it can't be
    read."""
    file = paths.manifest(project, release)
    return _read(file, filesystem.stamp(file))


@lru_cache(maxsize=1)
def _read(file: str, stamp: Tuple[int, ...]) -> Manifest:
    """Return the manifest in a file with this stamp: the supervisor asks every few seconds."""
    return records.read_or_empty(dict, file)


def write(file: str, manifest: Manifest) -> None:
    """Write a manifest with fingerprints, which show what is lost if the power fails then. Raises
    OSError."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    # json.dump takes five times as long as json.dumps.
    filesystem.replace_file(file, json.dumps(manifest).encode())
    with open(file, "rb") as written:
        os.fsync(written.fileno())


def fingerprint(path: str) -> List[int]:
    """Return what changes if a file's content changes: size, mtime in ns and inode."""
    info = os.lstat(path)
    return [info.st_size, info.st_mtime_ns, info.st_ino]


def mtime_ns(content: str) -> Optional[int]:
    """Return the mtime in the name of a content; None if the content is named by its hash."""
    mtime = content.partition(".")[2]
    return int(mtime) if mtime else None


def matches(folder: str, path: str, entry: List[Any]) -> bool:
    """Return whether a release's folder has what an entry, with or without its fingerprint, says
    about a path."""
    full, real = os.path.join(folder, path), os.path.join(os.path.realpath(folder), path)
    if os.path.realpath(os.path.dirname(full)) != os.path.dirname(real):
        return False  # one of its folders is a link
    try:
        info = os.lstat(full)
        if entry[0] == "link":
            return stat.S_ISLNK(info.st_mode) and os.readlink(full) == entry[1]
        return stat.S_ISREG(info.st_mode) and _has_content(full, info, entry[1])
    except OSError:
        return False


def _has_content(path: str, info: os.stat_result, content: str) -> bool:
    mtime = mtime_ns(content)
    if mtime is None:
        return filesystem.sha256(path) == content
    stored = [mtime - mtime % resolution for resolution in TIME_RESOLUTIONS]
    return str(info.st_size) == content.partition(".")[0] and info.st_mtime_ns in stored
