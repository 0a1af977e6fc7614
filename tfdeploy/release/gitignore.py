"""Decide as git which paths .gitignore files and the `exclude` of hosts.toml leave out.

pathspec parses the patterns. Its own decision about a path also counts patterns that match a folder
above it. Git does not: it never enters an ignored folder, and a folder that is included again does
not include its content. So this module matches each path alone.

pathspec's expression for `*a*a*b` tries every position of every star: a pattern with 40 stars takes
longer than anyone waits. Here each star but the last of a name takes the first position that fits,
which is enough: what follows a star has a fixed length, and no star crosses a slash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tfdeploy.errors import PlanError
from tfdeploy.release import plain_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import PurePath

FOLDER_GROUP = "ps_d"  # the group in pathspec's expressions for "inside this folder"
STAR = "[^/]*"
CLASS = r"\[(?!\^/\]\*)\^?\]?(?:\\.|[^\]\\])*\]"  # [abc], also the [^/] of a "?", but no star
ONE_CHARACTER = rf"(?:\\.|{CLASS}|[^\\()\[\]|^$?*+.{{}}/])"
STARRED = re.compile(rf"{re.escape(STAR)}({ONE_CHARACTER}+)(?={re.escape(STAR)})")


class Pattern(NamedTuple):
    """A line of an ignore file. One that does not `include` includes paths in the release again."""

    include: bool
    regex: re.Pattern[str]


@dataclass(frozen=True)
class IgnorePatterns:
    """The patterns of one ignore file; `folder` ("" or "a/b/") is the one that contains it."""

    folder: str
    patterns: tuple[Pattern, ...]

    def decide(self, path: str, is_folder: bool) -> bool | None:
        """Return True to leave `path` out, False to include it again, None if nothing matches."""
        relative = path[len(self.folder) :]
        for pattern in reversed(self.patterns):
            if _matches(pattern.regex, relative, is_folder):
                return pattern.include
        return None


def from_gitignore(folder: str, content: bytes) -> IgnorePatterns:
    """Parse a .gitignore. Invalid lines are ignored, as by git."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape")
    patterns = (_compile(line.removesuffix("\r")) for line in text.split("\n"))
    return IgnorePatterns(folder, tuple(pattern for pattern in patterns if pattern))


def from_excludes(key: str, excludes: Iterable[str]) -> IgnorePatterns:
    """Parse the `exclude` of the table `key`. Raises PlanError for an invalid pattern."""
    return IgnorePatterns("", tuple(_parse_patterns(f"{key}.exclude", excludes)))


def to_expressions(key: str, patterns: Iterable[str]) -> list[list[Any]]:
    """Return the patterns of `key` as [includes, regular expression] for hosts, which have no
    pathspec: the last one that matches a file, or a folder that contains it, decides. Raises
    PlanError for an invalid pattern."""
    return [[p.include, p.regex.pattern] for p in _parse_patterns(key, patterns)]


def _parse_patterns(key: str, excludes: Iterable[str]) -> list[Pattern]:
    patterns: list[Pattern] = []
    for exclude in excludes:
        pattern = _compile(exclude)
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


def _compile(line: str) -> Pattern | None:
    if not line or line.startswith("#"):
        return None
    if plain := plain_patterns.to_expression(line):
        return Pattern(True, re.compile(plain))
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    try:
        pattern = GitIgnoreSpecPattern(line)
    except ValueError:
        return None
    if pattern.include is None or pattern.regex is None:
        return None
    return Pattern(pattern.include, re.compile(_without_backtracking(pattern.regex.pattern)))


def _without_backtracking(expression: str) -> str:
    """Let each star that another one follows keep its first match.

    That is an atomic group, which Python has from 3.11 on; hosts may have 3.8, where a lookahead
    with a reference to its group does the same.
    """
    while STAR + STAR in expression:
        expression = expression.replace(STAR + STAR, STAR)
    numbers = count()

    def keep_first(starred: re.Match[str]) -> str:
        name = f"star{next(numbers)}"
        one = re.sub(CLASS, r"(?!/)\g<0>", starred[1])  # a class does not match a slash, in git
        return f"(?=(?P<{name}>{STAR}?{one}))(?P={name})"

    return STARRED.sub(keep_first, expression)


def _matches(regex: re.Pattern[str], path: str, is_folder: bool) -> bool:
    if any(_folder_end(match) < 0 for match in regex.finditer(path)):
        return True
    return is_folder and any(
        _folder_end(match) == len(path) for match in regex.finditer(path + "/")
    )


def _folder_end(match: re.Match[str]) -> int:
    """Return the position at which the matched folder ends, or -1 if the path itself matched."""
    end: int = match.start(FOLDER_GROUP) if FOLDER_GROUP in match.re.groupindex else -1
    return end
