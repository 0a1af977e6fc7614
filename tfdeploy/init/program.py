"""Find the training script in a folder, and the modules of the user that it imports."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.environments import packages
from tfdeploy.errors import InventoryError, TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.planning.frameworks import FRAMEWORKS, TENSORFLOW
from tfdeploy.release import modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.release.modules import Module

USUAL_NAMES = ("train.py", "main.py")
# Files that no one trains with: tests, and what pip and pytest read.
NO_SCRIPT = re.compile(r"test_.*|.*_test|tests?|conftest|setup|__init__")
MAIN = re.compile(r"^if __name__ *==", re.MULTILINE)
MARKS = (".git", "pyproject.toml")  # of the root of a repository
REQUIREMENTS = ("requirements.txt", "uv.lock", "pyproject.toml")
OUTSIDE = re.compile(r"(\.\./|~/)[\w./-]*\w[\w./-]*")  # paths of Python's texts
DEPENDENCIES = re.compile(r"^dependencies *=", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """The training script and its folder.

    `command` runs it from the source folder, which is `source`, relative to the folder of
    hosts.toml. `files` are the script, which comes first, and the modules that it imports, by their
    paths in the source folder. `requirements` is the file that lists its packages, or "".
    `environments` are virtual environments in the source folder.
    """

    script: str
    command: tuple[str, ...]
    source: str
    files: Mapping[str, Module]
    requirements: str = ""
    environments: tuple[str, ...] = ()

    @property
    def unreadable(self) -> str:
        """Return why the script could not be read as Python, "" if it could."""
        return next((module.unreadable for module in self.files.values()), "")

    @property
    def framework(self) -> str:
        """Return the module of its framework: TensorFlow, unless it imports only others."""
        tops = (each.top for module in self.files.values() for each in module.foreign)
        found = [FRAMEWORKS[top] for top in tops if top in FRAMEWORKS]
        return TENSORFLOW if TENSORFLOW in found or not found else found[0]

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the names of its packages; that of its framework is the first."""
        return tuple(dict.fromkeys([self.framework, *packages.find(self.files)]))


def find(folder: Path, wanted: Path | None) -> Program:
    """Return the program whose hosts.toml is to be in `folder`; `wanted` is its script, None to
    look for one. Raises InventoryError if there is none, or several."""
    script = _script(folder, wanted)
    root, source = folder, "."
    command: tuple[str, ...] = ("python", script.relative_to(folder).as_posix())
    if script.parent == folder and _belongs_to_parent(script):
        module = f"{folder.name}.{script.stem}"
        root, command, source = folder.parent, ("python", "-m", module), ".."
    return Program(
        script.relative_to(folder).as_posix(),
        command,
        source,
        modules.read(root, [script.relative_to(root).as_posix()], _files_below(root)),
        _requirements(folder),
        tuple(_environments(root)),
    )


def data_outside(program: Program, folder: Path) -> Iterator[TfdeployError]:
    """Yield a note for each path outside of the folder that the program names and that is here: it
    may be data, which the hosts do not have."""
    for file, module in program.files.items():
        for text in sorted(filter(OUTSIDE.fullmatch, module.syntax.strings)):
            path = folder / os.path.expanduser(text)  # noqa: PTH111 - it may be "../data", too
            if path.exists():
                yield TfdeployError(
                    f"{file} names {text}, which is not sent to the hosts",
                    f"if it is data: name it {path.name} in the script, and add "
                    f'[data.{path.name}] with path = "{text}"',
                )


def _script(folder: Path, wanted: Path | None) -> Path:
    if wanted is not None:
        script = wanted.resolve()
        if not script.is_file():
            raise InventoryError(f"--script: there is no file {wanted}")
        if not script.is_relative_to(folder):
            raise InventoryError(
                f"--script: {wanted} is outside of {folder}, the folder that is sent to the hosts",
                "write hosts.toml beside the script: --hosts FOLDER/hosts.toml",
            )
        if script.suffix == ".ipynb":
            raise InventoryError(
                f"--script: {wanted} is a notebook; expected a Python script",
                f"convert it: jupyter nbconvert --to script {shlex.quote(str(wanted))}",
            )
        return script
    for name in USUAL_NAMES:
        if (folder / name).is_file():
            return folder / name
    files = [f for f in sorted(folder.glob("*.py")) if not NO_SCRIPT.fullmatch(f.stem)]
    files = _not_imported(files) or files
    found = [file for file in files if MAIN.search(modules.text(file))] or files
    if len(found) == 1:
        return found[0]
    names = fold_names(each.name for each in found)
    message = f"{names} could each be the training script" if found else "it has no Python script"
    raise InventoryError(f"{folder}: {message}", "name it: --script FILE")


def _not_imported(files: list[Path]) -> list[Path]:
    """Return the files that none of the others imports."""
    imported: set[str] = set()
    for file in files:
        found = modules.read(file.parent, [file.name], _files_below(file.parent))
        imported |= {*found} - {file.name}
    return [file for file in files if file.name not in imported]


def _files_below(root: Path) -> Callable[[str], bool]:
    return lambda path: (root / path).is_file()


def _belongs_to_parent(script: Path) -> bool:
    """Return whether a script is a module of a package: it imports modules that are in the folder
    around its own, in the same repository."""
    folder = script.parent
    if not folder.name.isidentifier() or not _is_below_root(folder):
        return False
    root, path = folder.parent, f"{folder.name}/{script.name}"
    alone = modules.read(folder, [script.name], _files_below(folder))
    found = modules.read(root, [path], _files_below(root))
    return len([*_outside(found, modules.FOLDERS)]) > len([*_outside(alone, modules.FOLDERS)])


def _outside(paths: Iterable[str], folders: Sequence[str]) -> Iterator[str]:
    return (path for path in paths if path.partition("/")[0] not in folders)


def _is_below_root(folder: Path) -> bool:
    """Return whether the folder around this one belongs to the same repository; see trust/."""
    marked = [each for each in (folder, *folder.parents) if any((each / m).exists() for m in MARKS)]
    return bool(marked) and marked[0] != folder


def _requirements(folder: Path) -> str:
    """Return the file of the folder that lists packages, or ""."""
    present = [name for name in REQUIREMENTS if (folder / name).is_file()]
    project = folder / "pyproject.toml"
    if present == ["pyproject.toml"] and not DEPENDENCIES.search(modules.text(project)):
        return ""
    return next(iter(present), "")


def _environments(root: Path) -> Iterator[str]:
    """Yield the virtual environments in a folder that have no .gitignore file of their own."""
    for mark in sorted(root.glob("*/pyvenv.cfg")):
        if not (mark.parent / ".gitignore").exists():
            yield f"{mark.parent.name}/"
