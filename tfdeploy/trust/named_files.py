"""Digest the repository's files that a command or a variable names, such as a script.

Trust in `ProxyCommand ./proxy.sh %h` is trust in what the script does now: a later version of the
repository may have another one. Files outside of the repository did not come with it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 100_000_000  # of a file whose content is read
MAX_PATH = 4096
MAX_LINE = 10_000  # characters with quotes in them that are read as a shell reads them
QUOTING = re.compile(r"[\"'\\]")
OPERATORS = re.compile(r"[ \t\r;|&()<>]+")  # between the words of a shell
BETWEEN_WORDS = re.compile(r"[\s\"'=;:,|&()<>`$]+")
HOME = re.compile(r"\$HOME\b|\$\{HOME\}|%d")
CURRENT = re.compile(r"\$PWD\b|\$\{PWD\}")
TOKEN = re.compile(r"\[%[A-Za-z]\]|%[A-Za-z]")  # of ssh_config(5), such as %h
TOKEN_IN_PATH = re.compile(r"/[^\s\"']*%|%[^\s\"']*/")
# What makes other words of those that are written: variables, tokens, wildcards, braces, ~+.
UNCLEAR = re.compile(r"[$%*?`]|\[(?!\s)|\{(?!\s)|~(?![/\s]|$)")


def digest(text: str, root: Path) -> str:
    """Return the digest of the files below `root` that words of `text` name, "" if there are
    none."""
    found = hashlib.sha256()
    named = sorted(set(_named(text, root)))
    for word, file in named:
        found.update(f"{word}\0{file}\0{_content(file)}\0".encode(errors="surrogateescape"))
    return found.hexdigest() if named else ""


def is_unclear(command: str) -> bool:
    """Return whether a command may name other files than `digest` finds."""
    text = _expand(command)
    if len(text) > MAX_LINE or TOKEN_IN_PATH.search(text):
        return True
    try:
        shlex.split(text)
    except ValueError:  # a quote without end
        return True
    return bool(UNCLEAR.search(TOKEN.sub("", text)))


def _expand(text: str) -> str:
    """Return a text with the home directory, and "." for the current folder, in place of their
    variables and of ssh's %d."""
    home = str(Path.home())
    return CURRENT.sub(".", HOME.sub(lambda _: home, text))


def _words(text: str) -> set[str]:
    """Return the words of a text, and those that a shell makes of it: it joins the parts of
    ./pr""oxy.sh, and a quoted word may be a command itself."""
    found, waiting = set[str](), _expand(text).split("\n")
    while waiting:
        part = waiting.pop()
        found.update((part, *OPERATORS.split(part), *BETWEEN_WORDS.split(part)))
        if len(part) <= MAX_LINE and QUOTING.search(part):
            with suppress(ValueError):  # a quote without end
                waiting += shlex.split(part)
    return {word for word in found if 0 < len(word) < MAX_PATH}


def _named(text: str, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (word, file without links) for each file in the repository. A relative path may be one
    of the current folder, of the repository, or of the home directory."""
    folders = {str(folder) for folder in (Path.cwd(), root, Path.home())}
    for word in _words(text):
        for path in {os.path.join(each, os.path.expanduser(word)) for each in folders}:  # noqa: PTH111, PTH118
            if _is_file(path):
                file = Path(os.path.normpath(path))
                if file.is_relative_to(root) or file.resolve().is_relative_to(root):
                    yield word, file.resolve()


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113 - Path's takes three times as long
    except ValueError:
        return False


def _content(file: Path) -> str:
    """Return the hash of a file; of one that is large or can't be read, its size and time."""
    info = file.stat()
    try:
        if info.st_size <= MAX_BYTES:
            with file.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        pass
    return f"{info.st_size}.{info.st_mtime_ns}"
