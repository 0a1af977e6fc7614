"""Keep runs/<run>/events/ up to date in a thread, by what `collect` fetches them with."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from tfdeploy.commands.collect import collect_events
from tfdeploy.commands.tensorboard import hparams
from tfdeploy.commands.trials import trials_of
from tfdeploy.errors import Cancelled, HostError, TfdeployError, TransferFailed
from tfdeploy.hosts.events import may_return
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.run import started_again

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.run import Run

# A fetch hashes all files on both sides: it takes up to a twentieth of the time.
POLL_S, PAUSE_FACTOR, LONGEST_PAUSE_S = 2.0, 20.0, 30.0
END_S = 5.0


class EventFetcher:
    """Fetches the events of a run while its context is open.

    When the run was started again, `reload` gives its new plan. `errors` are those of the last
    fetch, by host; `on_away` is called with them, and `on_back` with a host that answers again.
    `looked` is set after the first fetch.
    """

    def __init__(
        self,
        run: Run,
        on_away: Callable[[TfdeployError], None],
        on_back: Callable[[str], None],
        reload: Callable[[Run], Run],
    ) -> None:
        self.run = run
        self.errors: dict[str, TfdeployError] = {}
        self.looked = threading.Event()
        self._on_away, self._on_back, self._reload = on_away, on_back, reload
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._thread.join(END_S)

    def end(self) -> None:
        """Make the thread end; leaving the context waits for it."""
        self._closed.set()

    def _work(self) -> None:
        try:
            while not self._closed.is_set():
                inventory, agent = self.run.inventory, self.run.agent
                with Fleet(inventory, version=agent, cancel=self._closed) as fleet:
                    self._fetch(fleet)
                self.run = self._reload(self.run)
        except Cancelled:
            return
        except TfdeployError as error:
            self._take([error])
        finally:
            self.looked.set()

    def _fetch(self, fleet: Fleet) -> None:
        """Fetch again and again, until the run was started again."""
        while not self._closed.is_set() and not started_again(self.run):
            start = time.monotonic()
            self._take(collect_events(fleet, self.run))
            hparams.write(self.run, trials_of(fleet, self.run))
            self.looked.set()
            pause_s = PAUSE_FACTOR * (time.monotonic() - start)
            self._closed.wait(min(LONGEST_PAUSE_S, max(POLL_S, pause_s)))

    def _take(self, errors: Sequence[TfdeployError]) -> None:
        """Report which hosts do not answer any more, and which do again."""
        before = self.errors
        self.errors = {e.host if isinstance(e, HostError) else "": e for e in errors}
        if self._closed.is_set():
            return
        for host, error in self.errors.items():
            if type(before.get(host)) is not type(error):
                self._on_away(error)
        for host in before.keys() - self.errors.keys():
            self._on_back(host)


def shown_until(error: TfdeployError) -> str:
    """Return until when only what was fetched before is shown; "" if that does not end."""
    if isinstance(error, TransferFailed):
        return " until more can be written"
    return " until it answers" if may_return(error) else ""
