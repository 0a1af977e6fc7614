"""Takes the place of an agent's `__main__.py` on a host that lies. `kind`, beside it, says how."""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
MARK = "tfdeploy-answer:"
BLOCKED_S = 1.0


def answer(message):
    data = memoryview((MARK + json.dumps(message) + "\n").encode())
    while data:
        if not select.select([], [1], [], BLOCKED_S)[1]:
            (FOLDER / "blocked").touch()
        data = data[os.write(1, data[: 1 << 16]) :]


def flood():
    """Send log lines without end, in answers as long as they may be."""
    os.set_blocking(1, False)
    sent = 0
    while True:
        answer({"task": "worker:0", "lines": ["x" * 99] * 37_000, "cursor": "c"})
        sent += 1
        (FOLDER / "sent").write_text(str(sent))


def silence():
    sys.stdin.read()  # until the connection ends


sys.stdin.readline()
{"flood": flood, "silence": silence}[(FOLDER / "kind").read_text()]()
