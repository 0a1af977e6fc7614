"""A talk with the agent of one host: questions and answers over one channel, in turn."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.verbs import MARK
from tfdeploy.errors import AgentError, CommandTimedOut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.transport import Completed, Stream

Answer = dict[str, Any]
MAX_LINE = 64 << 20
NEXT = b"\n"
STUCK_S = 60.0  # so long may an agent take nothing of what it is sent
SMALL = 16 << 10  # this much is always taken: pipes, windows and buffers have room for more


def question(verb: str, body: Answer) -> bytes:
    """As it is sent: made once where many hosts are asked the same."""
    return json.dumps([verb, body]).encode() + b"\n"


class Ended(Exception):
    """The agent has ended, instead of answering."""

    def __init__(self, how: Completed) -> None:
        super().__init__(f"exit {how.exit}")
        self.how = how


class Session:
    """One agent process. After any error but a refusal of the agent it is of no further use."""

    def __init__(self, host: str, stream: Stream) -> None:
        self.host = host
        self._stream = stream
        self._rest = b""
        self._lines: list[bytes] = []
        self._is_stuck = False

    def ask(self, asked: bytes, payload: Iterable[memoryview] = ()) -> None:
        """Put a question, and send what belongs to it, as long as any of it is taken."""
        self._send(asked)
        for part in payload:
            self._send(part)

    def answer(self, timeout_s: float | None) -> Answer:
        """The next answer. Raises Ended, AgentError for nonsense, CommandTimedOut, Unreachable."""
        if self._is_stuck:
            raise CommandTimedOut(self.host, f"the agent took nothing for {STUCK_S:g} s")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            while self._lines:
                _, marked, text = self._lines.pop(0).decode(errors="replace").partition(MARK)
                if marked:
                    return self._parsed(text)
            chunk = self._read(deadline, timeout_s)
            if not chunk:
                raise Ended(self._stream.ended())
            *self._lines, self._rest = (self._rest + chunk).split(b"\n")
            self._refuse_endless()

    def enough(self) -> None:
        """While a `follow` is answered: it need not go on. Its last answer still comes."""
        self._stream.send(NEXT)

    def keep(self) -> None:
        """It waits for a question that we don't have: whoever comes next may have one."""
        self._stream.keep()

    def close(self) -> None:
        self._stream.close()

    def _send(self, data: bytes | memoryview) -> None:
        if len(data) <= SMALL:
            self._stream.send(data)
            return
        watch = threading.Timer(STUCK_S, self._give_up)
        watch.daemon = True
        watch.start()
        try:
            self._stream.send(data)
        finally:
            watch.cancel()

    def _give_up(self) -> None:
        self._is_stuck = True
        self._stream.close()  # whoever sends is told so

    def _read(self, deadline: float | None, timeout_s: float | None) -> bytes:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return self._stream.read(left_s)
        except CommandTimedOut:
            message = f"the agent gave no answer within {timeout_s:g} s"
            raise CommandTimedOut(self.host, message) from None

    def _refuse_endless(self) -> None:
        if len(self._rest) > MAX_LINE:
            message = f"its answer has no end: {len(self._rest)} bytes in one line"
            raise AgentError(self.host, message)

    def _parsed(self, text: str) -> Answer:
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise AgentError(self.host, f"the agent's answer is no JSON object: {text[:80]!r}")
        return answer
