"""Call a function for several items in parallel threads, and return the results in order.

concurrent.futures takes 6 ms to load, which is too much for a call of the agent.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Callable, Dict, List, NoReturn, Optional, Sequence, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# A local disk needs 4 µs to look at a file and 40 µs to copy one, a file server a millisecond for
# each request.
FIRST_FILES, SLOW_S, FILE_THREADS = 16, 0.0002, 8


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


def each_file(function: Callable[[Item], Result], files: Sequence[Item]) -> List[Result]:
    """Call `function` for each file as `each` does: in several threads if the first files show that
    the file system is slow. If one of the first calls fails, no other file is processed."""
    started = time.monotonic()
    first = [function(file) for file in files[:FIRST_FILES]]
    is_slow, rest = time.monotonic() - started > len(first) * SLOW_S, files[FIRST_FILES:]
    return first + each(function, rest, FILE_THREADS if is_slow else 1) if rest else first


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
    """Call `work` in this thread and in `threads - 1` others, or as many as can be started."""
    # Daemon threads: at its exit the interpreter waits for all others.
    others = [threading.Thread(target=work, daemon=True) for _ in range(threads - 1)]
    try:
        for other in others:
            other.start()
    except RuntimeError:
        others = [other for other in others if other.ident is not None]
    work()
    for other in others:
        other.join()
