"""Read the source tree or a data set as a Release: what every host gets, named by its content."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.errors import PlanError
from tfdeploy.formatting.humanize import format_size
from tfdeploy.release import by_products, gitignore, ignored, large, placeholders
from tfdeploy.release.ignored import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.release.gitignore import IgnorePatterns
    from tfdeploy.release.ignored import Ignored


# Never part of the source: git's own files, and compiled Python.
ALWAYS_EXCLUDED = (".git", "__pycache__/", "*.pyc")
# Not part of the source unless `exclude` asks for them: their outputs change with each execution.
NOTEBOOKS = ("*.ipynb", ".ipynb_checkpoints/")
MAX_IGNORE_BYTES = 1_000_000  # of a .gitignore file
# A file takes 1.1 kB of memory, on the controller and on each host: 2 GB for this many.
MAX_FILES = 2_000_000
MAX_SLUG = 60  # characters of a place in the name of a folder


@dataclass(frozen=True)
class Release:
    """An immutable copy of the source, or of a data set."""

    KEYS = ("id", "files", "size")
    NAMES: ClassVar = {"size": "bytes"}

    id: str
    """The name of the release: the hash of its content."""
    root: Path
    manifest: Mapping[str, Sequence[str | bool]] = field(repr=False)
    """For each path (POSIX, relative to root) `["file", <content>, <executable>]` or
    `["link", <target>]`. <content> is the file's sha256, or `<size>.<mtime in ns>` in a data set
    that is compared by time. The id is the hash of it: equal trees have equal ids."""
    sizes: Mapping[str, int] = field(repr=False)
    pointers: Sequence[str] = ()
    """The files that are only pointers of Git LFS."""
    submodules: Sequence[str] = ()
    """The folders of submodules that are empty."""

    @property
    def files(self) -> int:
        """The number of its files."""
        return len(self.manifest)

    @property
    def size(self) -> int:
        """Their size in bytes."""
        return sum(self.sizes.values())

    def changed_files(self, paths: Iterable[str]) -> list[str]:
        """Return the files whose size or time has changed since. It checks only those that are
        named by size and time: the receiver verifies a hash itself."""
        return [path for path in paths if self._has_changed(path)]

    def _has_changed(self, path: str) -> bool:
        kind, content = self.manifest[path][:2]
        if kind != "file" or "." not in str(content):
            return False
        try:
            return _stamp(os.lstat(f"{self.root}/{path}")) != content
        except OSError:
            return True


@dataclass(frozen=True)
class _Tree:
    """A tree to read. `key` is its table in hosts.toml, for messages; `is_code`: it is the source,
    not a data set; `name_content` returns the name of a file's content; `excluded_inodes` are
    (device, inode) pairs; `pruned` are patterns of what nothing includes again; `empty_folders` and
    `pointers` of Git LFS are added while it is read."""

    key: str
    root: Path
    exclude: IgnorePatterns
    is_code: bool
    name_content: Callable[[_Tree, str, os.stat_result], str]
    excluded_inodes: Collection[tuple[int, int]] = ()
    pruned: Sequence[str] = ()
    empty_folders: list[str] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)


def take(
    root: Path, exclude: Sequence[str] = (), excluded_inodes: Collection[tuple[int, int]] = ()
) -> Release:
    """Read the tree under `root`, without what git ignores, `exclude` (patterns as in .gitignore)
    and `excluded_inodes` (device, inode) leave out; and without notebooks, other hosts files, and
    pages that tfdeploy wrote, unless a pattern with "!" asks for them.

    Raises PlanError for what can't be the same on every host: a link out of the tree, a name that
    is not UTF-8, a socket or a device; for what is too large to be code (large.py), unless a
    pattern with "!" asks for it; and if the tree is missing or empty.
    """
    patterns = [*ALWAYS_EXCLUDED, *NOTEBOOKS, *exclude]
    top = gitignore.from_excludes("source", patterns)
    return _read(_Tree("source", root, top, True, _hash, excluded_inodes, _final(patterns)))


def _final(patterns: Sequence[str]) -> list[str]:
    """Return the patterns after the last one with a "!"."""
    last = max((at for at, each in enumerate(patterns) if each.startswith("!")), default=-1)
    return [each for each in patterns[last + 1 :] if each.strip() and not each.startswith("#")]


def take_data_set(place: str, root: Path, exclude: Sequence[str], compare: str) -> Release:
    """Read a data set, as `take`, but without .gitignore files. The release's id starts with the
    `place`, which marks the versions of one data set."""
    key = f"data.{place}"
    name_content = _hash if compare == "hash" else _size_and_time
    release = _read(_Tree(key, root, gitignore.from_excludes(key, exclude), False, name_content))
    return replace(release, id=f"{slug(place)}-{release.id}")


def slug(place: str) -> str:
    """Return the place of a data set as the start of its releases' ids; it differs for different
    places."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", place).strip("-")[:MAX_SLUG] or "data"
    return place if name == place else f"{name}-{hashlib.sha256(place.encode()).hexdigest()[:6]}"


