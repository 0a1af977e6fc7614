"""Find the modules of the user that scripts import, and what all of them import from elsewhere."""

from __future__ import annotations

import posixpath
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.release import syntax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tfdeploy.release.syntax import Import, Syntax

MAX_MODULES = 100
MAX_BYTES = 1_000_000
MAIN = "__main__"  # of a package: its import runs a program
FOLDERS = ("src", "lib")  # that programs often add to Python's path


@dataclass(frozen=True)
class Module:
    """A Python file of a program: what its text has, and `foreign`, its imports of what is not in
    the source tree. `unreadable` says why the text is no Python of the controller's version."""

    syntax: Syntax
    foreign: tuple[Import, ...] = ()
    unreadable: str = ""


def read(root: Path, scripts: Iterable[str], has: Callable[[str], bool]) -> dict[str, Module]:
    """Return the scripts, then each module that they import, directly or through another one, by
    their paths below `root`. `has` returns whether a path is a file of the source tree."""
    waiting = list(dict.fromkeys(scripts))
    first = list(dict.fromkeys(_above(path)[0] for path in waiting))
    folders = list(dict.fromkeys(folder for path in waiting for folder in _above(path)))
    added: list[str] = []
    found: dict[str, Module] = {}
    while waiting and len(found) < MAX_MODULES:
        path = waiting.pop(0)
        try:
            content = syntax.read(text(root / path))
        except SyntaxError as error:
            found[path] = Module(syntax.Syntax(), (), f"line {error.lineno}: {error.msg}")
            continue
        added += [posixpath.join(f, word) for f in folders for word in content.added_folders]
        foreign = []
        for each in content.imports:
            places = first if each.top in sys.stdlib_module_names else [*folders, *FOLDERS, *added]
            own = [*_files(each, _above(path)[:1] if each.level else places, has)]
            is_foreign = not own and not each.level and MAIN not in each.full_name.split(".")
            foreign += [each] if is_foreign else []
            waiting += [file for file in own if file not in found and file not in waiting]
        found[path] = Module(content, tuple(foreign))
    return found


def text(file: Path) -> str:
    """Return the text of a Python file, "" if it can't be read."""
    try:
        with file.open("rb") as content:
            return content.read(MAX_BYTES).decode(errors="replace").removeprefix("\ufeff")
    except OSError:
        return ""


def _above(path: str) -> list[str]:
    """Return the folder of a file and the folders around it, the last one is "" for the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _files(each: Import, folders: Iterable[str], has: Callable[[str], bool]) -> Iterator[str]:
    """Yield the files that an import runs: the packages around the module, and the module."""
    words = each.full_name.split(".")
    up = "../" * (each.level - 1)
    for folder in folders:
        for count in range(1, len(words) + 1):
            path = posixpath.normpath(posixpath.join(folder, up, *words[:count]))
            files = () if path.startswith("../") else (f"{path}.py", f"{path}/__init__.py")
            yield from filter(has, files)
