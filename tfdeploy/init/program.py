"""Find the training script in a folder, and the modules of the user that it imports."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import InventoryError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.init import syntax

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tfdeploy.init.syntax import Syntax

USUAL_NAMES = ("train.py", "main.py")
MAIN = re.compile(r"^if __name__ *==", re.MULTILINE)
MARKS = (".git", "pyproject.toml")  # of the root of a repository
MAX_MODULES = 100
MAX_BYTES = 1_000_000
REQUIREMENTS = ("requirements.txt", "uv.lock", "pyproject.toml")
DEPENDENCIES = re.compile(r"^dependencies *=", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """The training script and its folder.

    `command` runs it from the source folder, which is `source`, relative to the folder of
    hosts.toml. `files` has what the script and the modules that it imports have, by their paths;
    `unreadable` says why the script could not be read as Python. `requirements` is the file that
    lists its packages, or "". `environments` are virtual environments in the source folder.
    """

    script: str
    command: tuple[str, ...]
    source: str
    files: Mapping[str, Syntax]
    unreadable: str = ""
    requirements: str = ""
    environments: tuple[str, ...] = ()


def find(folder: Path, wanted: Path | None) -> Program:
    """Return the program whose hosts.toml is to be in `folder`; `wanted` is its script, None to
    look for one. Raises InventoryError if there is none, or several."""
    script = _script(folder, wanted)
    root, source = folder, "."
    command: tuple[str, ...] = ("python", script.relative_to(folder).as_posix())
    modules, unreadable = {script.name: syntax.Syntax()}, ""
    try:
        own = syntax.read(_text(script))
        if script.parent == folder and _belongs_to_parent(own, folder):
            module = f"{folder.name}.{script.stem}"
            root, command, source = folder.parent, ("python", "-m", module), ".."
        modules = dict(_modules(script, own, root))
    except SyntaxError as error:
        unreadable = f"line {error.lineno}: {error.msg}"
    return Program(
        script.relative_to(folder).as_posix(),
        command,
        source,
        modules,
        unreadable,
        _requirements(folder),
        tuple(_environments(root)),
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
        return script
    for name in USUAL_NAMES:
        if (folder / name).is_file():
            return folder / name
    found = [each for each in sorted(folder.glob("*.py")) if MAIN.search(_text(each))]
    if len(found) == 1:
        return found[0]
    names = fold_names(each.name for each in found)
    message = f"{names} could each be the training script" if found else "there is no train.py"
    raise InventoryError(f"{folder}: {message}", "name it: --script FILE")


def _text(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return content.read(MAX_BYTES).decode(errors="replace").removeprefix("\ufeff")
    except OSError:
        return ""


def _belongs_to_parent(own: Syntax, folder: Path) -> bool:
    """Return whether the script is a module of a package: it imports modules that are in the
    folder around its own, in the same repository."""
    if not folder.name.isidentifier() or not _is_below_root(folder):
        return False
    tops = {name.partition(".")[0] for name in own.imports} - {*sys.stdlib_module_names}
    missing = [top for top in sorted(tops) if not _file(folder, top)]
    return any(_file(folder.parent, top) for top in missing)


def _is_below_root(folder: Path) -> bool:
    """Return whether the folder around this one belongs to the same repository; see trust/."""
    marked = [each for each in (folder, *folder.parents) if any((each / m).exists() for m in MARKS)]
    return bool(marked) and marked[0] != folder


def _file(root: Path, module: str) -> Path | None:
    """Return the file of a module, or of a package, below a folder."""
    path = root / module.replace(".", "/")
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    if path.is_dir() and not candidates[1].exists() and any(path.glob("*.py")):
        return path  # a package without __init__.py
    return next((file for file in candidates if file.is_file()), None)


def _modules(script: Path, own: Syntax, root: Path) -> Iterator[tuple[str, Syntax]]:
    """Yield the path and the content of the script, then of each module that it imports, directly
    or through another one."""
    waiting, seen = [(script, own)], {script}
    while waiting and len(seen) <= MAX_MODULES:
        path, content = waiting.pop(0)
        yield path.relative_to(root).as_posix() if path != script else script.name, content
        for name in content.imports:
            file = _file(script.parent, name) or _file(root, name)
            if file and file.is_file() and file not in seen:
                seen.add(file)
                try:
                    waiting.append((file, syntax.read(_text(file))))
                except SyntaxError:  # the script may never import it
                    continue


def _requirements(folder: Path) -> str:
    """Return the file of the folder that lists packages, or ""."""
    present = [name for name in REQUIREMENTS if (folder / name).is_file()]
    project = folder / "pyproject.toml"
    if present == ["pyproject.toml"] and not DEPENDENCIES.search(_text(project)):
        return ""
    return next(iter(present), "")


def _environments(root: Path) -> Iterator[str]:
    """Yield the virtual environments in a folder that have no .gitignore file of their own."""
    for mark in sorted(root.glob("*/pyvenv.cfg")):
        if not (mark.parent / ".gitignore").exists():
            yield f"{mark.parent.name}/"
