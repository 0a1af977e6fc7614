"""`tfdeploy logs`: the logs of a run's tasks, merged as they come; hanging up harms nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cluster import Task
from tfdeploy.errors import HostError, TfdeployError, raise_all
from tfdeploy.fleet import may_return

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.fleet import Fleet
    from tfdeploy.run import Run


def logs(
    fleet: Fleet,
    run: Run,
    tasks: Sequence[str],
    on_lines: Callable[[str, str, list[str]], None],
    *,
    lines: int | None,
    forever: bool,
    on_lost: Callable[[HostError], None] = lambda error: None,
    on_back: Callable[[str], None] = lambda host: None,
) -> None:
    """Call `on_lines(task, host, lines)` for what is there, and with `forever` for what comes.

    `tasks` are names as `worker:1` (none: all); `lines` limits how many old lines each task shows.
    A host that is lost while it is followed is told to `on_lost`, and to `on_back` when it goes on
    where it was. Raises PlanError for an unknown task, and at the end the errors of the hosts that
    were given up.
    """
    chosen = [run.plan.placement(Task.parse(task)) for task in tasks] or run.plan.placements
    errors: list[TfdeployError] = []
    with fleet.follow(
        run, chosen, logs=True, lines=lines, forever=forever, announce=False
    ) as following:
        for host, event in following.events():
            if isinstance(event, HostError) and forever and may_return(event):
                on_lost(event)
            elif isinstance(event, HostError):
                errors.append(event)
            elif "back" in event:
                on_back(host)
            elif "lines" in event:
                on_lines(event["task"], host, event["lines"])
    raise_all(errors)
