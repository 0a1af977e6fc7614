"""The tasks of a run hear of each other: the chief's supervisor tells how it goes, the others ask.

No process but the tasks' own supervisors takes part, and none on the controller. Each asks once in
a while, and says in the same breath how its own task is.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from dataclasses import dataclass

from . import TYPE_CHECKING, wire
from .dial import listen
from .records import ENDED, Circle

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Body = Dict[str, Any]

ASK_EVERY_S = 1.0
ASKS_A_SECOND = 50
TIMEOUT_S = 5.0
AT_ONCE = 64
EVICT_S = 0.5
BACKLOG = 256


@dataclass(frozen=True)
class Heard:
    """What a task last said of itself, and when, on our monotonic clock."""

    at: float
    state: str
    reason: str
    asked: int = 0  # the asker's own clock, so that an old word can't be said again


class Beacon:
    """The chief's side: answers whoever knows the secret, and remembers what it was told.

    Each asker gets to know `ended` ({"state", "reason"} of the chief, None before), `checkpoint`
    (the set that is on offer, or None) and `going`: the tasks that have not said that they ended.
    """

    def __init__(self, circle: Circle, read: Callable[[str, int], bytes]) -> None:
        self.circle = circle
        self.heard = {task: Heard(time.monotonic(), "", "") for task in _others(circle)}
        self.ended: Optional[Body] = None
        self.checkpoint: Optional[Body] = None
        self._read = read
        self._server = _Server(circle.port, self._answer)

    def going(self) -> List[str]:
        return [task for task, heard in self.heard.items() if heard.state not in ENDED]

    def close(self) -> None:
        self._server.close()

    def _answer(self, line: wire.Line) -> None:
        nonce, body = wire.trusted(self.circle.secret, wire.ASK, line.line())
        data = b""
        if body.get("task") in self.heard:
            self._hear(**body)
        answer = {"ended": self.ended, "checkpoint": self.checkpoint, "going": self.going()}
        if "file" in body:
            data = self._read(body["file"], int(body["offset"]))
            answer = wire.with_bytes(answer, data)
        line.send(wire.signed(self.circle.secret, wire.ANSWER, nonce, answer) + data)

    def _hear(self, task: str, state: str, reason: str, asked: int) -> None:
        """What is said again by someone who listened on the way doesn't count."""
        if asked > self.heard[task].asked:
            self.heard[task] = Heard(time.monotonic(), state, reason, asked)


class Asker:
    """The others' side: asks in a thread of its own. `told` is the last answer, `said` our report
    that it answers, `heard_at` when it came and `ended_at` when it first said that the run has
    ended, on our monotonic clock."""

    def __init__(self, circle: Circle, report: Callable[[], Body]) -> None:
        self.circle = circle
        self.told: Body = {}
        self.said: Body = {}
        self.heard_at = time.monotonic()
        self.ended_at: Optional[float] = None
        self._report = report
        self._hurry = threading.Event()
        self._saying = threading.Lock()  # or an older word of ours might arrive behind the last
        threading.Thread(target=self._go_on_asking, daemon=True).start()

    def hurry(self) -> None:
        """Our state has changed: say so now."""
        self._hurry.set()

    def say(self) -> bool:
        """Ask once, now; whether we were heard. The chief may have gone before us."""
        with self._saying:
            try:
                report = self._report()
                self.told, _ = ask(self.circle, {**report, "asked": time.monotonic_ns()})
            except (OSError, wire.Untrusted):
                return False
            self.said, self.heard_at = report, time.monotonic()
            if self.told.get("ended") and self.ended_at is None:
                self.ended_at = self.heard_at
            return True

    def _go_on_asking(self) -> None:
        every_s = max(ASK_EVERY_S, len(self.circle.tasks) / ASKS_A_SECOND)
        while True:
            self._hurry.clear()
            self.say()
            self._hurry.wait(every_s * (0.8 + 0.4 * os.urandom(1)[0] / 255))


def ask(circle: Circle, body: Body, timeout_s: float = TIMEOUT_S) -> Tuple[Body, bytes]:
    """Ask the chief's supervisor. Raises OSError or wire.Untrusted where it doesn't answer."""
    return wire.ask((circle.address, circle.port), circle.secret, body, timeout_s)


def _others(circle: Circle) -> List[str]:
    return [task for task in circle.tasks if task != circle.chief]


class _Server:
    """A thread a question, AT_ONCE at most. Strangers may knock, and must not keep the others out:
    who is to say who it is does so at once, and when all places are taken the oldest goes.

    Raises OSError where the port is taken. (As the module socketserver would have it, but for its
    looking ten times a second whether it is to end.)
    """

    def __init__(self, port: int, answer: Callable[[wire.Line], None]) -> None:
        self._answer = answer
        self._free = threading.Semaphore(AT_ONCE)
        self._asking: Dict[socket.socket, None] = {}  # the oldest first
        self._listener = listen(port, BACKLOG)
        self.server_address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The port is free once this returns. Who is being answered still gets the answer."""
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno == errno.EINVAL:  # it listens no more
                    return
                time.sleep(EVICT_S)  # too many files are open, or who knocked has gone
                continue
            if not self._begun(connection):
                connection.close()

    def _begun(self, connection: socket.socket) -> bool:
        if not self._has_place():
            return False
        self._asking[connection] = None
        try:
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()
        except RuntimeError:  # no thread can be had
            self._leave(connection)
            return False
        return True

    def _has_place(self) -> bool:
        if self._free.acquire(blocking=False):
            return True
        for oldest in list(self._asking)[:1]:
            try:
                oldest.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it went by itself
        return self._free.acquire(timeout=EVICT_S)

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._answer(wire.Line(connection, TIMEOUT_S))
            except Exception:
                pass  # who doesn't know the secret, or hangs up, is no concern of ours
            finally:
                self._leave(connection)

    def _leave(self, connection: socket.socket) -> None:
        del self._asking[connection]
        self._free.release()
