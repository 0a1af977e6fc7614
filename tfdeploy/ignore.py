"""Which paths the .gitignore files and hosts.toml's excludes leave out, one path at a time, as git.

pathspec reads the patterns. Its own verdict on a path also counts patterns that match a folder
above it, which git never does: a folder that is left out is never entered, and one that is let in
again lets in nothing but itself. So each path is asked for itself alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER_MARK = "ps_d"  # the group in pathspec's expressions that stands for "within this folder"


@dataclass(frozen=True)
class Ignore:
    """The patterns of one ignore file; `folder` ("" or "a/b/") is where it stands."""

    folder: str
    patterns: tuple[Any, ...]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True to leave `path` out, False to let it in again, None for no word on it."""
        own = path[len(self.folder) :]
        for pattern in reversed(self.patterns):
            if _matches(pattern.regex, own, is_folder):
                return bool(pattern.include)
        return None


def from_gitignore(folder: str, content: bytes) -> Ignore:
    """The patterns of a .gitignore. Lines that are no pattern mean nothing, as they do to git."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape")
    compiled = (_compiled(line.removesuffix("\r")) for line in text.split("\n"))
    return Ignore(folder, tuple(pattern for pattern in compiled if pattern))


def from_excludes(key: str, excludes: Iterable[str]) -> Ignore:
    """The patterns of the `exclude` under `key`. Raises PlanError for one that is none."""
    patterns = []
    for exclude in excludes:
        pattern = _compiled(exclude)
        if pattern is None and exclude.strip() and not exclude.startswith("#"):
            raise PlanError(
                f'{key}.exclude: "{exclude}" is no pattern', "write it as in .gitignore"
            )
        patterns += [pattern] if pattern else []
    return Ignore("", tuple(patterns))


def ignored(path: str, is_folder: bool, ignores: Iterable[Ignore]) -> bool:
    """The ignore file nearest to `path` that has a word on it decides; `ignores` go downwards."""
    verdicts = (ignore.verdict(path, is_folder) for ignore in reversed(list(ignores)))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _compiled(line: str) -> Any:
    try:
        pattern = GitIgnoreSpecPattern(line)
    except ValueError:
        return None
    return pattern if pattern.include is not None else None


def _matches(regex: Any, path: str, is_folder: bool) -> bool:
    if any(_mark(found) < 0 for found in regex.finditer(path)):
        return True
    return is_folder and any(_mark(found) == len(path) for found in regex.finditer(path + "/"))


def _mark(found: Any) -> int:
    """Where the folder that was matched ends, or -1 where the path itself was."""
    position: int = found.start(FOLDER_MARK) if FOLDER_MARK in found.re.groupindex else -1
    return position
