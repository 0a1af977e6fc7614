"""Translate the most frequent patterns of ignore files, such as `build/` and `*.pyc`, as pathspec
does: to import it takes longer than to read a small source tree. Pure."""

from __future__ import annotations

import re

# A name or a path; a slash before means only here, one after means only folders. With one `*`: an
# expression for several tries each position of each.
PLAIN = re.compile(r"(?P<top>/?)(?P<path>[\w.~*-]+(?:/[\w.~*-]+)*)(?P<end>/?)", re.ASCII)
ANYWHERE = "(?:.+/)?"
FOLDER, ENTRY = "(?P<ps_d>/)", "(?:(?P<ps_d>/)|$)"  # as pathspec: "inside this folder"

ALL = {"*": ".", "*/": FOLDER}


def to_expression(line: str) -> str | None:
    """Return pathspec's regular expression for a pattern that is plain, else None."""
    if line in ALL:
        return ALL[line]
    found = PLAIN.fullmatch(line)
    if not found or line.count("*") > 1:
        return None
    start = "^" if found["top"] or "/" in found["path"] else f"^{ANYWHERE}"
    path = "/".join(map(_translate, found["path"].split("/")))
    return f"{start}{path}{FOLDER if found['end'] else ENTRY}"


def _translate(name: str) -> str:
    return "[^/]+" if name == "*" else re.escape(name).replace(r"\*", "[^/]*")
