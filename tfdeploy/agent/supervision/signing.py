"""Signed messages between the supervisors of a run: one request line, one answer line, then data.

A line is JSON {"nonce", "body", "mac"} with mac = HMAC-SHA256(secret, kind | nonce | body). The
answer is signed with the nonce of the request, so an old answer cannot be replayed; heartbeat.py
protects against replayed requests. Messages are not encrypted, as TensorFlow's own traffic is not,
but a process that does not know the run's secret gets no answer and is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os

from .. import TYPE_CHECKING
from ..machine.sockets import DeadlineSocket, connect

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Body = Dict[str, Any]

MAX_LINE = 1 << 20
# What a line is, as the strings that are signed.
REQUEST, ANSWER = "ask", "answer"


class Untrusted(Exception):
    """A message that is not signed with the run's secret, or is no message of tfdeploy at all."""


def request(
    address: Tuple[str, int], secret: str, body: Body, timeout_s: float
) -> Tuple[Body, bytes]:
    """Send a request to (host, port), and return the answer's body and data.

    Raises OSError if there is no answer within `timeout_s` seconds, and Untrusted if the answer is
    not from a supervisor of this run.
    """
    nonce = os.urandom(16).hex()
    with connect(*address, timeout_s) as plain:
        connection = DeadlineSocket(plain, timeout_s)
        connection.send(sign(secret, REQUEST, nonce, body))
        answered_nonce, answer = verify(secret, ANSWER, receive_line(connection))
        if answered_nonce != nonce:
            raise Untrusted("it answers another request")
        try:
            data = connection.receive_exactly(int(answer.get("size", 0)))
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


def sign(secret: str, kind: str, nonce: str, body: Body) -> bytes:
    """Return a signed line of this kind, REQUEST or ANSWER."""
    text = json.dumps(body)
    line = {"nonce": nonce, "body": text, "mac": _mac(secret, kind, nonce, text)}
    return json.dumps(line).encode() + b"\n"


def verify(secret: str, kind: str, line: bytes) -> Tuple[str, Body]:
    """Return the nonce and the body of a line. Raises Untrusted unless `secret` has signed it."""
    try:
        fields = json.loads(line)
        nonce, text, mac = str(fields["nonce"]), str(fields["body"]), str(fields["mac"])
        is_signed = hmac.compare_digest(mac.encode(), _mac(secret, kind, nonce, text).encode())
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Untrusted("it is not a supervisor of this run") from None
    if not is_signed:
        raise Untrusted("it does not know the run's secret")
    body: Optional[Body] = json.loads(text)
    return nonce, body or {}


def _mac(secret: str, kind: str, nonce: str, text: str) -> str:
    message = "\n".join((kind, nonce, text)).encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
