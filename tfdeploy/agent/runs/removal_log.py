"""Which runs were deleted from this host, when, and by whom: the answer to requests for them."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from ...shared import TYPE_CHECKING, filesystem
from .. import paths
from ..refusal import Refusal

if TYPE_CHECKING:
    from typing import List, Optional

MAX_BYTES = 200_000  # about two thousand runs


def add(project: str, run: str, by: str) -> None:
    """Record that a run is being deleted; not on a disk that is full or read-only."""
    line = json.dumps({"run": run, "at": time.time(), "by": by}).encode() + b"\n"
    with suppress(OSError):
        filesystem.append_line(paths.removals(project), line, MAX_BYTES, _newer_half)


def refusal(project: str, run: str) -> Optional[Refusal]:
    """Return the refusal of a request for a run that was deleted from this host; None for one that
    is stored here, or that never was."""
    if os.path.isdir(paths.run(project, run)):  # also a run that was resumed since then
        return None
    try:
        lines = filesystem.read_bytes(paths.removals(project)).splitlines()
        removals = [json.loads(line) for line in lines]
        last = next(each for each in reversed(removals) if each["run"] == run)
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last["at"]))
        by = " by {}".format(last["by"]) if last["by"] else ""
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
    return Refusal(
        "run {} was deleted from its hosts on {}{}".format(run, day, by),
        "what was collected stays on the controller; tfdeploy runs lists what hosts still have",
    )


def _newer_half(lines: List[bytes]) -> List[bytes]:
    return lines[len(lines) // 2 :]
