"""The verb `follow`: what happens to a run's tasks on this host, as it happens, until all ended."""

from __future__ import annotations

import os
import select
import sys
from typing import Any, Dict, Iterator, List, Optional

from . import paths, records, status
from .records import ENDED

POLL_S = 0.15
CHUNK = 256 * 1024


def follow(
    project: str, run: str, tasks: List[str], logs: bool, lines: Optional[int], forever: bool
) -> Iterator[Dict[str, Any]]:
    """Yield `{state: TaskReport}` at each change and `{task, lines}` as logs grow.

    `lines` is how many old lines to begin with (None: all). Ends once every task has ended, or at
    once after what there is where `forever` is false, or when the caller has hung up.
    """
    started = paths.tasks(project, run)  # a start that was refused leaves fewer than were planned
    tasks = [task for task in tasks if task in started]
    tails = [_Tail(task, paths.log(project, run, task), lines) for task in tasks if logs]
    seen: Dict[str, Any] = {}
    while True:
        # States are read before logs and told after them: when a task is said to have ended, all
        # that it wrote has been told.
        reports = {task: status.report(project, run, task) for task in tasks}
        for tail in tails:
            for chunk in tail.read(reports[tail.task].state in ENDED):
                yield {"task": tail.task, "lines": chunk}
        for task, report in reports.items():
            if seen.get(task) != (report.state, report.pid):
                seen[task] = (report.state, report.pid)
                yield {"state": records.to_json(report)}
        ended = all(report.state in ENDED for report in reports.values())
        if ended or not forever or _hung_up(POLL_S):
            return


class _Tail:
    """The whole lines that a growing file gained since the last look."""

    def __init__(self, task: str, path: str, lines: Optional[int]) -> None:
        self.task = task
        self.path = path
        self.rest = b""
        self.position = 0 if lines is None else _position(path, lines)

    def read(self, last: bool) -> Iterator[List[str]]:
        while True:
            chunk = self._chunk()
            whole, newline, self.rest = (self.rest + chunk).rpartition(b"\n")
            text = whole + newline
            if (not chunk and last) or len(self.rest) > CHUNK:
                text, self.rest = text + self.rest, b""
            if text:
                yield text.decode(errors="replace")[: -1 if text.endswith(b"\n") else None].split(
                    "\n"
                )
            if not chunk:
                return

    def _chunk(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                if os.path.getsize(self.path) < self.position:
                    self.position = 0  # the log was cut: what it holds now is new
                file.seek(self.position)
                chunk = file.read(CHUNK)
        except OSError:
            return b""
        self.position += len(chunk)
        return chunk


def _position(path: str, lines: int) -> int:
    """Where the last `lines` lines begin."""
    size, data = status.tail_of(path)
    kept = data.splitlines(keepends=True)[-lines:] if lines else []
    return size - sum(len(line) for line in kept)


def _hung_up(wait_s: float) -> bool:
    """The caller holds our standard input open for as long as it listens."""
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)
