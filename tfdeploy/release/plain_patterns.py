"""Translate the most frequent patterns of ignore files, such as `build/` and `*.pyc`, as pathspec
does: to import it takes longer than to read a small source tree. Pure."""

from __future__ import annotations

import re

# A name or a path without wildcards, or all names with an ending; a slash before means only here,
# one after means only folders.
PLAIN = re.compile(r"(?P<top>/?)(?P<path>[\w.-]+(?:/[\w.-]+)*)(?P<end>/?)", re.ASCII)
ENDING = re.compile(r"\*(?P<path>\.[\w.-]+)(?P<end>/?)", re.ASCII)
ANYWHERE = "(?:.+/)?"
FOLDER, ENTRY = "(?P<ps_d>/)", "(?:(?P<ps_d>/)|$)"  # as pathspec: "inside this folder"


def to_expression(line: str) -> str | None:
    """Return pathspec's regular expression for a pattern that is plain, else None."""
    if line == "*":
        return "."
    if found := ENDING.fullmatch(line):
        start = f"^{ANYWHERE}[^/]*"
    elif found := PLAIN.fullmatch(line):
        start = "^" if found["top"] or "/" in found["path"] else f"^{ANYWHERE}"
    else:
        return None
    return f"{start}{re.escape(found['path'])}{FOLDER if found['end'] else ENTRY}"
