"""Signed messages between the supervisors of a run: one request line, one answer line, then data.

A line is JSON {"sender", "nonce", "body", "mac"} with mac = HMAC-SHA256(secret, kind | sender |
nonce | body). Each task has its own secret, which only it and the chief know: both sign with it
what they say to each other. The answer is signed with the nonce of the
request, so an old answer cannot be replayed. Each request is answered once (AnsweredOnce), and each
launch of a run has new secrets: what was recorded of one means nothing to another.
A host of the run may lie, so a message is validated where it is received: it has the declared
types, and text of limited length, or it is Untrusted, and ends no supervisor.
Messages are not encrypted, as TensorFlow's own traffic is not, but a process without a secret gets
no answer and is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Set, Tuple, Type, TypeVar

from ....shared.protocol.message import Invalid, parse
from ....shared.records import HeartbeatSettings
from ...machine.sockets import DeadlineSocket, connect

Body = Dict[str, Any]
T = TypeVar("T")


REQUEST_TIMEOUT_S = 5.0  # of a request and its answer
MAX_LINE = 2 << 20  # ten thousand tasks need a quarter; JSON takes 20 times its size in memory
MAX_DATA = 4 << 20
# What a line is, as the strings that are signed.
REQUEST, ANSWER = "ask", "answer"

LATEST_NS = 120 * 10**9  # for so long a request may be on its way while others overtake it


class Untrusted(Exception):
    """A message that is not signed with its sender's secret, or is no message of tfdeploy."""


class AnsweredOnce:
    """The requests of one sender that were answered: a stranger may send each of them again.

    Stored are the nonces of LATEST_NS, by the clock that the sender signs. What is older by that
    clock is refused, so an old request does not count either when its nonce is forgotten.
    """

    def __init__(self) -> None:
        self._newest = 0
        self._nonces: Set[str] = set()
        self._in_order: Deque[Tuple[int, str]] = deque()
        self._lock = threading.Lock()

    def take(self, nonce: str, sent_ns: int) -> None:
        """Note a request that was sent at `sent_ns`. Raises Untrusted if it is to be refused."""
        with self._lock:
            self._newest = max(self._newest, sent_ns)
            oldest = self._newest - LATEST_NS
            if sent_ns < oldest or nonce in self._nonces:
                raise Untrusted("it was answered before")
            self._nonces.add(nonce)
            self._in_order.append((sent_ns, nonce))
            while self._in_order[0][0] < oldest:
                self._nonces.discard(self._in_order.popleft()[1])


def request(settings: HeartbeatSettings, body: Body, timeout_s: float) -> Tuple[Body, bytes]:
    """Send a request to the chief's supervisor, and return the answer's body and data.

    Raises OSError if there is no answer within `timeout_s` seconds, and Untrusted if the answer is
    not from a supervisor of this run.
    """
    with connect(settings.address, settings.port, timeout_s) as plain:
        connection = DeadlineSocket(plain, timeout_s)
        answer = exchange(connection, settings.secret, settings.task, body)
        try:
            data = connection.receive_exactly(_size_of_data(answer))
        except EOFError as error:
            raise Untrusted(str(error)) from None
    if data and hashlib.sha256(data).hexdigest() != answer.get("sha256"):
        raise Untrusted("the data is not what was signed")
    return answer, data


def exchange(connection: DeadlineSocket, secret: str, sender: str, body: Body) -> Body:
    """Send a request; return the body of its answer. Raises OSError, or Untrusted."""
    nonce = os.urandom(16).hex()
    connection.send(sign(secret, REQUEST, sender, nonce, body))
    _, answered, answer = verify(lambda _: secret, ANSWER, receive_line(connection))
    if answered != nonce:
        raise Untrusted("it answers another request")
    return answer


def receive_line(connection: DeadlineSocket) -> bytes:
    """Return the next line. Raises Untrusted if it is too long or incomplete."""
    try:
        return connection.receive_line(MAX_LINE)
    except (EOFError, ValueError) as error:
        raise Untrusted(str(error)) from None


def describe_data(body: Body, data: bytes) -> Body:
    """Return the body of an answer that is followed by `data`."""
    return {**body, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def sign(secret: str, kind: str, sender: str, nonce: str, body: Body) -> bytes:
    """Return a signed line of this kind, REQUEST or ANSWER, from the task `sender`."""
    text = json.dumps(body)
    mac = _mac(secret, kind, sender, nonce, text)
    return json.dumps({"sender": sender, "nonce": nonce, "body": text, "mac": mac}).encode() + b"\n"


def verify(secret_of: Callable[[str], str], kind: str, line: bytes) -> Tuple[str, str, Body]:
    """Return the sender, the nonce and the body of a line. Raises Untrusted unless it is signed
    with the sender's secret."""
    try:
        fields = json.loads(line)
        sender, nonce, text, mac = (str(fields[key]) for key in ("sender", "nonce", "body", "mac"))
        expected = _mac(secret_of(sender), kind, sender, nonce, text)
        is_signed = hmac.compare_digest(mac.encode(), expected.encode())
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Untrusted("it is not a supervisor of this run") from None
    if not is_signed:
        raise Untrusted("it does not know the secret")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):  # even the chief's host may lie
        raise Untrusted("its message is broken") from None
    if not isinstance(body, dict):
        raise Untrusted("its message is no object")
    return sender, nonce, body


def _size_of_data(answer: Body) -> int:
    size = answer.get("size", 0)
    if type(size) is not int or not 0 <= size <= MAX_DATA:
        raise Untrusted("it announces {:.40} bytes".format(repr(size)))
    return size


def _mac(secret: str, kind: str, *signed: str) -> str:
    message = "\n".join((kind, *signed)).encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def read(kind: Type[T], body: Any) -> T:
    """Return the message in a signed body. Raises Untrusted."""
    try:
        return parse(kind, body)
    except Invalid as error:
        raise Untrusted(str(error)) from None
