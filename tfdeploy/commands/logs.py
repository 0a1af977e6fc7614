"""`tfdeploy logs`: show the logs of a run's tasks, merged. Ending it does not affect the run."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.protocol.reports import LogLines
from tfdeploy.errors import AgentError, HostError, TfdeployError, UsageError, raise_all
from tfdeploy.formatting import fold_lines
from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.hosts.following import HostIsBack, may_return
from tfdeploy.planning import task_selection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from tfdeploy.agent.protocol.reports import RunEvent
    from tfdeploy.formatting.fold_lines import Block
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Following
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

FOLD_S = 1.0  # lines that are written within this time are folded together
MAX_FOLDED = 500_000  # lines that are kept to be folded
UNKNOWN_VERB = "KeyError: 'select'"


@dataclass(frozen=True)
class NewLines:
    """Lines that a task has written, as it wrote them: with colors, for example."""

    task: str
    host: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """Which lines: of each task the last `lines` (None: all) of those that the regular expression
    `grep` matches ("": all) and that were written in the last `since_s` seconds (None: all)."""

    lines: int | None = None
    grep: str = ""
    since_s: float | None = None

    def __post_init__(self) -> None:
        try:
            re.compile(self.grep)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(
                f'--grep: found "{self.grep:.80}"; expected a regular expression: {error}'
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
    for batch in _batches(fleet, run, tasks, selection, follow, on, on_lost, on_back, None):
        yield from batch


def folded_logs(
    fleet: Fleet,
    run: Run,
    tasks: Sequence[str],
    selection: Selection,
    *,
    follow: bool,
    on: Sequence[str] = (),
    on_lost: Callable[[HostError], None] = lambda error: None,
    on_back: Callable[[str], None] = lambda host: None,
) -> Generator[Block]:
    """As `logs`, but yield lines without colors that tasks have in common once. With `follow`, the
    lines of a second are folded together."""
    names = [str(p.task) for p in task_selection.select_placements(run.plan, tasks, on)]
    every_s = FOLD_S if follow else None
    written: dict[str, list[str]] = {name: [] for name in names}
    count = 0
    batches = _batches(fleet, run, tasks, selection, follow, on, on_lost, on_back, every_s)
    with closing(batches):
        for batch in batches:
            for new in batch:
                written[new.task] += map(plain_text, new.lines)
                count += len(new.lines)
            if follow or count > MAX_FOLDED:
                yield from fold_lines.fold(written)
                written, count = {name: [] for name in names}, 0
    yield from fold_lines.fold(written)


def _batches(
    fleet: Fleet,
    run: Run,
    tasks: Sequence[str],
    selection: Selection,
    follow: bool,
    on: Sequence[str],
    on_lost: Callable[[HostError], None],
    on_back: Callable[[str], None],
    every_s: float | None,
) -> Generator[list[NewLines]]:
    """Yield new lines as they arrive, or all of `every_s` seconds together."""
    placements = task_selection.select_placements(run.plan, tasks, on)
    errors: list[TfdeployError] = []
    batch: list[NewLines] = []
    with _stream(fleet, run, placements, selection, follow) as following:
        for host, event in _ticking(following, every_s):
            if event is None or (batch and every_s is None):
                yield batch
                batch = []
            if isinstance(event, HostError) and follow and may_return(event):
                on_lost(event)
            elif isinstance(event, HostError):
                errors.append(_explain(event))
            elif isinstance(event, HostIsBack):
                on_back(host)
            elif isinstance(event, LogLines):
                batch.append(NewLines(event.task, host, tuple(event.lines)))
        yield batch
    raise_all(errors)


def _stream(
    fleet: Fleet, run: Run, placements: Sequence[Placement], selection: Selection, follow: bool
) -> Following[RunEvent]:
    lines, grep, since_s = selection.lines, selection.grep, selection.since_s
    if grep or since_s is not None:
        return fleet.select_lines(run, placements, lines, grep, since_s, forever=follow)
    return fleet.follow(run, placements, logs=True, lines=lines, forever=follow, announce=False)
