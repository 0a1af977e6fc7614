"""Read requirements: a requirements.txt with the files that it includes, a pyproject.toml, a
uv.lock, or the list in hosts.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.config import toml_text
from tfdeploy.errors import PlanError
from tfdeploy.shared.uv_and_pip import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdeploy.config.inventory import Inventory

LOCK = "uv.lock"
PROJECT = "pyproject.toml"
MAX_FILE_BYTES = 10_000_000
MAX_FILES = 100
KEY = "env.requirements"
COMMENT = re.compile(r"(^|\s)#.*$")
OPTION = re.compile(r"(--?[a-z-]+?)(?:[ =]\s*|(?<=^-[rcfie]))(.*)")
INCLUDES = {"-r": False, "--requirement": False, "-c": True, "--constraint": True}
FOLDERS = ("-f", "--find-links")
# What a path can look like; an absolute path is one of the host.
RELATIVE_PATH = re.compile(
    r"\.{1,2}(/|$)|~|[\w.+-]+(/[\w.+-]*)+$|[\w+-][\w./+-]*\.(whl|zip|tar\.gz)$"
)


@dataclass(frozen=True)
class Requirements:
    """What an environment has: `lines` and `constraints` as in requirements files, without comments
    and includes; or `locked`, the texts of uv.lock and its pyproject.toml by their names."""

    lines: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    locked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Line:
    """A logical line of `file`; `number` is where it starts."""

    file: Path
    number: int
    text: str

    @property
    def place(self) -> str:
        return f"{KEY}: {self.file.name}, line {self.number}"


def read(inventory: Inventory) -> Requirements:
    """Read the requirements of [env]. Raises PlanError, with the file and the line."""
    listed = inventory.env.requirements if inventory.env else ()
    if isinstance(listed, tuple):
        return Requirements(listed)
    path = inventory.absolute(listed)
    if path.name == LOCK:
        return Requirements(locked={p.name: _text(p) for p in _lock_and_project(path)})
    if path.name == PROJECT:
        return Requirements(_dependencies(path))
    lines: dict[bool, list[str]] = {False: [], True: []}
    for is_constraint, line in _walk(path):
        if not _included(line):
            lines[is_constraint].append(_without_local_path(line))
    return Requirements(tuple(lines[False]), tuple(lines[True]))


def files(inventory: Inventory) -> Iterator[Path]:
    """Yield the files that `read` reads, as far as they can be read. Raises nothing."""
    if inventory.env is None or isinstance(inventory.env.requirements, tuple):
        return
    path = inventory.absolute(inventory.env.requirements)
    yield from _lock_and_project(path) if path.name == LOCK else (path,)
    if path.name not in (LOCK, PROJECT):
        try:
            for _, line in _walk(path):
                included = _included(line)
                if included:
                    yield included[1]
        except PlanError:
            return


def _lock_and_project(lock: Path) -> tuple[Path, Path]:
    return lock, lock.with_name(PROJECT)


def _walk(top: Path) -> Iterator[tuple[bool, _Line]]:
    """Yield (whether it is a constraint, line) for each line of a file and of those that it
    includes, the including line first. A file is read once for each of its two meanings."""
    waiting, seen = [(False, top)], set[tuple[bool, Path]]()
    while waiting:
        is_constraint, path = waiting.pop(0)
        if (is_constraint, path) in seen:
            continue
        seen.add((is_constraint, path))
        if len(seen) > MAX_FILES:
            raise PlanError(f"{KEY}: {top.name} includes more than {MAX_FILES} files")
        for line in _lines(path):
            yield is_constraint, line
            included = _included(line)
            if included:
                waiting.append((is_constraint or included[0], included[1]))


def _included(line: _Line) -> tuple[bool, Path] | None:
    """Return whether a line includes a file of constraints, and the file; None for other lines."""
    option = OPTION.fullmatch(line.text)
    if not option or option[1] not in INCLUDES:
        return None
    return INCLUDES[option[1]], (line.file.parent / option[2].strip().strip("\"'")).absolute()


def _lines(path: Path) -> Iterator[_Line]:
    """Yield the logical lines of a requirements file, as pip reads them: a backslash at the end
    joins two lines, and " #" starts a comment."""
    start, parts = 0, list[str]()
    for number, line in enumerate([*_text(path).splitlines(), ""], 1):
        start = start if parts else number
        is_comment = line.lstrip().startswith("#")
        parts.append("" if is_comment else line.removesuffix("\\"))
        if line.endswith("\\") and not is_comment:
            continue
        text = COMMENT.sub("", "".join(parts)).strip()
        parts = []
        if text:
            yield _Line(path, start, " ".join(text.split()))


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            found = "is not a file" if path.exists() else "does not exist"
            hint = f'for packages, write a list: {KEY.split(".")[1]} = ["{path.name}"]'
            raise PlanError(f"{KEY}: {path} {found}", hint if not path.suffix else "")
        with path.open("rb") as content:
            data = content.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise PlanError(f"{KEY}: {path} is larger than 10 MB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise PlanError(f"{KEY}: {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{KEY}: {path} is not UTF-8") from None


def _without_local_path(line: _Line) -> str:
    """Return the text of a line. Raises PlanError if it names a file or folder of the controller,
    which is not on the hosts."""
    option = OPTION.fullmatch(line.text)
    name, value = (option[1], option[2]) if option else ("", line.text.split(" ")[0].split("[")[0])
    is_folder = name in FOLDERS and not value.startswith("/") and "://" not in value
    is_path = name == "" and "://" not in value and RELATIVE_PATH.match(value)
    if name in ("-e", "--editable") or is_folder or is_path:
        raise PlanError(
            f"{line.place}: {clean(line.text)} is a path on the controller, which the "
            "hosts do not have",
            "push the code as source, and name packages of an index, or absolute paths on the "
            "hosts",
        )
    return line.text


def _dependencies(path: Path) -> tuple[str, ...]:
    """Return [project] dependencies of a pyproject.toml."""
    try:
        project = toml_text.parse(_text(path)).get("project", {})
    except toml_text.InvalidToml as error:
        raise PlanError(f"{KEY}: {path}: {error}") from None
    if not isinstance(project, dict):
        raise PlanError(f"{KEY}: {path}: project is not a table")
    dependencies, dynamic = project.get("dependencies", []), project.get("dynamic", [])
    if not isinstance(dynamic, list):
        raise PlanError(f"{KEY}: {path}: project.dynamic is not a list")
    if "dependencies" in dynamic:
        raise PlanError(
            f"{KEY}: the dependencies of {path.name} are dynamic: only a build knows them",
            "write them into a requirements.txt",
        )
    if not isinstance(dependencies, list) or not all(isinstance(d, str) for d in dependencies):
        raise PlanError(f"{KEY}: project.dependencies of {path.name} is not a list of texts")
    return tuple(" ".join(dependency.split()) for dependency in dependencies)
