"""Signed messages between the supervisors of a run: one request line, one answer line, then data.

A line is JSON {"sender", "nonce", "body", "mac"} with mac = HMAC-SHA256(secret, kind | sender |
nonce | body). Each task has its own secret, which only it and the chief know: both sign with it
what they say to each other. The answer is signed with the nonce of the
request, so an old answer cannot be replayed; heartbeat.py protects against replayed requests.
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
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar

from ...shared.protocol.message import Invalid, Message, parse
from ...shared.protocol.record import field
from ...shared.records import (
    HeartbeatSettings,
    Pace,
)
from ...shared.trials import TrialOrder, TrialRecord
from ..machine.peers import as_source
from ..machine.sockets import DeadlineSocket, connect

Body = Dict[str, Any]
T = TypeVar("T")


MAX_LINE = 2 << 20  # ten thousand tasks need a quarter; JSON takes 20 times its size in memory
MAX_DATA = 4 << 20
# What a line is, as the strings that are signed.
REQUEST, ANSWER = "ask", "answer"

MAX_TEXT = 10_000
MAX_SOURCES = 16  # of one task: its host has few networks


class Untrusted(Exception):
    """A message that is not signed with its sender's secret, or is no message of tfdeploy."""


def request(settings: HeartbeatSettings, body: Body, timeout_s: float) -> Tuple[Body, bytes]:
    """Send a request to the chief's supervisor, and return the answer's body and data.

    Raises OSError if there is no answer within `timeout_s` seconds, and Untrusted if the answer is
    not from a supervisor of this run.
    """
    nonce = os.urandom(16).hex()
    with connect(settings.address, settings.port, timeout_s) as plain:
        connection = DeadlineSocket(plain, timeout_s)
        connection.send(sign(settings.secret, REQUEST, settings.task, nonce, body))
        line = receive_line(connection)
        _, answered_nonce, answer = verify(lambda sender: settings.secret, ANSWER, line)
        if answered_nonce != nonce:
            raise Untrusted("it answers another request")
        try:
            data = connection.receive_exactly(_size_of_data(answer))
        except EOFError as error:
            raise Untrusted(str(error)) from None
    if data and hashlib.sha256(data).hexdigest() != answer.get("sha256"):
        raise Untrusted("the data is not what was signed")
    return answer, data


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


class Question(Message):
    """What a task sends to the chief's supervisor: a report of its state, questions, or both.

    `asked` is the sender's own clock in ns: of two reports of a task, the later one counts. Only a
    report has a `state`. `sources` are the addresses from which the sender's host connects to
    others, with the ports if only these are its user's. For the other fields see HeartbeatServer.
    """

    asked: int = 0
    state: str = ""
    reason: str = ""
    cause: str = ""
    restarts: int = 0
    lost_round: int = 0
    of_run: bool = False
    silent: bool = False
    sources: List[str] = field(default_factory=list)
    known: Optional[str] = ""
    advance: bool = False
    backup: bool = False
    file: str = ""
    offset: int = 0
    trial: Optional[TrialRecord] = None
    trials: List[TrialRecord] = field(default_factory=list)
    holds: bool = False
    pace: Optional[Pace] = None
    idle_s: Optional[float] = None


class End(Message):
    """How the chief has ended."""

    state: str
    reason: str = ""


class OfferedFile(Message):
    path: str
    size: int


class Offer(Message):
    """A checkpoint with its files, or a list of `size` bytes: see replication/."""

    name: str
    size: int = 0
    files: List[OfferedFile] = field(default_factory=list)


class Answer(Message):
    """What the chief's supervisor answers: see HeartbeatServer."""

    ended: Optional[End]
    checkpoint: Optional[Offer]
    outputs: Optional[Offer]
    lists: str
    seen: str
    round: int = 0
    lost: str = ""
    going: List[str] = field(default_factory=list)
    sources: List[str] = field(default_factory=list)
    advance: int = 0
    backup: Optional[Offer] = None
    trial: Optional[TrialOrder] = None
    turn: str = ""
    priority: int = 0


def read(kind: Type[T], body: Any) -> T:
    """Return the message in a signed body. Raises Untrusted."""
    try:
        return parse(kind, body)
    except Invalid as error:
        raise Untrusted(str(error)) from None


def text(value: str) -> str:
    """Return a text from another host, cut if it is too long for a state file."""
    return value[:MAX_TEXT]


def few(sources: List[str]) -> List[str]:
    """Return the first few sources that a task says are its own, without what are none."""
    return [found for found in map(as_source, sources[:MAX_SOURCES]) if found]
