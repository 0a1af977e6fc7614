"""The verb `follow`: report state changes, new log lines and new files of a run on this host."""

from __future__ import annotations

import select
import sys
import time

from ...shared import TYPE_CHECKING
from ...shared.protocol.reports import LogLines, NewCheckpoint, NewOutputs, StateChange
from ...shared.records import ENDED
from .. import paths
from . import status

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Union

    from ...shared.protocol.reports import RunEvent
    from ...shared.records import TaskReport
    from ..outputs.checkpoints import CheckpointWatch
    from ..outputs.listing import OutputWatch
    from .logs.selected_lines import SelectedLines
    from .logs.tail import Tail

    Log = Union[Tail, SelectedLines]

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
) -> Iterator[RunEvent]:
    """Yield events of `tasks` until all of them have ended: changes of their states, lines of their
    logs if `logs` is true, new checkpoints and other files of `chief`.

    `chief` is "" if the chief does not run on this host. A log starts at the task's cursor; without
    one, it starts with its last `lines` lines (None: all). If older lines are skipped, the first
    event of that log has no lines and only reports the cursor.

    Ends after one pass if `forever` is false. Also ends when the caller sends its next request or
    closes the connection.
    """
    follower = Follower(project, run, tasks, chief)
    if logs:
        follower.open_logs(lines, cursors or {})
    if lines is not None:
        yield from follower.cursors()
    yield from follow_to_end(follower, forever)


def follow_to_end(follower: Follower, forever: bool) -> Iterator[RunEvent]:
    """Yield what is new again and again, until `follow` has to end."""
    start = time.monotonic()
    while True:
        yield from follower.poll()
        poll_s = _poll_s(time.monotonic() - start)
        if follower.ended or not forever or caller_interrupts(poll_s):
            return


class Follower:
    """What was reported of a run's tasks. `tasks` are those that have started, `tails` their logs;
    `ended` is true after all of them have ended."""

    def __init__(self, project: str, run: str, tasks: List[str], chief: str) -> None:
        started = paths.tasks(project, run)  # a refused start leaves fewer tasks than the plan has
        self.ended = False
        self._project, self._run, self._chief = project, run, chief
        self.tasks = [task for task in tasks if task in started]
        self.tails: List[Log] = []
        self._saves: Optional[CheckpointWatch] = None
        self._outputs: Optional[OutputWatch] = None
        self._reported: Dict[str, Any] = {}
        if chief in started:
            from ..outputs import checkpoints, listing  # only the chief's host needs them

            self._saves = checkpoints.CheckpointWatch(project, run, chief)
            self._outputs = listing.OutputWatch(project, run, chief)

    def open_logs(self, lines: Optional[int], cursors: Dict[str, str]) -> None:
        from .logs.tail import Tail  # a start follows no log

        for task in self.tasks:
            path = paths.log(self._project, self._run, task)
            self.tails.append(Tail(task, path, lines, cursors.get(task)))

    def cursors(self) -> Iterator[RunEvent]:
        return (_lines_event(tail, []) for tail in self.tails)

    def poll(self) -> Iterator[RunEvent]:
        """Yield what is new.

        States are read before logs and reported after them: when a task is reported as ended, all
        that it wrote has been reported.
        """
        reports = {task: status.report(self._project, self._run, task) for task in self.tasks}
        for tail in self.tails:
            for chunk in tail.read(reports[tail.task].state in ENDED):
                yield _lines_event(tail, chunk)
        chief_ended = self._chief in reports and reports[self._chief].state in ENDED
        for name in self._saves.poll(chief_ended) if self._saves else ():
            yield NewCheckpoint(name)
        if self._outputs and self._outputs.poll():
            yield NewOutputs(True)
        yield from self._state_events(reports)
        self.ended = all(report.state in ENDED for report in reports.values())

    def _state_events(self, reports: Dict[str, TaskReport]) -> Iterator[RunEvent]:
        """Yield changes oldest first, so that no task seems to fail before its root cause."""
        for task, report in sorted(reports.items(), key=lambda item: -item[1].age_s):
            change = (report.state, report.pid, report.restarts)
            if self._reported.get(task) != change:
                self._reported[task] = change
                yield StateChange(report)


def _lines_event(tail: Log, lines: List[str]) -> LogLines:
    return LogLines(tail.task, lines, tail.cursor)


def _poll_s(elapsed_s: float) -> float:
    """Poll often at first, when a user waits for tasks to become READY."""
    return min(POLL_S, FIRST_POLL_S + elapsed_s / 16)


def caller_interrupts(wait_s: float) -> bool:
    """Wait, or return early if the caller sends its next request, which is not read here."""
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable)
