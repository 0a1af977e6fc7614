"""Refuse what is too large to be code, unless hosts.toml asks for it: large files, and folders with
many small ones."""

from __future__ import annotations

import json
import posixpath
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.errors import PlanError
from tfdeploy.formatting.humanize import format_size
from tfdeploy.release import gitignore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

MAX_CODE_BYTES = 100_000_000  # of a file, and of all files together
CODE = ".py"  # a folder that has such a file, at any depth, is not data


class SourcePart(NamedTuple):
    """Files of the source: the paths that `pattern` matches. `folder` is the one that could be a
    data set with them, "" for none."""

    name: str
    pattern: str
    folder: str


def refuse_large(sizes: Mapping[str, int], is_asked_for: Callable[[str], bool]) -> None:
    """Raise PlanError for files of more than MAX_CODE_BYTES, and if all the others together have
    more, for the largest folders of them. `sizes` are bytes, by path."""
    if sum(sizes.values()) <= MAX_CODE_BYTES:
        return
    unasked = {path: size for path, size in sizes.items() if not is_asked_for(path)}
    files = [path for path, size in unasked.items() if size > MAX_CODE_BYTES]
    large = {_file(path): [unasked.pop(path)] for path in files}
    large.update(_without_which_the_rest_is_small(unasked))
    if large:
        raise PlanError(_problem(large), _choices([*large]))


def _problem(large: Mapping[SourcePart, Sequence[int]]) -> str:
    shown = ", ".join(
        f"{part.name} ({format_size(sum(sizes))}{f' in {len(sizes):,} files' if sizes[1:] else ''})"
        for part, sizes in large.items()
    )
    are_all_large = all(sum(sizes) > MAX_CODE_BYTES for sizes in large.values())
    problem = "" if are_all_large else f"with {_them([*large])} the source is "
    limit = format_size(MAX_CODE_BYTES)
    return f"{shown}: {problem}larger than {limit}, so not sent unless asked for"


def _choices(large: Sequence[SourcePart]) -> str:
    """Return a hint with what hosts.toml may say about what is too large to be code."""
    folders = sorted({part.folder for part in large} - {""})
    patterns, them = [part.pattern for part in large], _them(large)
    choices = {
        **{f"[data.{json.dumps(folder)}]": "makes the folder a data set" for folder in folders},
        f"exclude = {json.dumps(patterns)}": f"leaves {them} out",
        f"exclude = {json.dumps(['!' + each for each in patterns])}": f"sends {them}",
    }
    width = max(map(len, choices))
    lines = (f"\n    {choice:{width}}  {effect}" for choice, effect in choices.items())
    return "write one of these in hosts.toml, exclude below [source]:" + "".join(lines)


def _them(large: Sequence[SourcePart]) -> str:
    return "it" if len(large) == 1 else "them"


def _without_which_the_rest_is_small(
    sizes: Mapping[str, int],
) -> Iterator[tuple[SourcePart, list[int]]]:
    """Yield the largest parts, with the sizes of their files, until the others have at most
    MAX_CODE_BYTES together."""
    of_code = {folder for path in sizes if path.endswith(CODE) for folder in _above(path)}
    parts: dict[SourcePart, list[int]] = defaultdict(list)
    for path, size in sizes.items():
        parts[_part(path, {"", *of_code})].append(size)
    rest = sum(sizes.values())
    for part, each in sorted(parts.items(), key=lambda item: -sum(item[1])):
        if rest <= MAX_CODE_BYTES:
            return
        rest -= sum(each)
        yield part, each


def _part(path: str, of_code: Collection[str]) -> SourcePart:
    """Return the part that has a file: the whole folder, if it is not `of_code`; beside code, the
    files of the same suffix."""
    folder = next((each for each in _above(path) if each not in of_code), "")
    if folder:
        return SourcePart(f"{folder}/", f"{gitignore.literal(folder)}/", folder)
    suffix = PurePosixPath(path).suffix
    if not suffix:
        return _file(path)
    names = f"*{suffix}"
    beside, escaped = posixpath.dirname(path), gitignore.literal(suffix).removeprefix("/")
    pattern = posixpath.join(gitignore.literal(beside), f"*{escaped}")
    return SourcePart(posixpath.join(beside, names), pattern, "")


def _file(path: str) -> SourcePart:
    return SourcePart(path, gitignore.literal(path), posixpath.dirname(path))


def _above(path: str) -> Iterator[str]:
    """Yield the folders around a file, the outermost first; "" for the root is none."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
