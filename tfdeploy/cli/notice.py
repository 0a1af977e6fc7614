"""--notify: while a command follows a run, notify of the run's end from the controller."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.errors import TfdeployError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.commands.following.run_follow import RunEnd
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.run import Run


class EndNotice:
    """One notification, of the end that `ended` was called with. Raises what is wrong with the
    option's value when it is created."""

    def __init__(self, written: str | None, console: Console) -> None:
        from tfdeploy.commands.following.notify import find_target

        self._target = find_target(written) if written is not None else None
        self._console = console
        self._end: tuple[Run, RunEnd] | None = None

    def ended(self, run: Run, end: RunEnd) -> None:
        """Store how the run ended; a resume may have changed the run."""
        self._end = run, end

    @contextmanager
    def of(self, fleet: Fleet, run: Run) -> Iterator[None]:
        """Notify after the block if the run has ended, or if an error ended the following. Ctrl-C
        only ends the following."""
        error = None
        try:
            yield
        except TfdeployError as raised:
            error = raised
            raise
        finally:
            if self._target and (self._end or error):
                last_run, end = self._end or (run, None)
                self._send(fleet, last_run, end, error)

    def _send(
        self, fleet: Fleet, run: Run, end: RunEnd | None, error: TfdeployError | None
    ) -> None:
        from tfdeploy.commands.following.notify import send_summary, summarize

        assert self._target
        try:
            send_summary(self._target, run, summarize(fleet, run, end, error))
        except TfdeployError as failure:  # the run's own end is what counts
            self._console.print_notes([failure])
