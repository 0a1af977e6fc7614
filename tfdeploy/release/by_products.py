"""Recognize tfdeploy's own files in a source tree: hosts files, and pages."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".toml", ".html")  # that they have, in any case
MARK = b'<meta name="generator" content="tfdeploy">'  # near the start of a page
START_BYTES = 4096  # in which the mark is
MAX_TOML_BYTES = 16_000_000  # no hosts file is larger (config/inventory.py)
HOSTS_FILE_KEYS = {"project", "training", "hosts"}


def is_by_product(file: Path) -> bool:
    """Return whether this file is a hosts file or a page that tfdeploy wrote. Raises OSError."""
    suffix = file.suffix.lower()
    if suffix == ".toml":
        return is_hosts_file(file)
    if suffix == ".html":
        with file.open("rb") as content:
            return MARK in content.read(START_BYTES)
    return False


def is_hosts_file(file: Path) -> bool:
    """Return whether a file has the tables of a hosts file. Raises OSError."""
    with file.open("rb") as opened:
        content = opened.read(MAX_TOML_BYTES)
    if b"hosts" not in content:  # a large file of another kind takes long to parse
        return False
    try:
        return tomllib.loads(content.decode("utf-8-sig")).keys() >= HOSTS_FILE_KEYS
    except (ValueError, RecursionError):  # not TOML, so no hosts file
        return False
