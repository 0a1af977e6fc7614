"""Decide as git which paths .gitignore files and the `exclude` of hosts.toml leave out.

It matches each path alone: git never enters an ignored folder, and a folder that is included again
does not include its content.

Each pattern becomes a regular expression. A star of a plain translation (`.*`) tries every
position, so that several of them never end. Here every star but the last one keeps the first
position at which what follows it fits: that is enough, because no star crosses a slash and what
follows one is as long as its pattern. It is the same for `**` and the folders that follow it. So
the time is the path's length times the pattern's. Python has atomic groups from 3.11 on, and hosts
may have 3.8: a lookahead with a reference to its group does the same.

A "?" and a class match one character; in git, which has no characters, one byte.

Source: gitignore(5); parse_path_pattern() in git's dir.c and dowild() in wildmatch.c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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


# Patterns

T = TypeVar("T")
MAX_CHARACTERS = 4096  # of a path in Linux, and of a pattern here
STAR, STARS, SLASH = "*", "**", "/"  # tokens; any other one is an expression for one character
ANY, ANY_FOLDERS = "(?s:.*)", "(?s:.*/)?"
# git compares what is in front of the first one literally, so that the two stars of "a**/b" are at
# the start of a pattern.
WILDCARD = re.compile(r"[*?\[\\]")
CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "space": r"\t-\r ",
    "punct": r"!-/:-@\[-`{-~", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


class Pattern(NamedTuple):
    """A line of an ignore file. One that does not `include` includes paths in the release again;
    `regex` matches whole paths, and with `only_folders` those of folders."""

    include: bool
    only_folders: bool
    regex: re.Pattern[str]

    @property
    def inside(self) -> str:
        """An expression for the start of a path: it matches what `regex` matches, and all that is
        in such a folder."""
        return self.regex.pattern + (SLASH if self.only_folders else r"(?:/|\Z)")


class InvalidPattern(ValueError):
    """A pattern that matches nothing, such as one with a class that is not closed."""


def translate(line: str) -> Pattern | None:
    """Return the pattern of a line; None for a comment, an empty line, and an invalid one."""
    text = _without_spaces_at_the_end(line)
    if text.startswith("#") or len(text) > MAX_CHARACTERS:
        return None
    rest = text.removeprefix("!")
    path = rest.removesuffix(SLASH)
    try:
        expression = _of_path(path.removeprefix(SLASH)) if SLASH in path else _of_name(path)
    except InvalidPattern:
        return None
    return Pattern(rest == text, rest != path, re.compile(expression))


def _without_spaces_at_the_end(line: str) -> str:
    """Return a line without the spaces at its end, except one after a backslash."""
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return text + " " if backslashes % 2 and text != line else text


def _of_name(name: str) -> str:
    """Return the expression for a name in any folder: here `**` is a star."""
    if not name:
        raise InvalidPattern(name)
    return ANY_FOLDERS + _name(list(_tokens(name)), count())


def _of_path(path: str) -> str:
    """Return the expression for a path: a `**` between slashes is any number of folders."""
    numbers = count()
    start = WILDCARD.split(path, maxsplit=1)[0]
    names = _split(list(_tokens(path[len(start) :])), SLASH)
    first, *pieces = [[_name(name, numbers) for name in piece] for piece in _split(names, [STARS])]
    if not pieces:
        return re.escape(start) + SLASH.join(first)
    *middle, last = pieces
    kept = [_keep_first(f"(?:[^/]*/)*?{_folders(piece)}", numbers) for piece in middle if piece]
    end = ANY_FOLDERS + SLASH.join(last) if last else ANY
    return "".join([re.escape(start), _folders(first), *kept, end])


def _folders(names: list[str]) -> str:
    return "".join(f"{name}/" for name in names)


def _split(tokens: list[T], separator: T) -> list[list[T]]:
    """Split a list at each separator, as str.split does."""
    parts: list[list[T]] = [[]]
    for token in tokens:
        if token == separator:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _name(tokens: list[str], numbers: Iterator[int]) -> str:
    """Return the expression for a name, or a part of one, without slashes."""
    stars = [STAR if token == STARS else token for token in tokens]
    first, *parts = ["".join(part) for part in _split(stars, STAR)]
    if not parts:
        return first
    *middle, last = parts
    kept = [_keep_first(f"[^/]*?{part}", numbers) for part in middle if part]
    return "".join([first, *kept, f"[^/]*{last}"])


def _keep_first(expression: str, numbers: Iterator[int]) -> str:
    """Return an expression that keeps its first match, whatever follows."""
    name = f"first{next(numbers)}"
    return f"(?=(?P<{name}>{expression}))(?P={name})"


def _tokens(text: str) -> Iterator[str]:
    """Yield stars, slashes, and an expression for each other character. Raises InvalidPattern."""
    at = 0
    while at < len(text):
        char = text[at]
        if char == "[":
            token, at = _class(text, at + 1)
        elif char == STAR:
            end = len(text) - len(text[at:].lstrip(STAR))
            token, at = (STARS if end - at > 1 else STAR), end
        elif char == "?":
            token, at = "[^/]", at + 1
        else:
            char, at = _character(text, at)
            token = re.escape(char)
        yield token


def _character(text: str, at: int) -> tuple[str, int]:
    """Return the character at a position, without its backslash, and the position after it.
    Raises InvalidPattern if there is none."""
    at += text.startswith("\\", at)
    if at >= len(text):
        raise InvalidPattern(text)
    return text[at], at + 1


def _class(text: str, at: int) -> tuple[str, int]:
    """Return the expression for a class such as [a-c], whose members start at a position, and the
    position after it. Raises InvalidPattern if it is not closed."""
    negated = text.startswith(("!", "^"), at)
    at += negated
    members, start = list[str](), at
    while at == start or not text.startswith("]", at):
        name = re.compile(r"\[:([^\]]*):\]").match(text, at)
        if name:
            if name[1] not in CLASSES:
                raise InvalidPattern(text)
            members.append(CLASSES[name[1]])
            at = name.end()
            continue
        low, at = _character(text, at)
        members.append(re.escape(low))
        if text.startswith("-", at) and not text.startswith("]", at + 1):
            high, at = _character(text, at + 1)
            members += [f"{re.escape(low)}-{re.escape(high)}"] if low <= high else []
    return f"(?!/)[{'^' if negated else ''}{''.join(members)}]", at + 1
