"""Digest the repository's files that a command or a variable names, such as a script.

Trust in `ProxyCommand ./proxy.sh %h` is trust in what the script does now: a later version of the
repository may have another one. Files outside of the repository did not come with it.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 100_000_000  # of a file whose content is read
MAX_PATH = 4096
QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'")
BETWEEN_WORDS = re.compile(r"[\s\"'=;:,|&()<>`$]+")


def digest(text: str, root: Path) -> str:
    """Return the digest of the files below `root` that words of `text` name, "" if there are
    none."""
    found = hashlib.sha256()
    named = sorted(set(_named(text, root)))
    for word, file in named:
        found.update(f"{word}\0{file}\0{_content(file)}\0".encode(errors="surrogateescape"))
    return found.hexdigest() if named else ""


def _named(text: str, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (word, file without links) for each file in the repository. A relative path may be one
    of the current folder, of the repository, or of the home directory."""
    quoted = ("".join(found) for found in QUOTED.findall(text))
    words = {word for word in (*BETWEEN_WORDS.split(text), *quoted) if 0 < len(word) < MAX_PATH}
    folders = {str(folder) for folder in (Path.cwd(), root, Path.home())}
    for word in words:
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
