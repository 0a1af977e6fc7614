"""The tasks of a run hear of each other: the chief's supervisor tells how it goes, the others ask.

No process but the tasks' own supervisors takes part, and none on the controller. Each asks once in
a while, and says in the same breath how its own task is.
"""

from __future__ import annotations

import random
import socket
import socketserver
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import wire
from .records import ENDED, Circle

Body = Dict[str, Any]
ASK_EVERY_S = 1.0
ASKS_A_SECOND = 50
TIMEOUT_S = 5.0
AT_ONCE = 64
EVICT_S = 0.5


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
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def going(self) -> List[str]:
        return [task for task, heard in self.heard.items() if heard.state not in ENDED]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

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
            self._hurry.wait(every_s * random.uniform(0.8, 1.2))


def ask(circle: Circle, body: Body, timeout_s: float = TIMEOUT_S) -> Tuple[Body, bytes]:
    """Ask the chief's supervisor. Raises OSError or wire.Untrusted where it doesn't answer."""
    return wire.ask((circle.address, circle.port), circle.secret, body, timeout_s)


def _others(circle: Circle) -> List[str]:
    return [task for task in circle.tasks if task != circle.chief]


class _Server(socketserver.ThreadingTCPServer):
    """A thread a question, AT_ONCE at most. Strangers may knock, and must not keep the others out:
    who is to say who it is does so at once, and when all places are taken the oldest goes."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, answer: Callable[[wire.Line], None]) -> None:
        self._to_answer = answer
        self._free = threading.Semaphore(AT_ONCE)
        self._asking: Dict[Any, None] = {}  # connections, the oldest first
        super().__init__(("", port), socketserver.BaseRequestHandler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if self._free.acquire(blocking=False):
            return True
        for oldest in list(self._asking)[:1]:
            try:
                oldest.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it went by itself
        return self._free.acquire(timeout=EVICT_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be had
            self._free.release()
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._asking[request] = None
        try:
            self._to_answer(wire.Line(request, TIMEOUT_S))
        finally:
            self._asking.pop(request, None)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who doesn't know the secret, or hangs up, is no concern of ours."""
