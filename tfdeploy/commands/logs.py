"""`tfdeploy logs`: show the logs of a run's tasks, merged. Ending it does not affect the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.protocol.reports import LogLines
from tfdeploy.errors import HostError, TfdeployError, raise_all
from tfdeploy.hosts.following import HostIsBack, may_return
from tfdeploy.planning import task_selection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run


@dataclass(frozen=True)
class NewLines:
    """Lines that a task has written, as it wrote them: with colors, for example."""

    task: str
    host: str
    lines: tuple[str, ...]


def logs(
    fleet: Fleet,
    run: Run,
    tasks: Sequence[str],
    *,
    lines: int | None,
    follow: bool,
    on: Sequence[str] = (),
    on_lost: Callable[[HostError], None] = lambda error: None,
    on_back: Callable[[str], None] = lambda host: None,
) -> Generator[NewLines]:
    """Yield the existing lines of logs, and with `follow` new ones, until all tasks have ended.

    `tasks` and `on` are as in planning/task_selection.py (empty: all tasks); `lines` limits the
    number of old lines of each task. With `follow`, `on_lost` is called when a host is lost and
    `on_back` when it answers again; its log continues where it was. Raises PlanError if no task is
    selected, and at the end the errors of the hosts that were given up.
    """
    placements = task_selection.select_placements(run.plan, tasks, on)
    errors: list[TfdeployError] = []
    with fleet.follow(
        run, placements, logs=True, lines=lines, forever=follow, announce=False
    ) as following:
        for host, event in following.events():
            if isinstance(event, HostError) and follow and may_return(event):
                on_lost(event)
            elif isinstance(event, HostError):
                errors.append(event)
            elif isinstance(event, HostIsBack):
                on_back(host)
            elif isinstance(event, LogLines):
                yield NewLines(event.task, host, tuple(event.lines))
    raise_all(errors)
