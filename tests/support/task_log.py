"""A task's log: what tests write into it and read from it."""

from __future__ import annotations

import os
from pathlib import Path

from tfdeploy.agent.supervision.log import Buffers

SMALL = 1 << 12
# These tests read what was flushed: a busy machine must not cut the flush short.
PATIENT = Buffers(flush_s=60.0)
FEW_BYTES = PATIENT._replace(chunk_bytes=SMALL)


def contents(log):
    """Return the content of the older and of the newer file."""
    return [Path(path).read_bytes() if os.path.exists(path) else b""
            for path in (log.path + ".1", log.path)]  # fmt: skip


def write(log, *parts):
    for part in parts:
        view = part
        while view:
            view = view[os.write(log.descriptor, view) :]
    log.flush()
