"""`tfdeploy collect --follow`: each new checkpoint comes home while the training goes on."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tfdeploy.agent.records import ENDED
from tfdeploy.errors import HostError, TfdeployError
from tfdeploy.fleet import may_return
from tfdeploy.steps.collect import Checkpoint, Collected, collect, collect_checkpoint, remove

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.fleet import Fleet
    from tfdeploy.run import Run

# As many as TensorFlow keeps if it isn't told otherwise; a long training would fill the disk here.
KEPT = 5


class Gathering:
    """Fetches what is announced, in a thread beside a following: only ever the newest, one at a
    time. Of what it brought, the newest KEPT stay at home.

    `last` is what came last. `error` is what went wrong since, if anything did; the next
    announcement tries again. As a context it waits at its end for a fetch that is going on, so that
    another collect may follow; after an exception it does not.
    """

    def __init__(
        self,
        fleet: Fleet,
        run: Run,
        on_collected: Callable[[Collected], None] = lambda collected: None,
        on_failed: Callable[[TfdeployError], None] = lambda error: None,
    ) -> None:
        self.last: Collected | None = None
        self.error: TfdeployError | None = None
        self._fleet, self._run = fleet, run
        self._on_collected, self._on_failed = on_collected, on_failed
        self._brought: list[Checkpoint] = []
        self._name = ""
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._closed.set()
        self._wanted.set()
        if kind is None:
            self._thread.join()

    def announced(self, name: str) -> None:
        """There is a new one. A host that was lost names its newest again when it is back."""
        self._name = str(name)
        self._wanted.set()

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed.is_set():
                return
            if self.error or not self._is_known(self._name):
                self._fetch()

    def _is_known(self, name: str) -> bool:
        if self.last is None:
            return False
        checkpoints, bad = self.last.checkpoints, self.last.bad
        return name in {*(found.name for found in checkpoints), *(found.name for found in bad)}

    def _fetch(self) -> None:
        try:
            collected = collect_checkpoint(self._fleet, self._run)
        except TfdeployError as error:
            self.error = error
            if not self._closed.is_set():  # else we hung up ourselves
                self._on_failed(error)
            return
        self.error, self.last = None, collected
        for checkpoint in collected.checkpoints:
            self._keep(checkpoint)
        self._on_collected(collected)

    def _keep(self, newest: Checkpoint) -> None:
        others = [old for old in self._brought if old.name != newest.name]
        self._brought = [*others, newest]
        while len(self._brought) > KEPT:
            with suppress(TfdeployError, OSError):  # then it stays
                remove(self._run, self._brought[0], newest)
            del self._brought[0]


def follow(
    fleet: Fleet,
    run: Run,
    on_collected: Callable[[Collected], None],
    *,
    on_failed: Callable[[TfdeployError], None] = lambda error: None,
    on_lost: Callable[[HostError], None] = lambda error: None,
    on_back: Callable[[str], None] = lambda host: None,
    every: bool = False,
) -> Collected:
    """Fetch the newest checkpoint, then each new one, until the chief has ended; then all the rest,
    as `collect` does.

    What goes wrong on the way is told and tried again. Raises HostError where the chief's host
    refuses to be followed, and at the end as `collect` does.
    """
    with (
        Gathering(fleet, run, on_collected, on_failed) as gathering,
        fleet.follow(run, [run.plan.chief], logs=False) as following,
    ):
        for host, event in following.events():
            if isinstance(event, HostError):
                if not may_return(event):
                    raise event
                on_lost(event)
            elif "back" in event:
                on_back(host)
            elif "checkpoint" in event:
                gathering.announced(event["checkpoint"])
            elif "state" in event and event["state"]["state"] in ENDED:
                break
    return collect(fleet, run, every=every)
