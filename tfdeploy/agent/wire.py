"""One signed line there, one signed line back, and bytes behind it where they were asked for.

A line is JSON {"nonce", "body", "mac"}; mac = HMAC-SHA256(secret, kind | nonce | body). The answer
is signed over the asker's nonce, so an old one can't be played again; against an old question see
circle.py. Nothing is secret on the way, as nothing of TensorFlow's own traffic is; but nobody
without the run's secret is told or believed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time

from . import TYPE_CHECKING
from .dial import dial

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Body = Dict[str, Any]

MAX_LINE = 1 << 20
ASK, ANSWER = "ask", "answer"


class Untrusted(Exception):
    """What came isn't signed with the run's secret, or is no line of ours at all."""


class Line:
    """A connection with one deadline for everything, however slowly or endlessly it is fed."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s
        self._rest = b""

    def send(self, data: bytes) -> None:
        self._hurry()
        self._connection.sendall(data)

    def line(self) -> bytes:
        while b"\n" not in self._rest:
            if len(self._rest) > MAX_LINE:
                raise Untrusted("a line without an end")
            self._receive()
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._receive()
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _receive(self) -> None:
        self._hurry()
        part = self._connection.recv(1 << 16)
        if not part:
            raise Untrusted("the connection ended in the middle")
        self._rest += part

    def _hurry(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise socket.timeout("timed out")
        self._connection.settimeout(left_s)


def ask(address: Tuple[str, int], secret: str, body: Body, timeout_s: float) -> Tuple[Body, bytes]:
    """Ask, and return the answer and the bytes that came with it.

    Raises OSError where nobody answers in `timeout_s`, Untrusted where the wrong one does.
    """
    nonce = os.urandom(16).hex()
    with dial(*address, timeout_s) as connection:
        line = Line(connection, timeout_s)
        line.send(signed(secret, ASK, nonce, body))
        answered, answer = trusted(secret, ANSWER, line.line())
        if answered != nonce:
            raise Untrusted("it answers another question")
        data = line.exactly(int(answer.get("size", 0)))
    if data and hashlib.sha256(data).hexdigest() != answer.get("sha256"):
        raise Untrusted("the bytes are not those that were signed")
    return answer, data


def with_bytes(body: Body, data: bytes) -> Body:
    """The body of an answer behind which `data` is sent."""
    return {**body, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def signed(secret: str, kind: str, nonce: str, body: Body) -> bytes:
    text = json.dumps(body)
    line = {"nonce": nonce, "body": text, "mac": _mac(secret, kind, nonce, text)}
    return json.dumps(line).encode() + b"\n"


def trusted(secret: str, kind: str, line: bytes) -> Tuple[str, Body]:
    """The nonce and the body of a line that was signed with our secret. Raises Untrusted."""
    try:
        data = json.loads(line)
        nonce, text, mac = str(data["nonce"]), str(data["body"]), str(data["mac"])
        known = hmac.compare_digest(mac.encode(), _mac(secret, kind, nonce, text).encode())
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Untrusted("it doesn't speak as a task of this run") from None
    if not known:
        raise Untrusted("it doesn't know the run's secret")
    body: Optional[Body] = json.loads(text)
    return nonce, body or {}


def _mac(secret: str, kind: str, nonce: str, text: str) -> str:
    message = "\n".join((kind, nonce, text)).encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
