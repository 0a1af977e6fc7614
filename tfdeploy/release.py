"""A tree as it will be on every host, the source or a data set: a Release, named by its content."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy import ignore
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.ignore import Ignore

# Never part of the source: git's own files, and what Python compiles.
ALWAYS_EXCLUDED = (".git", "__pycache__/", "*.pyc")
SLUG = 60  # letters of a place in the name of a folder


@dataclass(frozen=True)
class Release:
    """An immutable snapshot of `root`.

    `manifest` maps each path (POSIX, relative to root) to what must be found there:
    `["file", <content>, <executable>]` or `["link", <target>]`. The content is named by its sha256,
    in a data set that is compared by time by `<size>.<mtime in ns>`. `id` is the hash of the
    manifest, so that the same tree has the same id everywhere. `sizes` are in bytes.
    """

    id: str
    root: Path
    manifest: Mapping[str, Sequence[str | bool]]
    sizes: Mapping[str, int]

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(self.sizes.values())

    def changed(self, paths: Iterable[str]) -> list[str]:
        """The files that no longer have the size and time that name them. Whoever receives one that
        is named by its hash sees for himself."""
        return [path for path in paths if self._has_changed(path)]

    def _has_changed(self, path: str) -> bool:
        kind, content = self.manifest[path][:2]
        if kind != "file" or "." not in str(content):
            return False
        try:
            return _size_and_time(self.root, os.lstat(f"{self.root}/{path}")) != content
        except OSError:
            return True


@dataclass(frozen=True)
class _Tree:
    """What is read. `key` is its table in hosts.toml, where whoever is refused can change it;
    `named` gives the name of a file's content."""

    key: str
    root: Path
    exclude: Ignore
    has_gitignores: bool
    named: Callable[[Path, os.stat_result], str]


def snapshot(root: Path, exclude: Sequence[str] = ()) -> Release:
    """Read the tree under `root`, honouring its .gitignore files and `exclude` (the same patterns).

    Raises PlanError for what can't be the same on every host: a link that leaves the tree,
    a name that is not UTF-8, a socket or a device; and for a root that is missing or empty.
    """
    top = ignore.from_excludes("source", [*ALWAYS_EXCLUDED, *exclude])
    return _taken(_Tree("source", root, top, True, _hash))


def data_set(place: str, root: Path, exclude: Sequence[str], compare: str) -> Release:
    """As `snapshot`, of all that is under `root` but `exclude`. Its id begins with the `place`, so
    that it is known as the next version of the one before."""
    key, slug = f"data.{place}", _slug(place)
    named = _hash if compare == "hash" else _size_and_time
    made = _taken(_Tree(key, root, ignore.from_excludes(key, exclude), False, named))
    return replace(made, id=f"{slug}-{made.id}")


def _slug(place: str) -> str:
    """The place, as a name of a folder can begin; no two places begin alike."""
    slug = re.sub(r"[^A-Za-z0-9_]+", "-", place).strip("-")[:SLUG] or "data"
    return place if slug == place else f"{slug}-{hashlib.sha256(place.encode()).hexdigest()[:6]}"


def _taken(tree: _Tree) -> Release:
    if not tree.root.is_dir():
        raise PlanError(f"{tree.key}.path: {tree.root} is not a folder")
    infos = {path: _info(tree, path) for path in sorted(_walk(tree, "", []))}
    if not infos:
        hint = "see exclude and .gitignore" if tree.has_gitignores else "see its exclude"
        raise PlanError(f"{tree.key}.path: {tree.root} holds no file to push", hint)
    manifest = {path: _entry(tree, path, info) for path, info in infos.items()}
    return Release(_id(manifest), tree.root, manifest, {p: i.st_size for p, i in infos.items()})


def _id(manifest: Mapping[str, Sequence[str | bool]]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _walk(tree: _Tree, folder: str, ignores: list[Ignore]) -> Iterator[str]:
    """Every file under `folder` that isn't left out; what `exclude` leaves out, nothing lets in."""
    try:
        entries = sorted(os.scandir(tree.root / folder), key=lambda entry: entry.name)
        own = tree.root / folder / ".gitignore"
        if tree.has_gitignores and own.is_file() and not own.is_symlink():
            ignores = [*ignores, ignore.from_gitignore(folder, own.read_bytes())]
    except OSError as error:
        raise _unreadable(tree, os.path.relpath(error.filename, tree.root), error) from None
    for entry in entries:
        path, is_folder = folder + entry.name, entry.is_dir(follow_symlinks=False)
        if tree.exclude.verdict(path, is_folder) or ignore.ignored(path, is_folder, ignores):
            continue
        if is_folder:
            yield from _walk(tree, path + "/", ignores)
        else:
            yield path


def _info(tree: _Tree, path: str) -> os.stat_result:
    _refuse_unprintable(path)
    try:
        return os.lstat(f"{tree.root}/{path}")
    except OSError as error:
        raise _unreadable(tree, path, error) from None


def _entry(tree: _Tree, path: str, info: os.stat_result) -> list[str | bool]:
    if stat.S_ISLNK(info.st_mode):
        return ["link", _target(tree, path)]
    if not stat.S_ISREG(info.st_mode):
        raise PlanError(
            f"{path} is neither a file, a folder nor a link, so it can't be pushed",
            f'add "{path}" to {tree.key}.exclude',
        )
    try:
        content = tree.named(tree.root / path, info)
    except OSError as error:
        raise _unreadable(tree, path, error) from None
    return ["file", content, bool(info.st_mode & stat.S_IXUSR)]


def _target(tree: _Tree, path: str) -> str:
    target = os.readlink(tree.root / path)  # noqa: PTH115 - the text as it is, not a Path made of it
    inside = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    if target.startswith("/") or inside == ".." or inside.startswith("../"):
        raise PlanError(
            f"{path} links to {target}, which is outside of {tree.root} and absent on the hosts",
            f'copy it in, or add "{path}" to {tree.key}.exclude',
        )
    return target


def _hash(file: Path, info: os.stat_result) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _size_and_time(file: Path, info: os.stat_result) -> str:
    return f"{info.st_size}.{info.st_mtime_ns}"


def _unreadable(tree: _Tree, path: str, error: OSError) -> PlanError:
    hint = f'change its permissions, or add "{path}" to {tree.key}.exclude'
    return PlanError(f"{path} can't be read: {error.strerror}", hint)


def _refuse_unprintable(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise PlanError(f"the name {shown} is not UTF-8", "rename or exclude it") from None
