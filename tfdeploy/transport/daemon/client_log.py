"""The daemon's part of a client's log: what is logged while a client is served is sent to it."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tfdeploy.transport.daemon.ipc import LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.transport.daemon.ipc import FrameConnection


class _ToClient(logging.Handler):
    """A handler that sends the records of a thread to the client that it serves."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.served = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        frames: FrameConnection | None = getattr(self.served, "frames", None)
        if frames:
            with suppress(OSError):  # the client is gone
                frames.send(LOG, f"{record.levelno} {record.getMessage()}".encode(errors="replace"))


_handler = _ToClient()


def start() -> None:
    """Log what this process, which is the daemon, does."""
    logger = logging.getLogger("tfdeploy")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(_handler)


@contextmanager
def sent_to(frames: FrameConnection | None) -> Iterator[None]:
    """Send what this thread logs to a client, until the end of the block."""
    _handler.served.frames = frames
    try:
        yield
    finally:
        _handler.served.frames = None
