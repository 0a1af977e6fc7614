"""The same asked of several, all at once. (concurrent.futures would cost a call 6 ms to load.)"""

from __future__ import annotations

import threading

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Sequence, TypeVar

    Asked = TypeVar("Asked")
    Answer = TypeVar("Answer")


def each(
    ask: Callable[[Asked], Answer], of: Sequence[Asked], threads: Optional[int] = None
) -> List[Answer]:
    """What `ask` says of each, in their order; by so many threads at most, None: by one for each.

    Raises, when all of them were asked, what was raised for the first of those that failed.
    """
    left = list(enumerate(of))[::-1]
    answers: Dict[int, Answer] = {}
    failures: Dict[int, BaseException] = {}

    def work() -> None:
        while True:
            try:
                place, one = left.pop()
            except IndexError:
                return
            try:
                answers[place] = ask(one)
            except BaseException as failure:
                failures[place] = failure

    _run(work, len(left) if threads is None else min(threads, len(left)))
    for place in sorted(failures):
        raise failures[place]
    return [answers[place] for place in range(len(answers))]


def _run(work: Callable[[], None], threads: int) -> None:
    """In so many threads, ours among them."""
    others = [threading.Thread(target=work, daemon=True) for _ in range(threads - 1)]
    for other in others:
        other.start()
    work()
    for other in others:
        other.join()
