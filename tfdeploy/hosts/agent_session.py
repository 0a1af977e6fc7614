"""A session with the agent of one host: requests and answers over one channel, in turn."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from tfdeploy.errors import AgentError, CommandTimedOut
from tfdeploy.hosts.login_shell import NOISE_BYTES, prints_without_end
from tfdeploy.shared.protocol.message import COMPRESSED, MARK
from tfdeploy.shared.protocol.record import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.shared.protocol.message import Request
    from tfdeploy.transport import CompletedCommand, Stream

A = TypeVar("A", covariant=True)
Answer = dict[str, object]
NEXT = b"\n"
ANSWER_TIMEOUT_S = 60.0  # the usual limit; nvidia-smi may hang for 30 s
STUCK_S = 60.0  # how long an agent may read nothing of what it is sent
SMALL = 16 << 10  # bytes that pipes, windows and buffers always have room for
# From this size on, files are sent and fetched on a connection of their own; smaller ones go over
# the agent's open session, which is faster.
BULK = 8 << 20
COMPRESSED_FROM = 2 << 10  # bytes; a shorter request fits into one or two packets anyway


@dataclass(frozen=True)
class Query(Generic[A]):
    """A request and its encoding."""

    request: Request[A]
    data: bytes
    _compressed: list[bytes] = field(default_factory=list, compare=False, repr=False)

    @property
    def compressed(self) -> bytes:
        """What to send: most of a large request repeats itself, such as the addresses of all tasks.

        It is computed once. (Python 3.11 has one lock for a cached_property of all objects: the
        requests to many hosts would be compressed one after the other.)
        """
        if not self._compressed:
            self._compressed.append(self._compress())
        return self._compressed[0]

    def _compress(self) -> bytes:
        if len(self.data) < COMPRESSED_FROM:
            return self.data
        packed = zlib.compress(self.data)
        return json.dumps([COMPRESSED, {"size": len(packed)}]).encode() + b"\n" + packed


def query(request: Request[A], **more: object) -> Query[A]:
    """Encode a request, with more fields that any request may have."""
    body = {**to_json(request), **more}
    return Query(request, json.dumps([request.TAG, body]).encode() + b"\n")


class AgentExited(Exception):
    """The agent has exited instead of answering."""

    def __init__(self, command: CompletedCommand) -> None:
        super().__init__(f"exit {command.exit}")
        self.command = command


class Session:
    """One agent process. After any error except a refusal or a timeout it cannot be used again."""

    def __init__(self, host: str, stream: Stream, stuck_s: float = STUCK_S) -> None:
        self.host = host
        self._stuck_s = stuck_s
        self.sent_bytes = 0  # of the last request
        self.answer_bytes = 0  # of the last answer
        self.has_answered = False
        self._stream = stream
        self._lines: deque[bytes] = deque()
        self._rest: list[bytes] = []  # the parts of the line that has not ended
        self._has_mark = False  # whether an answer starts in what was read
        self._is_stuck = False

    def write(self, query: bytes, payload: Iterable[memoryview] = ()) -> None:
        """Send a request and its payload. Raises HostError."""
        parts: Iterable[bytes | memoryview] = chain([query], payload)
        self.sent_bytes = 0
        for part in parts:
            self.sent_bytes += len(part)
            if len(part) <= SMALL:
                self._stream.send(part)
                continue
            watch = threading.Timer(self._stuck_s, self._give_up)
            watch.daemon = True
            watch.start()
            try:
                self._stream.send(part)
            finally:
                watch.cancel()

    def answer(self, timeout_s: float | None, max_bytes: int) -> Answer:
        """Return the next answer.

        A host may send without end, also what is no answer: both limits count everything. Raises
        AgentExited, AgentError if it is no JSON object or too large, CommandTimedOut, Unreachable.
        """
        if self._is_stuck:
            raise CommandTimedOut(self.host, f"the agent read nothing for {self._stuck_s:g} s")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        received = 0
        while True:
            while self._lines:
                _, marked, text = self._lines.popleft().decode(errors="replace").partition(MARK)
                if marked:
                    self.answer_bytes, self.has_answered = len(text), True
                    return self._parse(text)
            chunk = self._read(deadline, timeout_s)
            if not chunk:
                raise AgentExited(self._stream.result())
            received += len(chunk)
            self._has_mark = self._has_mark or MARK.encode() in b"".join([*self._rest[-1:], chunk])
            if not self._has_mark and received > NOISE_BYTES:
                raise prints_without_end(self.host, chunk)
            if received > max_bytes:
                raise AgentError(self.host, f"invalid answer: more than {max_bytes} bytes")
            self._split(chunk)

    def _split(self, chunk: bytes) -> None:
        """Add what was read to the lines, at a cost that does not grow with a line's length."""
        first, *more = chunk.split(b"\n")
        self._rest.append(first)
        if more:
            self._lines.append(b"".join(self._rest))
            self._lines += more[:-1]
            self._rest = more[-1:]

    def finish(self) -> None:
        """Ask the agent to finish a stream of answers: its last answer still arrives."""
        self._stream.send(NEXT)

    def keep(self) -> None:
        """Leave the session to the connection daemon, for the next command."""
        self._stream.park()

    def close(self) -> None:
        self._stream.close()

    def _give_up(self) -> None:
        self._is_stuck = True
        self._stream.close()  # the sending thread then gets an error

    def _read(self, deadline: float | None, timeout_s: float | None) -> bytes:
        left_s = None if deadline is None else deadline - time.monotonic()
        try:
            if left_s is None or left_s > 0:
                return self._stream.read(left_s)
        except CommandTimedOut:
            pass
        message = f"the agent gave no answer within {timeout_s:g} s"
        raise CommandTimedOut(self.host, message)

    def _parse(self, text: str) -> Answer:
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):  # nested too deeply
            answer = None
        if not isinstance(answer, dict):
            raise AgentError(
                self.host, f"invalid answer: expected a JSON object, found {text[:80]!r}"
            )
        return answer
