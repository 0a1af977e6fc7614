"""What the supervisors of a run say to each other, validated where it is received.

A host of the run may lie, so a message has the declared types, and text of limited length, or it is
Untrusted: none of them may end a supervisor.
"""

from __future__ import annotations

from ...shared import TYPE_CHECKING
from ...shared.protocol.message import Invalid, Message, parse
from ...shared.protocol.record import field
from ..machine.guard.peers import as_source
from .signing import Untrusted

if TYPE_CHECKING:
    from typing import Any, List, Optional, Type, TypeVar

    T = TypeVar("T")

MAX_TEXT = 10_000
MAX_SOURCES = 16  # of one task: its host has few networks


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
    of_run: bool = False
    silent: bool = False
    sources: List[str] = field(default_factory=list)
    known: Optional[str] = ""
    advance: bool = False
    backup: bool = False
    file: str = ""
    offset: int = 0


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
    going: List[str] = field(default_factory=list)
    sources: List[str] = field(default_factory=list)
    advance: int = 0
    backup: Optional[Offer] = None


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
