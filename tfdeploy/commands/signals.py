"""Delay the signals that end a command while it cleans up; restore their handlers."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def delay_signals(*, raise_after: bool = False) -> Iterator[None]:
    """Ignore signals that would end the command, so that a second Ctrl-C does not end the cleanup
    after the first.

    With `raise_after`, for a cleanup that no signal has caused, raise KeyboardInterrupt afterwards
    if a signal came. A signal that was ignored before, for example by nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    received: list[int] = []
    handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {n: signal.signal(n, lambda number, _: received.append(number)) for n in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received and raise_after:
        raise KeyboardInterrupt


@contextmanager
def restore_handlers() -> Iterator[None]:
    """After the block, handle signals as before: an asyncio program leaves Python's own handlers,
    with which SIGTERM ends the process at once."""
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
