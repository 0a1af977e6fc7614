"""What a clone has in place of files that it did not fetch: pointers of Git LFS, and the empty
folders of submodules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

# Source: the specification of Git LFS.
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
MAX_POINTER_BYTES = 1024
USUAL_POINTER_BYTES = range(126, 141)  # without extensions
MODULES = ".gitmodules"
MAX_MODULES_BYTES = 1_000_000
PATH = re.compile(r'^\s*path\s*=\s*"?(.+?)"?\s*$', re.MULTILINE)


def submodules(root: Path, empty_folders: Iterable[str], files: Collection[str]) -> list[str]:
    """Return which of these folders below `root` a .gitmodules file calls a submodule: one of these
    `files`, or that of the repository around `root`."""
    empty = sorted(empty_folders)
    own = (file for file in files if f"/{file}".endswith(f"/{MODULES}"))
    found = {path for file in own for path in _paths(root / file, file.removesuffix(MODULES))}
    top = next((each for each in root.parents if (each / ".git").exists()), None)
    if top is not None and MODULES not in files:
        start = f"{root.relative_to(top).as_posix()}/"
        paths = _paths(top / MODULES, "")
        found |= {path.removeprefix(start) for path in paths if path.startswith(start)}
    return [folder for folder in empty if folder in found]


def _paths(file: Path, folder: str) -> Iterator[str]:
    """Yield the paths of a .gitmodules file in the folder "a/b/"."""
    try:
        with file.open("rb") as content:
            text = content.read(MAX_MODULES_BYTES).decode(errors="replace")
    except OSError:
        return
    yield from (folder + match[1].rstrip("/") for match in PATH.finditer(text))
