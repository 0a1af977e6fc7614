"""`tfdeploy logs`: show the logs of a run's tasks, merged. Ending it does not affect the run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.errors import PlanError, raise_all
from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.planning import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from tfdeploy.errors import HostError
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import LogLines


@dataclass(frozen=True)
class NewLines:
    """Lines that a task has written, as it wrote them: with colors, for example."""

    task: str
    host: str
    lines: tuple[str, ...]

    def plain(self) -> Iterator[LogLine]:
        """Yield them one by one, without colors."""
        for line in self.lines:
            yield LogLine(self.task, self.host, plain_text(line))


@dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    NAMES: ClassVar = {"text": "line"}

    task: str
    """The task that wrote it."""
    host: str
    """The task's host."""
    text: str
    """The line without colors."""


def logs(
    fleet: Fleet,
    run: Run,
    tasks: Sequence[str] = (),
    *,
    lines: int | None = None,
    grep: str = "",
    follow: bool = False,
    on: Sequence[str] = (),
    on_lost: Callable[[HostError], None] = lambda error: None,
    on_back: Callable[[str], None] = lambda host: None,
) -> Generator[NewLines]:
    """Yield the existing lines of logs, and with `follow` new ones, until all tasks have ended.

    Existing ones are the last `lines` of each log (None: all), of those that the regular expression
    `grep` matches ("": all). `tasks` and `on` are as in planning/plan.py (empty: all
    tasks). With `follow`, `on_lost` is called when a host is lost and `on_back` when it answers
    again; its log continues where it was. Raises PlanError if no task is selected or the pattern is
    invalid, and at the end the errors of the hosts that were given up.
    """
    _refuse_invalid(grep)
    placements = plan.select_placements(run.plan, tasks, on)
    new = _Lines(on_lost if follow else None, on_back)
    with fleet.follow(
        run, placements, logs=True, lines=lines, grep=grep, forever=follow, announced=False
    ) as following:
        for host, event in following.events():
            new.dispatch(host, event)
            yield from new.pop()
    raise_all(new.errors)


def _refuse_invalid(grep: str) -> None:
    try:
        re.compile(grep)
    except (re.error, OverflowError, RecursionError) as error:
        raise PlanError(
            f'--grep: found "{grep:.60}"; expected a regular expression: {error}'
        ) from None


class _Lines(Listener):
    """New lines of all logs, and the errors of hosts that were given up."""

    def __init__(
        self, on_lost: Callable[[HostError], None] | None, on_back: Callable[[str], None]
    ) -> None:
        self.errors: list[HostError] = []
        self._new: list[NewLines] = []
        self._on_lost, self._on_back = on_lost, on_back

    def pop(self) -> list[NewLines]:
        new, self._new = self._new, []
        return new

    def on_lines(self, host: str, log: LogLines) -> None:
        self._new.append(NewLines(log.task, host, tuple(log.lines)))

    def on_error(self, error: HostError) -> None:
        if self._on_lost and may_return(error):
            self._on_lost(error)
        else:
            self.errors.append(error)

    def on_back(self, host: str) -> None:
        self._on_back(host)
