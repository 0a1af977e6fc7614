"""The source tree as it will be on every host: a Release, named by the hash of its content."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import ignore
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdeploy.ignore import Ignore

# Never part of a release: git's own files, and what Python compiles.
ALWAYS_EXCLUDED = (".git", "__pycache__/", "*.pyc")


@dataclass(frozen=True)
class Release:
    """An immutable snapshot of `root`.

    `manifest` maps each path (POSIX, relative to root) to what must be found there:
    `["file", <sha256>, <executable>]` or `["link", <target>]`. `id` is the hash of the manifest,
    so that the same tree has the same id everywhere. `size` is in bytes.
    """

    id: str
    root: Path
    manifest: Mapping[str, Sequence[str | bool]]
    size: int


def snapshot(root: Path, exclude: Sequence[str] = ()) -> Release:
    """Read the tree under `root`, honouring its .gitignore files and `exclude` (the same patterns).

    Raises PlanError for what can't be the same on every host: a link that leaves the tree,
    a name that is not UTF-8, a socket or a device; and for a root that is missing or empty.
    """
    if not root.is_dir():
        raise PlanError(f"source.path: {root} is not a folder")
    top = ignore.from_excludes([*ALWAYS_EXCLUDED, *exclude])
    paths = sorted(_walk(root, "", top, []))
    if not paths:
        raise PlanError(f"source.path: {root} holds no file to push", "see exclude and .gitignore")
    manifest = {path: _entry(root, path) for path in paths}
    size = sum((root / path).lstat().st_size for path in paths)
    return Release(_id(manifest), root, manifest, size)


def _id(manifest: Mapping[str, Sequence[str | bool]]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _walk(root: Path, folder: str, top: Ignore, ignores: list[Ignore]) -> Iterator[str]:
    """Every file under `folder` that is not left out; what `top` leaves out, nothing lets in."""
    try:
        entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        own = root / folder / ".gitignore"
        if own.is_file() and not own.is_symlink():
            ignores = [*ignores, ignore.from_gitignore(folder, own.read_bytes())]
    except OSError as error:
        raise _unreadable(str(Path(error.filename).relative_to(root)), error) from None
    for entry in entries:
        path, is_folder = folder + entry.name, entry.is_dir(follow_symlinks=False)
        if top.verdict(path, is_folder) or ignore.ignored(path, is_folder, ignores):
            continue
        if is_folder:
            yield from _walk(root, path + "/", top, ignores)
        else:
            yield path


def _entry(root: Path, path: str) -> list[str | bool]:
    _refuse_unprintable(path)
    mode = (root / path).lstat().st_mode
    if stat.S_ISLNK(mode):
        return ["link", _target(root, path)]
    if not stat.S_ISREG(mode):
        raise PlanError(
            f"{path} is neither a file, a folder nor a link, so it can't be pushed",
            f'add "{path}" to source.exclude',
        )
    return ["file", _digest(root, path), bool(mode & stat.S_IXUSR)]


def _target(root: Path, path: str) -> str:
    target = os.readlink(root / path)  # noqa: PTH115 - the text as it is, not a Path made of it
    inside = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    if target.startswith("/") or inside == ".." or inside.startswith("../"):
        raise PlanError(
            f"{path} links to {target}, which is outside of {root} and absent on the hosts",
            f'copy it in, or add "{path}" to source.exclude',
        )
    return target


def _digest(root: Path, path: str) -> str:
    try:
        with (root / path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: OSError) -> PlanError:
    hint = f'change its permissions, or add "{path}" to source.exclude'
    return PlanError(f"{path} can't be read: {error.strerror}", hint)


def _refuse_unprintable(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise PlanError(f"the name {shown} is not UTF-8", "rename or exclude it") from None