def _read(tree: _Tree) -> Release:
    if not tree.root.is_dir():
        raise PlanError(f"{tree.key}.path: {tree.root} is not a folder")
    found = ((path, _info(tree, path)) for path in sorted(_limited(tree, _walk(tree))))
    infos = {
        path: info
        for path, info in found
        if (info.st_dev, info.st_ino) not in tree.excluded_inodes
        and not _is_by_product(tree, path, info)
    }
    _refuse_virtual_environment(tree, infos)
    if tree.is_code:
        _refuse_large(tree, infos)
    if not infos:
        hint = "check exclude and what git ignores" if tree.is_code else "check its exclude"
        raise PlanError(f"{tree.key}.path: {tree.root} has no file to push", hint)
    manifest = {path: _entry(tree, path, info) for path, info in infos.items()}
    sizes = {path: info.st_size for path, info in infos.items()}
    empty = tree.empty_folders
    submodules = placeholders.submodules(tree.root, empty, manifest) if empty else []
    return Release(_id(manifest), tree.root, manifest, sizes, tree.pointers, submodules)


def _limited(tree: _Tree, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths; raise PlanError before there are more than MAX_FILES."""
    for number, path in enumerate(paths):
        if number == MAX_FILES:
            raise PlanError(
                f"{tree.key}.path: {tree.root} has more than {MAX_FILES} files",
                f"exclude what no host needs ({tree.key}.exclude), or pack them into fewer files, "
                "such as TFRecords",
            )
        yield path


def _id(manifest: Mapping[str, Sequence[str | bool]]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Rules:
    """What applies to the entries of a folder: the ignore files, from the root down, and what git
    says about the repository that the folder is in."""

    ignores: tuple[IgnorePatterns, ...] = ()
    git: Ignored = NOTHING

    def leave_out(self, path: str, is_folder: bool) -> bool:
        if path in self.git.tracked:
            return False
        is_ignored = gitignore.is_ignored(path, is_folder, self.ignores)
        return is_ignored or self.git.has(path, is_folder)


def _walk(tree: _Tree) -> Iterator[str]:
    """Yield every file that is not left out; no .gitignore overrides `exclude`."""
    waiting = [("", _rules_of_root(tree))]  # a tree may be deeper than Python's stack
    while waiting:
        for path, is_folder, rules in _entries(tree, *waiting.pop()):
            if is_folder:
                waiting.append((path + "/", rules))
            else:
                yield path


def _rules_of_root(tree: _Tree) -> _Rules:
    if not tree.is_code:
        return _Rules()
    files = map(_read_ignore_file, ignored.without_git(tree.root))
    ignores = (gitignore.from_gitignore("", content) for content in files)
    return _Rules(tuple(ignores), ignored.by_git(tree.root, tree.pruned) or NOTHING)


def _entries(tree: _Tree, folder: str, rules: _Rules) -> Iterator[tuple[str, bool, _Rules]]:
    """Yield the path of each entry of a folder that is not left out, whether it is a folder, and
    the rules that apply to it."""
    try:
        entries = sorted(os.scandir(f"{tree.root}/{folder}"), key=lambda entry: entry.name)
        names = {entry.name for entry in entries} if tree.is_code else set[str]()
        if ".gitignore" in names:
            rules = _with_ignore_file(tree, folder, rules)
    except OSError as error:
        raise _unreadable(tree, os.path.relpath(error.filename, tree.root), error) from None
    if not entries:
        tree.empty_folders.append(folder.rstrip("/"))
    if folder and ".git" in names:
        rules = replace(rules, git=ignored.by_nested(tree.root, folder) or rules.git)
    for entry in entries:
        path, is_folder = folder + entry.name, entry.is_dir(follow_symlinks=False)
        if not tree.exclude.decide(path, is_folder) and not rules.leave_out(path, is_folder):
            yield path, is_folder, rules


def _with_ignore_file(tree: _Tree, folder: str, rules: _Rules) -> _Rules:
    file = tree.root / folder / ".gitignore"
    if not file.is_file() or file.is_symlink():
        return rules
    own = gitignore.from_gitignore(folder, _read_ignore_file(file))
    return replace(rules, ignores=(*rules.ignores, own))


def _read_ignore_file(file: Path) -> bytes:
    with file.open("rb") as content:
        data = content.read(MAX_IGNORE_BYTES + 1)
    if len(data) > MAX_IGNORE_BYTES:
        raise PlanError(f"{file} is larger than {format_size(MAX_IGNORE_BYTES)}")
    return data


def _is_by_product(tree: _Tree, path: str, info: os.stat_result) -> bool:
    # A Path costs more than all else that is done for a file.
    if (
        not tree.is_code
        or not path.lower().endswith(by_products.SUFFIXES)
        or not stat.S_ISREG(info.st_mode)
    ):
        return False
    try:
        found = by_products.is_by_product(tree.root / path)
    except OSError as error:
        raise _unreadable(tree, path, error) from None
    return found and not _is_asked_for(tree, path)


def _is_asked_for(tree: _Tree, path: str) -> bool:
    """Return whether `exclude` has the path, or a folder above it, with a "!"."""
    folders = (str(folder) for folder in PurePosixPath(path).parents)
    decisions = [tree.exclude.decide(path, False), *(tree.exclude.decide(f, True) for f in folders)]
    return False in decisions


def _refuse_virtual_environment(tree: _Tree, paths: Iterable[str]) -> None:
    """Raise PlanError for a folder with a Python of this machine, and with large libraries."""
    for folder, _, name in (path.rpartition("/") for path in paths):
        if folder and name == "pyvenv.cfg":
            raise PlanError(
                f"{folder}/ is a Python virtual environment, which runs only on this machine",
                f'add "{folder}/" to {tree.key}.exclude; [env] builds one on each host',
            )


def _refuse_large(tree: _Tree, infos: Mapping[str, os.stat_result]) -> None:
    sizes = {path: info.st_size for path, info in infos.items() if stat.S_ISREG(info.st_mode)}
    large.refuse_large(sizes, lambda path: _is_asked_for(tree, path))


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
            f"{path} can't be pushed: it is neither a file, a folder nor a link",
            f'add "{path}" to {tree.key}.exclude',
        )
    try:
        content = tree.name_content(tree, path, info)
    except OSError as error:
        raise _unreadable(tree, path, error) from None
    return ["file", content, bool(info.st_mode & stat.S_IXUSR)]


def _target(tree: _Tree, path: str) -> str:
    target = os.readlink(tree.root / path)  # noqa: PTH115 - a Path would normalize the text
    inside = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    if target.startswith("/") or inside == ".." or inside.startswith("../"):
        raise PlanError(
            f"{path} links to {target}, which is outside of {tree.root} and so not on the hosts",
            f'copy it in, or add "{path}" to {tree.key}.exclude',
        )
    return target


def _hash(tree: _Tree, path: str, info: os.stat_result) -> str:
    with open(f"{tree.root}/{path}", "rb") as file:  # noqa: PTH123
        if info.st_size > placeholders.MAX_POINTER_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        content = file.read()
    tree.pointers.extend([path] if content.startswith(placeholders.POINTER) else [])
    return hashlib.sha256(content).hexdigest()


def _size_and_time(tree: _Tree, path: str, info: os.stat_result) -> str:
    if info.st_size in placeholders.USUAL_POINTER_BYTES:
        with open(f"{tree.root}/{path}", "rb") as file:  # noqa: PTH123
            content = file.read(placeholders.MAX_POINTER_BYTES)
        tree.pointers.extend([path] if content.startswith(placeholders.POINTER) else [])
    return _stamp(info)


def _stamp(info: os.stat_result) -> str:
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
