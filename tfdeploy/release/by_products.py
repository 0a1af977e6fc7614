"""Recognize by their content files that are beside the code and not part of it: hosts files, and
the pages and plots that tfdeploy wrote.

Each of them changes without a change of the code. As part of a release, it would make a new one.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MARKS = {
    ".html": b'<meta name="generator" content="tfdeploy">',
    ".svg": b"<dc:title>tfdeploy</dc:title>",
    ".png": b"Software\0tfdeploy",
}
"""What tfdeploy writes near the start of its pages and plots, by their suffix."""
START_BYTES = 4096  # in which the mark is
MAX_TOML_BYTES = 16_000_000  # no hosts file is larger (config/inventory.py)
HOSTS_FILE_KEYS = {"project", "training", "hosts"}


def is_by_product(file: Path) -> bool:
    """Return whether this file is a hosts file, a page or a plot. Raises OSError."""
    suffix = file.suffix.lower()
    if suffix == ".toml":
        with file.open("rb") as content:
            return _is_hosts_file(content.read(MAX_TOML_BYTES))
    if suffix in MARKS:
        with file.open("rb") as content:
            return MARKS[suffix] in content.read(START_BYTES)
    return False


def _is_hosts_file(content: bytes) -> bool:
    if b"hosts" not in content:  # a large file of another kind takes long to parse
        return False
    try:
        return tomllib.loads(content.decode("utf-8-sig")).keys() >= HOSTS_FILE_KEYS
    except (ValueError, RecursionError):  # not TOML, so no hosts file
        return False
