"""The same done for many by a bounded number of threads; Ctrl-C waits for none of them for long."""

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
PATIENCE_S = 5.0


def each(do: Callable[[T], R], of: Iterable[T], threads: int) -> list[R]:
    """What `do` gives for each, in their order.

    Raises, when all are done, what was raised for the first of those that failed. At Ctrl-C nothing
    more is begun; what is being done may end within PATIENCE_S, and is left to itself then.
    """
    left = deque(enumerate(of))
    done: dict[int, R] = {}
    failed: dict[int, BaseException] = {}
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def work() -> None:
        with suppress(IndexError):  # nothing is left
            while True:
                place, one = left.popleft()
                try:
                    done[place] = do(one)
                except BaseException as failure:
                    failed[place] = failure
        ended.put(None)

    # Daemons: the interpreter's own end waits for any other thread.
    crew = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(left)))]
    heard = 0
    try:
        for thread in crew:
            thread.start()
        while heard < len(crew):
            ended.get()  # Thread.join, once interrupted, takes a living thread for dead
            heard += 1
    except BaseException:  # Ctrl-C, or no thread can be begun any more
        left.clear()
        _wait(ended, sum(thread.ident is not None for thread in crew) - heard)
        raise
    for place in sorted(failed):
        raise failed[place]
    return [done[place] for place in sorted(done)]


def _wait(ended: queue.SimpleQueue[None], threads: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with suppress(queue.Empty):
        for _ in range(threads):
            ended.get(timeout=max(0.0, deadline - time.monotonic()))
