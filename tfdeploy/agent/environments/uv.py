"""Find uv on this host: the user's own, or the one that the controller sent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from ...shared import TYPE_CHECKING
from .. import paths

if TYPE_CHECKING:
    from typing import Iterator, Tuple

OLDEST = (0, 5)  # older ones lack options that are used
PLACES = ("~/.local/bin/uv", "~/.cargo/bin/uv")  # where its installers put it
TIMEOUT_S = 30.0
VERSION = re.compile(r"uv (\d+)\.(\d+)(\.\d+)?")


def find(project: str, release: str) -> Tuple[str, str]:
    """Return the path and the version of uv, both "" if there is none that runs. `release` is the
    one in which the controller sent it, if it did."""
    for path in _candidates(project, release):
        match = VERSION.match(_version(path))
        if match and (int(match[1]), int(match[2])) >= OLDEST:
            return path, match[0][3:]
    return "", ""


def _candidates(project: str, release: str) -> Iterator[str]:
    on_path = shutil.which("uv")
    if on_path:
        yield on_path
    yield from map(os.path.expanduser, PLACES)
    if release:
        yield os.path.join(paths.release(project, release), "uv")


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")
