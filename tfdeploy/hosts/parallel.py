"""Call a function for many values in a limited number of threads: report the outcomes so far while
the others are waited for, and do not wait long after Ctrl-C or a program's `cancel`."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from tfdeploy.errors import Cancelled
from tfdeploy.hosts.silence import Silence
from tfdeploy.shared import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfdeploy.errors import TfdeployError

T = TypeVar("T")
R = TypeVar("R")
INTERRUPT_WAIT_S = 5.0
CHECK_S = 0.2
QUIET_S = 1.0  # without a new outcome, the rest is waited for


def call_each(
    do: Callable[[T], R],
    of: Iterable[T],
    threads: int,
    check: Callable[[], None] = lambda: None,
) -> list[R]:
    """Return what `do` returns for each value, in their order.

    When all calls have ended, raise the exception of the first value whose call failed. After
    Ctrl-C no call starts; those that run have INTERRUPT_WAIT_S to end and are then abandoned. The
    same holds when `check`, which is called every CHECK_S, raises.
    """
    is_stopped = threading.Event()
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def call(one: T) -> R:
        if is_stopped.is_set():
            raise Cancelled("no call starts")
        return do(one)

    def call_all() -> list[R]:
        try:
            return parallel.each(call, [*of], threads)
        finally:
            ended.put(None)

    try:
        results = parallel.begin(call_all)
        while True:
            check()
            with suppress(queue.Empty):  # an interrupted Thread.join takes a live thread for dead
                ended.get(timeout=CHECK_S)
                break
    except BaseException:  # Ctrl-C, `check`, or no thread can be started
        is_stopped.set()
        _wait(ended)
        raise
    return results()


def _wait(ended: queue.SimpleQueue[None]) -> None:
    with suppress(queue.Empty):
        ended.get(timeout=INTERRUPT_WAIT_S)


class Waiting(Generic[R]):
    """The outcomes so far. One thread calls `check`, any thread `add`."""

    def __init__(
        self,
        hosts: Iterable[str],
        on_wait: Callable[[Mapping[str, R | TfdeployError]], None] | None = None,
    ) -> None:
        self._on_wait = on_wait
        self._silence = Silence(hosts)
        self._outcomes: dict[str, R | TfdeployError] = {}
        self._reported = 0
        self._last_s = time.monotonic()

    def add(self, host: str, outcome: R | TfdeployError) -> None:
        self._last_s = time.monotonic()
        self._outcomes[host] = outcome
        self._silence.end(host)

    def check(self) -> None:
        """Call `on_wait` with the outcomes so far if there are new ones, and none came for a
        while. Without, say after a longer time which hosts are waited for."""
        if not self._on_wait or not self._outcomes:
            self._silence.check()
            return
        is_quiet = time.monotonic() - self._last_s > QUIET_S
        if is_quiet and len(self._outcomes) > self._reported:
            outcomes = self._outcomes.copy()  # another thread may add one
            self._reported = len(outcomes)
            self._on_wait(outcomes)


class Cancellation:
    """Whether the program has set `cancel` (None: it cannot). A cleanup does not look at it."""

    def __init__(self, cancel: threading.Event | None) -> None:
        self.event = cancel
        self._cleanups = 0

    def check(self) -> None:
        """Raise Cancelled if the program has cancelled."""
        if self.event is not None and self.event.is_set() and not self._cleanups:
            raise Cancelled("cancelled by the calling program")

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """Let `check` raise nothing until the context ends. For the program's own thread."""
        self._cleanups += 1
        try:
            yield
        finally:
            self._cleanups -= 1
