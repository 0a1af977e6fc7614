"""Samples of a run's tasks and of this host, at a limited cost.

A sample is taken every second, or as rarely as its own CPU time demands: watching uses less than
CPU_SHARE of one core, and nvidia-smi less than its own share (machine/devices/nvidia.py).
"""

from __future__ import annotations

import os
import time
from typing import Dict, Iterator, List, Optional, Tuple

from ...shared import parallel, state_file
from ...shared.protocol.reports import HostSample, LogLines, TaskUse
from ...shared.records import ENDED
from .. import paths
from ..machine import stored
from ..refusal import Refusal
from . import status, usage
from .tail import HISTORY_BYTES, Tail

EVERY_S = 1.0
CPU_SHARE = 0.007
MAX_PAUSE_S = 10.0  # the controller takes a longer silence for a lost host
MAX_LINES = 50  # of each log in a sample
MAX_CHARS = 400  # of each line
SKIP_BYTES = 1 << 18  # if a log gains more between two samples, only its end is read


def next_pause_s(cpu_s: float) -> float:
    """Return the pause after a sample that used so much CPU time. Pure."""
    return min(MAX_PAUSE_S, max(EVERY_S, cpu_s / CPU_SHARE))


class Sampler:
    """What was sampled of a run's tasks. `ended` is true after all of them have ended. Each log
    continues at its cursor, or starts with its last `lines` lines."""

    def __init__(
        self,
        project: str,
        run: str,
        tasks: List[str],
        chief: str,
        lines: int,
        cursors: Dict[str, str],
    ) -> None:
        started = paths.tasks(project, run)
        self.ended = False
        self._project, self._run = project, run
        self._tasks = [task for task in tasks if task in started]
        self._chief = chief if chief in started else ""
        self._processes = usage.ProcessTable(project, run)
        self._host = usage.HostTable()
        self._counted_s: Optional[float] = None
        self._problems: Dict[str, str] = {}
        self._logs = [
            _NewestLines(task, paths.log(project, run, task), lines, cursors.get(task))
            for task in self._tasks
        ]

    def poll(self) -> Iterator[HostSample]:
        """Take a sample.

        States are read before logs: when a task is reported as ended, so are its last lines.
        """
        reports = parallel.each(
            lambda task: status.report(self._project, self._run, task, probe=True), self._tasks
        )
        has_ended = {report.task: report.state in ENDED for report in reports}
        self.ended = all(has_ended.values())
        used = self._processes.read()
        logs = [log.read(has_ended[log.task]) for log in self._logs]
        of_task = {report.task: report for report in reports}
        for log in logs:
            log.lines += status.new_problem(of_task[log.task], self._problems)
        checkpoint, age_s = self._checkpoint()
        yield HostSample(
            host=self._host.read(),
            tasks=[TaskUse(report, *used.get(report.task, (0.0, 0))) for report in reports],
            logs=[log for log in logs if log.lines],
            checkpoint=checkpoint,
            checkpoint_age_s=age_s,
        )

    def pause_s(self) -> float:
        """Return the pause until the next sample, by the CPU time since the call before."""
        before_s, self._counted_s = self._counted_s, time.process_time()
        if before_s is None:  # the first sample also loads modules
            return EVERY_S
        return next_pause_s(self._counted_s - before_s)

    def close(self) -> None:
        self._host.close()

    def _checkpoint(self) -> Tuple[Optional[str], Optional[float]]:
        """Return the chief's newest checkpoint and its age; None if there is none."""
        if not self._chief:
            return None, None
        task_dir = paths.task(self._project, self._run, self._chief)
        try:
            launch = stored.launch(task_dir)
        except Refusal:
            return None, None
        return newest_checkpoint(paths.checkpoints(task_dir, launch.directory.checkpoint_dir))


def newest_checkpoint(folder: str) -> Tuple[Optional[str], Optional[float]]:
    """Return the name and the age of the checkpoint that the state file of `folder` names first."""
    for name in state_file.read(folder)[:1]:
        try:
            changed = os.stat(os.path.join(folder, name + ".index")).st_mtime
        except OSError:  # it was deleted, or belongs to another folder
            continue
        return name, max(0.0, time.time() - changed)
    return None, None


class _NewestLines:
    """The newest lines of one log, however fast it grows."""

    def __init__(self, task: str, path: str, lines: int, cursor: Optional[str]) -> None:
        self.task = task
        self._path = path
        self._size = _size(path)
        self._tail = Tail(task, path, lines, cursor, HISTORY_BYTES)

    def read(self, last: bool) -> LogLines:
        size = _size(self._path)
        if size - self._size > SKIP_BYTES:
            self._tail = Tail(self.task, self._path, MAX_LINES, history_bytes=HISTORY_BYTES)
        self._size = size
        lines = [line for chunk in self._tail.read(last) for line in chunk]
        newest = [shorten(line) for line in lines[-MAX_LINES:]]
        return LogLines(self.task, newest, self._tail.cursor)


def shorten(line: str) -> str:
    """Return the part of a long line that is worth seeing: the start, or the end of a progress bar,
    which rewrites its line. Pure."""
    return line[-MAX_CHARS:] if "\r" in line or "\b" in line else line[:MAX_CHARS]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
