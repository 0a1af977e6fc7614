"""A release that grows on this host beside the whole ones: from them, and from what is sent."""

from __future__ import annotations

import hashlib
import json
import os
import stat

from . import TYPE_CHECKING, content

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set

    Manifest = Dict[str, List[Any]]


# In ns: the units in which file systems keep times.
UNITS = (1, 100, 10**3, 10**6, 10**9)


class Incoming:
    """The folder of a release that is not whole yet. `manifest` says what belongs into it:
    `["file", <content>, <executable>]` or `["link", <target>]` for each path. A content is named by
    its sha256, or by `<size>.<mtime in ns>`, and then never read."""

    def __init__(self, folder: str, manifest: Manifest) -> None:
        self.folder = folder
        self._manifest = manifest
        self._paths = list(manifest)
        self._whole: Set[str] = set()
        self._folders: Set[str] = set()
        self._linked: Dict[str, List[int]] = {}  # with what the neighbour knows of each
        self._fresh = os.path.join(folder, _unused(".{}".format(os.getpid()), manifest))

    def begin(self, base: Optional[str], known: str) -> None:
        """Look what a broken push left here; make the links; take from `base`, a whole release,
        what it has. The file `known` says what that is."""
        os.makedirs(self.folder, exist_ok=True)
        unseal(self.folder)  # it may have been sealed, and not been renamed any more
        left = bool(os.listdir(self.folder))
        neighbour = _Neighbour(base, known)
        for path, entry in self._manifest.items():
            if (
                (left and self._matches(path, entry))
                or (entry[0] == "link" and self._make_link(path, entry[1]))
                or self._take(neighbour, path, entry)
            ):
                self._whole.add(path)

    def wanted(self) -> List[int]:
        """The positions in the manifest of what is not here."""
        return [at for at, path in enumerate(self._paths) if path not in self._whole]

    def write(self, index: int, arriving: Iterator[bytes]) -> None:
        """The file at this position of the manifest; what is not what it should be is left out.
        It appears whole, for another push of the same release may look for it."""
        path = self._paths[index]
        target, entry = self._place(path), self._manifest[path]
        if _written(self._fresh, arriving, entry) == entry[1]:
            os.replace(self._fresh, target)
            self._whole.add(path)
        else:
            os.remove(self._fresh)

    def finish(self, final: str, known: str) -> List[str]:
        """Seal it and give it its name, if it is whole; else the paths that are not right."""
        others = (item for item in self._manifest.items() if item[0] not in self._whole)
        wrong = [path for path, entry in others if not self._matches(path, entry)]
        if not wrong:
            seen: Set[str] = set()
            self._seal("", seen)
            wrong = list(self._manifest.keys() - seen)  # somebody has removed it meanwhile
        if not wrong:
            self._remember(known)
            os.rename(self.folder, final)
        return sorted(wrong)

    def _remember(self, known: str) -> None:
        """What the next release may be linked from: a file that has changed since has another
        time."""
        held = {
            path: [*entry, *(self._linked.get(path) or _touched(os.path.join(self.folder, path)))]
            for path, entry in self._manifest.items()
        }
        os.makedirs(os.path.dirname(known), exist_ok=True)
        fresh = "{}.{}".format(known, os.getpid())
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(json.dumps(held))  # json.dump takes five times as long
        os.replace(fresh, known)

    def _place(self, path: str) -> str:
        """Where it belongs, in a folder that is no link to elsewhere."""
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._make_folder(folder)
        return os.path.join(self.folder, path)

    def _make_folder(self, folder: str) -> None:
        above, _, _ = folder.rpartition("/")
        if above and above not in self._folders:
            self._make_folder(above)
        here = os.path.join(self.folder, folder)
        try:
            os.mkdir(here)
        except FileExistsError:
            if folder and (os.path.islink(here) or not os.path.isdir(here)):
                os.remove(here)
                os.mkdir(here)
        self._folders.add(folder)

    def _take(self, neighbour: _Neighbour, path: str, entry: List[Any]) -> bool:
        known = neighbour.gives(path, entry, self._place(path))
        if known is not None:
            self._linked[path] = known
        return known is not None

    def _make_link(self, path: str, target: str) -> bool:
        place = self._place(path)
        if os.path.lexists(place):
            os.remove(place)
        os.symlink(target, place)
        return True

    def _matches(self, path: str, entry: List[Any]) -> bool:
        full = os.path.join(self.folder, path)
        real = os.path.join(os.path.realpath(self.folder), path)
        if os.path.realpath(os.path.dirname(full)) != os.path.dirname(real):
            return False  # a link stands where a folder should
        try:
            info = os.lstat(full)
            if entry[0] == "link":
                return stat.S_ISLNK(info.st_mode) and os.readlink(full) == entry[1]
            return stat.S_ISREG(info.st_mode) and _is_named(full, info, entry[1])
        except OSError:
            return False

    def _seal(self, above: str, seen: Set[str]) -> bool:
        """Read-only from now on, so that no run can change what another one trains with. What an
        earlier, broken push left here and this release doesn't hold, goes, empty folders too.
        Collects the paths that it has `seen`; tells whether any of them is in the folder `above`.
        """
        folder, keeps = os.path.join(self.folder, above), False
        with os.scandir(folder) as entries:
            found = list(entries)
        for each in found:
            path = above + each.name
            if each.is_dir(follow_symlinks=False):
                keeps = self._seal(path + "/", seen) or keeps
            elif path in self._manifest:
                keeps = True
                seen.add(path)
                if path not in self._linked and self._manifest[path][0] == "file":
                    os.chmod(each.path, _mode(self._manifest[path]))
            else:
                os.remove(each.path)
        if keeps:
            os.chmod(folder, 0o555)
        else:
            os.rmdir(folder)
        return keeps


