"""The verbs `doors` and `knock`: do hosts reach each other's ports, before tasks need them?"""

from __future__ import annotations

import select
import sys
import time

from . import TYPE_CHECKING, at_once, leases, ports
from .dial import dial, listen
from .refusal import Refusal

if TYPE_CHECKING:
    import socket
    from typing import Any, Dict, Iterator, List

    Told = Dict[str, Any]

OPEN_S = 60.0
AT_ONCE = 32


def doors(wanted: Dict[str, int]) -> Iterator[Told]:
    """Listen on the ports that the tasks `wanted` will have (0: one as a start finds), until the
    caller says anything, or hangs up, or for OPEN_S. Yields `{open, taken}` once they are open:
    the port by its task, and a `[message, hint]` for each that can't be had."""
    opened: Dict[str, socket.socket] = {}
    taken = []
    try:
        unknown = [*wanted.values()].count(0)
        found = ports.choose(unknown) if unknown else []
        for task, port in wanted.items():
            try:
                opened[task] = _door(port or found.pop(), task)
            except Refusal as no:
                taken.append([no.message, no.hint])
        told = {task: door.getsockname()[1] for task, door in opened.items()}
        yield {"open": told, "taken": taken}
        _answer([*opened.values()])
    finally:
        for door in opened.values():
            door.close()


def _door(port: int, task: str) -> socket.socket:
    held = leases.holder("port/{}".format(port))
    if held is not None:
        raise leases.refused("port/{}".format(port), held)
    ports.check(port, task)
    try:
        return listen(port)
    except OSError as error:  # taken in this very moment
        raise Refusal("port {} for {}: {}".format(port, task, error.strerror)) from None


def _answer(opened: List[socket.socket]) -> None:
    """Whoever knocks is let in, and out."""
    deadline = time.monotonic() + OPEN_S
    while time.monotonic() < deadline:
        left_s = deadline - time.monotonic()
        called, _, _ = select.select([sys.stdin, *opened], [], [], left_s)
        if sys.stdin in called:
            return
        for door in opened:
            if door in called:
                door.accept()[0].close()


def knock(at: List[Told], timeout_s: float) -> Told:
    """Answers `{answers}`: for each `{address, port}` why it isn't reached from here, else ""."""

    def one(door: Told) -> str:
        try:
            dial(door["address"], door["port"], timeout_s).close()
        except OSError as error:
            return error.strerror or "no answer within {:g} s".format(timeout_s)
        return ""

    return {"answers": at_once.each(one, at, AT_ONCE)}
