"""`tfdeploy logs`: show the logs of a run's tasks, merged. Ending it does not affect the run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, HostError, PlanError, TfdeployError, raise_all
from tfdeploy.formatting import fold_lines
from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.hosts.streams.following import HostIsBack, may_return
from tfdeploy.planning import task_selection
from tfdeploy.shared.protocol.reports import LogLines

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from datetime import datetime, timedelta

    from tfdeploy.formatting.fold_lines import Block
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.streams.following import Following
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import RunEvent

UNKNOWN_VERB = "KeyError: 'select'"


@dataclass(frozen=True)
class NewLines:
    """Lines that a task has written, as it wrote them: with colors, for example."""

    task: str
    host: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """The last `lines` existing lines of each log (None: all), of those that the regular expression
    `grep` matches ("": all) and that were written since `since`: a time of the host's clock, or a
    duration until now (None: all).

    Raises PlanError if the pattern is invalid.
    """

    lines: int | None = None
    grep: str = ""
    since: timedelta | datetime | None = None

    def __post_init__(self) -> None:
        try:
            re.compile(self.grep)
        except (re.error, OverflowError, RecursionError) as error:
            raise PlanError(
                f'--grep: found "{self.grep:.60}"; expected a regular expression: {error}'
            ) from None


def logs(
    fleet: Fleet,
    run: Run,
    tasks: Sequence[str],
    selection: Selection,
    *,
    follow: bool,
    on: Sequence[str] = (),
    on_lost: Callable[[HostError], None] = lambda error: None,
    on_back: Callable[[str], None] = lambda host: None,
) -> Generator[NewLines]:
    """Yield the existing lines of logs, and with `follow` new ones, until all tasks have ended.

    `tasks` and `on` are as in planning/task_selection.py (empty: all tasks). With `follow`,
    `on_lost` is called when a host is lost and `on_back` when it answers again; its log continues
    where it was. Raises PlanError if no task is selected, and at the end the errors of the hosts
    that were given up.
    """
    placements = task_selection.select_placements(run.plan, tasks, on)
    errors: list[TfdeployError] = []
    with _stream(fleet, run, placements, selection, follow=follow) as following:
        for host, event in following.events():
            if isinstance(event, HostError) and follow and may_return(event):
                on_lost(event)
            elif isinstance(event, HostError):
                errors.append(_explain(event))
            elif isinstance(event, HostIsBack):
                on_back(host)
            elif isinstance(event, LogLines):
                yield NewLines(event.task, host, tuple(event.lines))
    raise_all(errors)


def fold(run: Run, new: Sequence[NewLines], on_limit: Callable[[], None]) -> list[Block]:
    """Return the lines, without colors, in blocks: those that tasks have in common once. Calls
    `on_limit` if logs differ in too many lines to be folded."""
    written: dict[str, list[str]] = {str(p.task): [] for p in run.plan.placements}
    for each in new:
        written[each.task] += map(plain_text, each.lines)
    return fold_lines.fold(written, on_limit)


def _stream(
    fleet: Fleet, run: Run, placements: Sequence[Placement], selection: Selection, *, follow: bool
) -> Following[RunEvent]:
    lines, grep, since = selection.lines, selection.grep, selection.since
    if grep or since is not None:
        return fleet.select_lines(run, placements, lines, grep, since, forever=follow)
    return fleet.follow(run, placements, logs=True, lines=lines, forever=follow, announce=False)


def _explain(error: HostError) -> HostError:
    """Return the error of a host; one that an agent without the verb gives says so."""
    if isinstance(error, AgentError) and UNKNOWN_VERB in error.message:
        return AgentError(
            error.host,
            "an older tfdeploy started this run, and its agent can't select lines",
            "leave out --grep and --since: tfdeploy logs | grep PATTERN",
        )
    return error
