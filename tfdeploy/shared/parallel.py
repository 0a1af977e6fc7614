"""Call a function for several items in parallel threads, and return the results in order.

concurrent.futures takes 6 ms to load, which is too much for a call of the agent.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Callable, Dict, List, NoReturn, Optional, Sequence, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    function: Callable[[Item], Result], items: Sequence[Item], threads: Optional[int] = None
) -> List[Result]:
    """Call `function` for each item, in at most `threads` threads (None: one for each item).

    Return the results in the order of the items. If calls fail, the other items are still
    processed; then the exception of the first failed item is raised.
    """
    remaining = list(enumerate(items))[::-1]
    results: Dict[int, Result] = {}
    failures: Dict[int, BaseException] = {}

    def work() -> None:
        while True:
            try:
                index, item = remaining.pop()
            except IndexError:
                return
            try:
                results[index] = function(item)
            except BaseException as failure:
                failures[index] = failure

    _run(work, len(remaining) if threads is None else min(threads, len(remaining)))
    for index in sorted(failures):
        raise failures[index]
    return [results[index] for index in range(len(results))]


def begin(function: Callable[[], Result]) -> Callable[[], Result]:
    """Call `function` in another thread. Return a function that waits for its result, or raises its
    exception."""
    finish: List[Callable[[], Result]] = []

    def work() -> None:
        try:
            result = function()
            finish.append(lambda: result)
        except BaseException as failure:
            finish.append(partial(_raise, failure))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def wait() -> Result:
        thread.join()
        return finish[0]()

    return wait


def _raise(failure: BaseException) -> NoReturn:
    raise failure


def _run(work: Callable[[], None], threads: int) -> None:
    """Call `work` in this thread and in `threads - 1` others."""
    others = [threading.Thread(target=work, daemon=True) for _ in range(threads - 1)]
    for other in others:
        other.start()
    work()
    for other in others:
        other.join()
