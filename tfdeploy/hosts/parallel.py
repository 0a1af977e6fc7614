"""Call a function for many values in a limited number of threads; Ctrl-C does not wait long."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")
INTERRUPT_WAIT_S = 5.0
CHECK_S = 0.2


def each(
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
    left = deque(enumerate(of))
    done: dict[int, R] = {}
    failed: dict[int, BaseException] = {}
    exits: queue.SimpleQueue[None] = queue.SimpleQueue()

    def work() -> None:
        with suppress(IndexError):  # no value is left
            while True:
                place, one = left.popleft()
                try:
                    done[place] = do(one)
                except BaseException as failure:
                    failed[place] = failure
        exits.put(None)

    # Daemon threads: at its exit the interpreter waits for all others.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(left)))]
    exited = 0
    try:
        for thread in workers:
            thread.start()
        while exited < len(workers):
            check()
            with suppress(queue.Empty):
                exits.get(
                    timeout=CHECK_S
                )  # an interrupted Thread.join takes a live thread for dead
                exited += 1
    except BaseException:  # Ctrl-C, `check`, or no thread can be started
        left.clear()
        _wait(exits, sum(thread.ident is not None for thread in workers) - exited)
        raise
    for place in sorted(failed):
        raise failed[place]
    return [done[place] for place in sorted(done)]


def _wait(exits: queue.SimpleQueue[None], threads: int) -> None:
    deadline = time.monotonic() + INTERRUPT_WAIT_S
    with suppress(queue.Empty):
        for _ in range(threads):
            exits.get(timeout=max(0.0, deadline - time.monotonic()))
