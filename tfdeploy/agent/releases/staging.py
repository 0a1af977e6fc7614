"""A release that is not complete yet: filled from an older release and from what is sent.

Files that have not changed are hard links to those of a complete release. manifest.py says what
a manifest is.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Optional, Set

from ...shared import records
from .manifest import Manifest, fingerprint, matches, mtime_ns, write


class BaseRelease:
    """A complete release on this host. `manifest_file` says what its `folder` holds; None for
    `folder` means that there is no such release yet."""

    def __init__(self, folder: Optional[str], manifest_file: str) -> None:
        self._folder = folder or ""
        self._manifest = records.read_or_empty(dict, manifest_file) if folder else {}
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


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:  # an interrupted push left something else
        os.remove(target)
        os.link(source, target, follow_symlinks=False)


class StagedRelease:
    """The folder of a release that is not complete yet.

    `manifest` maps each path to `["file", <content>, <executable>]` or `["link", <target>]`. A
    content is named by its sha256, or by `<size>.<mtime in ns>`; then the file is not read to
    compare it.
    """

    def __init__(self, folder: str, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._paths = list(manifest)
        self._complete: Set[str] = set()
        self._folders: Set[str] = set()
        self._linked: Dict[str, List[int]] = {}  # each path's fingerprint in the base release
        self._fresh = os.path.join(folder, _unused_name(".{}".format(os.getpid()), manifest))

    def prepare(self, base: Optional[str], base_manifest: str) -> None:
        """Create the folder and fill it from this host.

        Keeps what an interrupted push left, makes the symbolic links, and links the files that the
        complete release in the folder `base` has. The file `base_manifest` lists them.
        """
        os.makedirs(self.folder, exist_ok=True)
        make_writable(self.folder)  # a push may have ended between `_make_read_only` and the rename
        is_resumed = bool(os.listdir(self.folder))
        base_release = BaseRelease(base, base_manifest)
        for path, entry in self.manifest.items():
            if (
                (is_resumed and matches(self.folder, path, entry))
                or (entry[0] == "link" and self._make_symlink(path, entry[1]))
                or self._link_from(base_release, path, entry)
            ):
                self._complete.add(path)

    def missing(self) -> List[int]:
        """Return the positions in the manifest of the files that have to be sent."""
        return [at for at, path in enumerate(self._paths) if path not in self._complete]

    def write(self, index: int, blocks: Iterator[bytes]) -> None:
        """Write the file at this position of the manifest; drop it if its content is wrong.

        The file appears complete, because another push of the same release may look for it.
        """
        path = self._paths[index]
        target, entry = self._make_parent(path), self.manifest[path]
        if _write_file(self._fresh, blocks, entry) == entry[1]:
            os.replace(self._fresh, target)
            self._complete.add(path)
        else:
            os.remove(self._fresh)

    def finish(self) -> List[str]:
        """Make the release read-only, if it is complete. Return the paths that are missing or
        wrong."""
        unchecked = (item for item in self.manifest.items() if item[0] not in self._complete)
        wrong = [path for path, entry in unchecked if not matches(self.folder, path, entry)]
        if not wrong:
            found: Set[str] = set()
            self._make_read_only("", found)
            wrong = list(self.manifest.keys() - found)  # removed by another process meanwhile
        return sorted(wrong)

    def publish(self, final: str, manifest_file: str) -> None:
        """Rename the folder to `final`. Its manifest says what the next release may link, with
        fingerprints that show later changes."""
        entries = {
            path: [
                *entry,
                *(self._linked.get(path) or fingerprint(os.path.join(self.folder, path))),
            ]
            for path, entry in self.manifest.items()
        }
        write(manifest_file, entries)
        os.rename(self.folder, final)

    def _make_parent(self, path: str) -> str:
        """Return the whole path, after its folder was made a real folder and not a link."""
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._make_folder(folder)
        return os.path.join(self.folder, path)

    def _make_folder(self, folder: str) -> None:
        parent, _, _ = folder.rpartition("/")
        if parent and parent not in self._folders:
            self._make_folder(parent)
        target = os.path.join(self.folder, folder)
        try:
            os.mkdir(target)
        except FileExistsError:
            if folder and (os.path.islink(target) or not os.path.isdir(target)):
                os.remove(target)
                os.mkdir(target)
        self._folders.add(folder)

    def _link_from(self, base: BaseRelease, path: str, entry: List[Any]) -> bool:
        linked = base.link_file(path, entry, self._make_parent(path))
        if linked is not None:
            self._linked[path] = linked
        return linked is not None

    def _make_symlink(self, path: str, target: str) -> bool:
        link = self._make_parent(path)
        if os.path.lexists(link):
            os.remove(link)
        os.symlink(target, link)
        return True

    def _make_read_only(self, above: str, found: Set[str]) -> bool:
        """Make everything below the folder `above` read-only, so that no run can change what
        another one trains with.

        Deletes what the manifest does not list (an interrupted push left it) and empty folders.
        Adds the paths that exist to `found`; returns whether any of them is in `above`.
        """
        folder, is_needed = os.path.join(self.folder, above), False
        with os.scandir(folder) as iterator:
            entries = list(iterator)
        for entry in entries:
            path = above + entry.name
            if entry.is_dir(follow_symlinks=False):
                is_needed = self._make_read_only(path + "/", found) or is_needed
            elif path in self.manifest:
                is_needed = True
                found.add(path)
                if path not in self._linked and self.manifest[path][0] == "file":
                    os.chmod(entry.path, _mode(self.manifest[path]))
            else:
                os.remove(entry.path)
        if is_needed:
            os.chmod(folder, 0o555)
        else:
            os.rmdir(folder)
        return is_needed


def make_writable(top: str) -> None:
    """Make all folders of a tree writable, so that it can be filled or deleted.

    Ignores errors: writing into such a folder raises its own.
    """
    _make_folder_writable(top)
    for folder, folders, _ in os.walk(top):
        for name in folders:
            _make_folder_writable(os.path.join(folder, name))


def _make_folder_writable(folder: str) -> None:
    with suppress(OSError):
        if not os.path.islink(folder):
            os.chmod(folder, 0o755)


def _write_file(path: str, blocks: Iterator[bytes], entry: List[Any]) -> str:
    """Write a file. Return the name of its content, of the same kind as the entry's."""
    digest, size, mtime = hashlib.sha256(), 0, mtime_ns(entry[1])
    if os.path.lexists(path):  # it may be a hard link: do not write into it
        os.remove(path)
    with open(path, "xb") as file:
        for block in blocks:
            size += file.write(block)
            if mtime is None:
                digest.update(block)
        os.fchmod(file.fileno(), _mode(entry))
    if mtime is None:
        return digest.hexdigest()
    os.utime(path, ns=(mtime, mtime))
    return "{}.{}".format(size, mtime)


def _unused_name(name: str, manifest: Manifest) -> str:
    """Return `name`, extended until nothing at the top of the release has it."""
    top_names = {path.partition("/")[0] for path in manifest}
    while name in top_names:
        name += "~"
    return name


def _mode(entry: List[Any]) -> int:
    return 0o555 if entry[2] else 0o444