class _Neighbour:
    """A whole release on this host, whose files another one may share."""

    def __init__(self, folder: Optional[str], known: str) -> None:
        self._folder = folder or ""
        self._held = _read(known) if folder else {}
        self._by_content = {
            (held[1], held[2]): path
            for path, held in self._held.items()
            if held[0] == "file" and _time(held[1]) is None  # many files have one size and time
        }

    def gives(self, path: str, entry: List[Any], place: str) -> Optional[List[int]]:
        """Link a file of this content to `place`; what is known of it (see _touched), or None. It
        must be untouched since it was compared."""
        if entry[0] != "file":
            return None
        same = path if self._held.get(path, [])[:3] == entry else ""
        source = same or self._by_content.get((entry[1], entry[2]), "")
        if not source:
            return None
        known: List[int] = self._held[source][3:]
        full = os.path.join(self._folder, source)
        try:
            if _touched(full) != known:
                return None
            _link(full, place)
        except OSError:  # it is gone, or this file system has no such links
            return None
        return known


def _link(source: str, place: str) -> None:
    try:
        os.link(source, place, follow_symlinks=False)
    except FileExistsError:  # a broken push left something else here
        os.remove(place)
        os.link(source, place, follow_symlinks=False)


def _written(path: str, arriving: Iterator[bytes], entry: List[Any]) -> str:
    """Write a file; what its content is named by, as the entry does it."""
    digest, size, when = hashlib.sha256(), 0, _time(entry[1])
    if os.path.lexists(path):  # never into what it may be a link of
        os.remove(path)
    with open(path, "xb") as file:
        for block in arriving:
            size += file.write(block)
            if when is None:
                digest.update(block)
        os.fchmod(file.fileno(), _mode(entry))
    if when is None:
        return digest.hexdigest()
    os.utime(path, ns=(when, when))
    return "{}.{}".format(size, when)


def _is_named(path: str, info: os.stat_result, name: str) -> bool:
    when = _time(name)
    if when is None:
        return content.sha256(path) == name
    times = [when - when % unit for unit in UNITS]
    return str(info.st_size) == name.partition(".")[0] and info.st_mtime_ns in times


def _unused(name: str, manifest: Manifest) -> str:
    """A name at the top of the release that nothing of it has."""
    taken = {path.partition("/")[0] for path in manifest}
    while name in taken:
        name += "~"
    return name


def _time(name: str) -> Optional[int]:
    """In ns, or None where the content is named by its hash."""
    when = name.partition(".")[2]
    return int(when) if when else None


def unseal(top: str) -> None:
    """A folder that can't be written can't be filled or removed either. What can't be unsealed
    will say so itself when it is written to."""
    _unseal_one(top)
    for folder, folders, _ in os.walk(top):
        for name in folders:
            _unseal_one(os.path.join(folder, name))


def _unseal_one(folder: str) -> None:
    try:
        if not os.path.islink(folder):
            os.chmod(folder, 0o755)
    except OSError:
        pass


def _read(known: str) -> Dict[str, List[Any]]:
    try:
        with open(known, encoding="utf-8") as file:
            found: Dict[str, List[Any]] = json.load(file)
            return found if isinstance(found, dict) else {}
    except (OSError, ValueError):  # another version of tfdeploy pushed it
        return {}


def _touched(path: str) -> List[int]:
    found = os.lstat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _mode(entry: List[Any]) -> int:
    return 0o555 if entry[2] else 0o444
