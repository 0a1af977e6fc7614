"""The stream of a run on this host: state changes, log lines and new files, or samples."""

from __future__ import annotations

import select
import sys
import time
from contextlib import suppress
from itertools import chain
from typing import Any, Dict, Iterator, List, Optional, Union

from ...shared.protocol.reports import LogLines, NewCheckpoint, NewOutputs, RunEvent, StateChange
from ...shared.records import ENDED, TaskReport
from .. import paths
from ..outputs import checkpoints, listing
from ..outputs.checkpoints import CheckpointWatch
from ..outputs.listing import OutputWatch
from ..refusal import Refusal
from . import status
from .samples import Sampler
from .tail import SelectedLines, Tail, matcher

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
    grep: str = "",
    samples: bool = False,
) -> Iterator[RunEvent]:
    """Yield events of `tasks` until all of them have ended: changes of their states, lines of their
    logs if `logs` is true, new checkpoints and other files of `chief`; or samples.

    `chief` is "" if the chief does not run on this host. A log starts at the task's cursor; without
    one, it starts with its last `lines` lines (None: all). If older lines are skipped, the first
    event of that log has no lines and only reports the cursor.

    Ends after one pass if `forever` is false. Also ends when the caller sends its next request or
    closes the connection. Raises Refusal for a pattern that cannot be used.
    """
    if samples:
        return _to_end(Sampler(project, run, tasks, chief, lines or 0, cursors or {}), forever)
    follower = Follower(project, run, tasks, chief)
    if logs:
        follower.open_logs(lines, cursors or {}, grep)
    begin = follower.cursors() if lines is not None and not grep else iter(())
    return chain(begin, _to_end(follower, forever))


def _to_end(source: Union[Follower, Sampler], forever: bool) -> Iterator[RunEvent]:
    """Yield what is new again and again, until `follow` has to end."""
    try:
        while True:
            yield from source.poll()
            if source.ended or not forever or caller_interrupts(source.pause_s()):
                return
    finally:
        source.close()


class Follower:
    """What was reported of a run's tasks. `tasks` are those that have started, `logs` their logs;
    `ended` is true after all of them have ended."""

    def __init__(self, project: str, run: str, tasks: List[str], chief: str) -> None:
        started = paths.tasks(project, run)  # a refused start leaves fewer tasks than the plan has
        self.ended = False
        self._project, self._run, self._chief = project, run, chief
        self.tasks = [task for task in tasks if task in started]
        self.logs: List[Log] = []
        self._started_s = time.monotonic()
        self._saves: Optional[CheckpointWatch] = None
        self._outputs: Optional[OutputWatch] = None
        self._reported: Dict[str, Any] = {}
        self._problems: Dict[str, str] = {}
        if chief in started:
            with suppress(Refusal):  # its launch can't be read; `status` says it
                self._saves = checkpoints.CheckpointWatch(project, run, chief)
            self._outputs = listing.OutputWatch(project, run, chief)

    def open_logs(self, lines: Optional[int], cursors: Dict[str, str], grep: str) -> None:
        """Open the logs, with `grep` for the lines that match: of those that exist now, the last
        `lines`. A cursor continues where an earlier request ended: then there is no limit."""
        select = matcher(grep) if grep else None
        for task in self.tasks:
            limit = None if task in cursors else lines
            path = paths.log(self._project, self._run, task)
            tail = Tail(task, path, None if select else limit, cursors.get(task))
            self.logs.append(SelectedLines(tail, select, limit) if select else tail)

    def cursors(self) -> Iterator[RunEvent]:
        return (_lines_event(log, []) for log in self.logs)

    def poll(self) -> Iterator[RunEvent]:
        """Yield what is new.

        States are read before logs and reported after them: when a task is reported as ended, all
        that it wrote has been reported.
        """
        reports = {task: status.report(self._project, self._run, task) for task in self.tasks}
        for log in self.logs:
            for chunk in log.read(reports[log.task].state in ENDED):
                yield _lines_event(log, chunk)
            note = status.new_problem(reports[log.task], self._problems)
            if note:
                yield _lines_event(log, note)
        chief_ended = self._chief in reports and reports[self._chief].state in ENDED
        for name in self._saves.poll(chief_ended) if self._saves else ():
            yield NewCheckpoint(name)
        if self._outputs and self._outputs.poll():
            yield NewOutputs(True)
        yield from self._state_events(reports)
        self.ended = all(report.state in ENDED for report in reports.values())

    def pause_s(self) -> float:
        """Poll often at first, when a user waits for tasks to become READY."""
        return min(POLL_S, FIRST_POLL_S + (time.monotonic() - self._started_s) / 16)

    def close(self) -> None:
        """Do nothing: no process has to end."""

    def _state_events(self, reports: Dict[str, TaskReport]) -> Iterator[RunEvent]:
        """Yield changes oldest first, so that no task seems to fail before its root cause. What a
        task imports is a change, too: it may be READY before."""
        for task, report in sorted(reports.items(), key=lambda item: -item[1].age_s):
            change = (report.state, report.pid, report.restarts, len(report.versions))
            if self._reported.get(task) != change:
                self._reported[task] = change
                yield StateChange(report)


def _lines_event(log: Log, lines: List[str]) -> LogLines:
    return LogLines(log.task, lines, log.cursor)


def caller_interrupts(wait_s: float) -> bool:
    """Wait, or return early if the caller sends its next request, which is not read here."""
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable)
