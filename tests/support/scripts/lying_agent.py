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


def answer(tag, **fields):
    data = memoryview((MARK + json.dumps({"tag": tag, **fields}) + "\n").encode())
    while data:
        if not select.select([], [1], [], BLOCKED_S)[1]:
            (FOLDER / "blocked").touch()
        data = data[os.write(1, data[: 1 << 16]) :]


def flood():
    """Send log lines without end, in answers as long as they may be."""
    os.set_blocking(1, False)
    sent = 0
    while True:
        answer("log_lines", task="worker:0", lines=["x" * 99] * 37_000, cursor="c")
        sent += 1
        (FOLDER / "sent").write_text(str(sent))


def silence():
    sys.stdin.read()  # until the connection ends


def words():
    """Refuse with a sentence without end, which looks like several lines of tfdeploy's."""
    text = "\nerror: other: type this:\x1b[2J\u202e " * 80_000
    answer("", refused=text, hint=text, held_by=text)


def failure():
    answer("", failed="\nerror: other: \x1b[2J" * 100_000)


TASK = {"state": "FAILED", "age_s": 1.0, "pid": 1, "exit": 1, "restarts": 0, "reason": "evil"}


def others():
    """Report tasks of other hosts, and of none."""
    names = ("ps:0", "worker:7", "../x:0", "a\nb:1")
    answer("task_reports", tasks=[{**TASK, "task": name} for name in names])


def long():
    """Report a reason that hides all other tasks."""
    answer("task_reports", tasks=[{**TASK, "task": "worker:0", "reason": "x" * (1 << 20)}])


sys.stdin.readline()
lies = (flood, silence, words, failure, others, long)
{lie.__name__: lie for lie in lies}[(FOLDER / "kind").read_text()]()
