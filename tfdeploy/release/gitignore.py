"""Decide as git which paths .gitignore files and the `exclude` of hosts.toml leave out.

It matches each path alone: git never enters an ignored folder, and a folder that is included again
does not include its content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import PlanError
from tfdeploy.release.patterns import Pattern, translate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import PurePath


@dataclass(frozen=True)
class IgnorePatterns:
    """The patterns of one ignore file; `folder` ("" or "a/b/") is the one that contains it."""

    folder: str
    patterns: tuple[Pattern, ...]

    def decide(self, path: str, is_folder: bool) -> bool | None:
        """Return True to leave `path` out, False to include it again, None if nothing matches."""
        relative = path[len(self.folder) :]
        for pattern in reversed(self.patterns):
            if pattern.only_folders <= is_folder and pattern.regex.fullmatch(relative):
                return pattern.include
        return None


def from_gitignore(folder: str, content: bytes) -> IgnorePatterns:
    """Parse a .gitignore. Invalid lines are ignored, as by git."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape")
    patterns = (translate(line.removesuffix("\r")) for line in text.split("\n"))
    return IgnorePatterns(folder, tuple(pattern for pattern in patterns if pattern))


def from_excludes(key: str, excludes: Iterable[str]) -> IgnorePatterns:
    """Parse the `exclude` of the table `key`. Raises PlanError for an invalid pattern."""
    return IgnorePatterns("", tuple(_parse_patterns(f"{key}.exclude", excludes)))


def to_expressions(key: str, patterns: Iterable[str]) -> list[list[Any]]:
    """Return the patterns of `key` as [includes, regular expression] for hosts: the
    last one that matches a file, or a folder that contains it, decides. Raises PlanError for an
    invalid pattern."""
    return [[p.include, p.inside] for p in _parse_patterns(key, patterns)]


def _parse_patterns(key: str, excludes: Iterable[str]) -> list[Pattern]:
    patterns: list[Pattern] = []
    for exclude in excludes:
        pattern = translate(exclude)
        if pattern is None and exclude.strip() and not exclude.startswith("#"):
            raise PlanError(
                f'{key}: "{exclude}" is not a valid pattern', "write it as in .gitignore"
            )
        patterns += [pattern] if pattern else []
    return patterns


def literal(path: str | PurePath) -> str:
    """Return a pattern that matches this path below the root only."""
    return "/" + re.sub(r"([\\\[\]*?!# ])", r"\\\1", str(path))


def is_ignored(path: str, is_folder: bool, ignores: Iterable[IgnorePatterns]) -> bool:
    """Return whether `path` is left out. Of the ignore files that match it, the last one decides;
    `ignores` are in the order from the root down."""
    decisions = (ignore.decide(path, is_folder) for ignore in reversed(list(ignores)))
    return next((decision for decision in decisions if decision is not None), False)
