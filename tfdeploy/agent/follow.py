"""The verb `follow`: what happens to a run's tasks on this host, as it happens, until all ended."""

from __future__ import annotations

import select
import sys
import time

from . import TYPE_CHECKING, checkpoints, paths, records, status
from .records import ENDED
from .tail import Tail

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    from .records import TaskReport

POLL_S = 0.15
FIRST_POLL_S = 0.02


def follow(
    project: str,
    run: str,
    tasks: List[str],
    logs: bool,
    lines: Optional[int],
    forever: bool,
    cursors: Optional[Dict[str, str]] = None,
    chief: str = "",
) -> Iterator[Dict[str, Any]]:
    """Yield `{state: TaskReport}` at each change, `{task, lines, cursor}` as logs grow, and
    `{checkpoint: name}` when this host's `chief` ("": none) has a new one that is whole.

    A task's log goes on at its cursor, or begins with its last `lines` old lines (None: all); where
    that leaves some out, its first `lines` are empty and only tell the cursor. Ends once every task
    has ended, or at once after what there is where `forever` is false, or when the caller says
    something else or has hung up.
    """
    started = paths.tasks(project, run)  # a start that was refused leaves fewer than were planned
    tasks = [task for task in tasks if task in started]
    tails = [_tail(project, run, task, lines, cursors or {}) for task in tasks if logs]
    saves = checkpoints.Saves(project, run, chief) if chief in started else None
    yield from (_told(tail, []) for tail in tails if lines is not None)
    seen: Dict[str, Any] = {}
    began = time.monotonic()
    while True:
        # States are read before logs and told after them: when a task is said to have ended, all
        # that it wrote has been told.
        reports = {task: status.report(project, run, task) for task in tasks}
        for tail in tails:
            for chunk in tail.read(reports[tail.task].state in ENDED):
                yield _told(tail, chunk)
        for name in saves.new() if saves else ():
            yield {"checkpoint": name}
        yield from _changed(reports, seen)
        ended = all(report.state in ENDED for report in reports.values())
        if ended or not forever or _called(_poll_s(time.monotonic() - began)):
            return


def _changed(reports: Dict[str, TaskReport], seen: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """What changed first is told first, so that nobody seems to have failed before its cause."""
    for task, report in sorted(reports.items(), key=lambda item: -item[1].age_s):
        change = (report.state, report.pid, report.restarts)
        if seen.get(task) != change:
            seen[task] = change
            yield {"state": records.to_json(report)}


def _tail(project: str, run: str, task: str, lines: Optional[int], cursors: Dict[str, str]) -> Tail:
    return Tail(task, paths.log(project, run, task), lines, cursors.get(task))


def _told(tail: Tail, lines: List[str]) -> Dict[str, Any]:
    return {"task": tail.task, "lines": lines, "cursor": tail.cursor}


def _poll_s(so_far_s: float) -> float:
    """At first somebody waits for a task to be READY."""
    return min(POLL_S, FIRST_POLL_S + so_far_s / 16)


def _called(wait_s: float) -> bool:
    """The caller is silent while it listens. What it says is for the next to read."""
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable)
