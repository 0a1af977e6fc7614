"""`run --watch`: follow a run to its end while the view is on the screen."""

from __future__ import annotations

import threading
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfdeploy.commands.following.run_follow import Watcher
from tfdeploy.commands.following.signals import restore_handlers
from tfdeploy.commands.watch import WatchedRun, follow_samples
from tfdeploy.live import summary
from tfdeploy.live.app import WatchApp

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run

R = TypeVar("R")
CANCEL_S = 2.0  # for the following to end


def follow_on_screen(
    fleet: Fleet,
    run: Run,
    follow: Callable[[Watcher], R],
    watcher: Watcher,
    cancel: threading.Event,
) -> R:
    """Show the view until `follow` returns, and return its result or raise its error.

    The view has the main thread, which signals need; `follow` has another one. What it reports is
    passed to `watcher` after the view, except for log lines. Raises KeyboardInterrupt if the user
    leaves the view before the run has ended; `cancel`, which is the fleet's, then ends `follow`.
    Leaving it after the run's end closes the view.
    """
    reports = _Postponed(watcher)
    work = _Work(partial(follow, reports.watcher))
    watched = WatchedRun(run)
    with follow_samples(fleet, run) as samples:
        # What ends and collects the run comes after the view: its last line advises no command.
        app = WatchApp(watched, samples.events(), is_over=work.is_over, end_line=summary.end_text)
        work.start()
        with restore_handlers():
            left = app.run() is not None and not (work.is_over() or watched.has_ended)
    if left:
        cancel.set()
        work.join(CANCEL_S)
        raise KeyboardInterrupt
    work.join()  # the view may have failed
    reports.pass_on()
    return work.result()


class _Work(threading.Thread, Generic[R]):
    """A function that runs in a thread, which ends with the process."""

    def __init__(self, function: Callable[[], R]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._results: list[R] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:
            self._error = error

    def is_over(self) -> bool:
        return not self.is_alive()

    def result(self) -> R:
        if self._error:
            raise self._error
        return self._results[0]


class _Postponed:
    """The calls of a watcher's functions, until they are passed on: nothing may be printed while
    the view has the screen."""

    def __init__(self, watcher: Watcher) -> None:
        self._calls: list[Callable[[], None]] = []
        names = [field.name for field in fields(watcher) if field.name != "on_lines"]
        self.watcher = Watcher(**{name: self._later(getattr(watcher, name)) for name in names})

    def pass_on(self) -> None:
        for call in self._calls:
            call()

    def _later(self, function: Callable[..., None]) -> Callable[..., None]:
        def postpone(*values: Any) -> None:
            self._calls.append(partial(function, *values))

        return postpone
