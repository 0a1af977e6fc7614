"""The complete release from which a new one takes the files that have not changed, by hard links.

A manifest names a file's content by its sha256, or by `<size>.<mtime in ns>`.
"""

from __future__ import annotations

import json
import os

from ...shared import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional


class BaseRelease:
    """A complete release on this host. `manifest_file` says what its `folder` holds; None for
    `folder` means that there is no such release yet."""

    def __init__(self, folder: Optional[str], manifest_file: str) -> None:
        self._folder = folder or ""
        self._manifest = _read_manifest(manifest_file) if folder else {}
        self._by_content = {
            (entry[1], entry[2]): path
            for path, entry in self._manifest.items()
            # Several files may have the same size and time.
            if entry[0] == "file" and mtime_ns(entry[1]) is None
        }

    def link_file(self, path: str, entry: List[Any], target: str) -> Optional[List[int]]:
        """Link the file with the content of `entry`, a manifest's entry for `path`, to `target`.

        Return its fingerprint, or None if this release has no such file or the file has changed
        since its content was verified.
        """
        if entry[0] != "file":
            return None
        unchanged = path if self._manifest.get(path, [])[:3] == entry else ""
        source = unchanged or self._by_content.get((entry[1], entry[2]), "")
        if not source:
            return None
        verified: List[int] = self._manifest[source][3:]
        source_path = os.path.join(self._folder, source)
        try:
            if fingerprint(source_path) != verified:
                return None
            _link(source_path, target)
        except OSError:  # the file is gone, or the file system has no hard links
            return None
        return verified


def fingerprint(path: str) -> List[int]:
    """Return what changes if a file's content changes: size, mtime in ns and inode."""
    info = os.lstat(path)
    return [info.st_size, info.st_mtime_ns, info.st_ino]


def mtime_ns(content: str) -> Optional[int]:
    """Return the mtime in the name of a content; None if the content is named by its hash."""
    mtime = content.partition(".")[2]
    return int(mtime) if mtime else None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:  # an interrupted push left something else
        os.remove(target)
        os.link(source, target, follow_symlinks=False)


def _read_manifest(path: str) -> Dict[str, List[Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            manifest: Dict[str, List[Any]] = json.load(file)
            return manifest if isinstance(manifest, dict) else {}
    except (OSError, ValueError):  # another version of tfdeploy pushed the release
        return {}
