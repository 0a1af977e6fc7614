"""The verb `start`: start all tasks of this host once, however often the request arrives, and
report what happens to them."""

from __future__ import annotations

import select
import sys
from typing import Iterator, List, Optional

from ...shared import records
from ...shared.protocol.reports import RunEvent, Started
from ...shared.protocol.runs import RunRecord
from ...shared.records import Launch
from .. import paths
from ..environments import versions
from ..machine.devices import nvidia
from ..refusal import Refusal
from ..reports import follow
from . import run_record, start, start_lease


def start_and_follow(
    launches: List[Launch], record: Optional[RunRecord] = None
) -> Iterator[RunEvent]:
    """Start the tasks, as `start_tasks` does, unless the same request has started them already;
    then yield changes of their states until all of them have ended, or until the caller sends its
    next request. Raises Refusal.

    The controller sends a request over a second connection if the first one seems to be lost, so it
    may arrive twice, at the same time or much later. The record that a start stores last shows that
    it has succeeded; each start of a run has another one.
    """
    project, run = launches[0].project, launches[0].run
    sick: List[str] = []
    with start_lease.hold(run):
        if record is None or not run_record.is_stored(project, run, record):
            _refuse_without_caller()
            sick = start.start_tasks(launches, record)
    other_folder = run_record.other_folder(project, run, record) if record else ""
    tasks = [launch.task for launch in launches]
    started = (records.load(Launch, paths.launch(paths.task(project, run, t))) for t in tasks)
    yield Started(nvidia.gpu_count(), other_folder, sick, versions.of_frameworks(started))
    yield from follow.follow(project, run, tasks, False, None, True)


def _refuse_without_caller() -> None:
    """Raise Refusal if the controller has hung up: a request that was delayed by the network must
    not start tasks of which nobody knows."""
    poll = select.poll()
    poll.register(sys.stdin, select.POLLRDHUP)  # POLLHUP is always reported
    if any(event & (select.POLLRDHUP | select.POLLHUP) for _, event in poll.poll(0)):
        raise Refusal("the controller hung up before the start")
