"""What does this gRPC port say it is? Asked in HTTP/2 by hand: a host needs no gRPC package.

`/tensorflow.WorkerService/GetStatus` takes an empty message and answers with the server's devices,
among them `/job:worker/replica:0/task:1/device:CPU:0`: the task's own name. (Source:
tensorflow/core/protobuf/worker_service.proto; HTTP/2 frames: RFC 9113; header blocks: RFC 7541.)
Never ask MasterService: one empty Reset wedges a master for good.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from dataclasses import dataclass

from . import TYPE_CHECKING
from .dial import dial
from .records import SERVER

if TYPE_CHECKING:
    from typing import Iterator, Optional, Tuple

    from .records import Launch

READY = "READY"
NOT_LISTENING = "NOT_LISTENING"
UNREACHABLE = "UNREACHABLE"
NOT_GRPC = "NOT_GRPC"
FROZEN = "FROZEN"
WRONG_TASK = "WRONG_TASK"

PATH = b"/tensorflow.WorkerService/GetStatus"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK, END_STREAM, END_HEADERS, PADDED = 1, 1, 4, 8
MAX_FRAME = 1 << 24
MAX_ANSWER = 1 << 22
TASK_NAME = re.compile(rb"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")


@dataclass(frozen=True)
class Health:
    """One of the words above, and what was seen in words for people."""

    verdict: str
    detail: str = ""


def of(launch: Launch, timeout_s: float = 3.0) -> str:
    """What the port of a task of this host says: one of the words above, or "-" where it has none
    that tells. Where an open port is all that is asked for, nothing is said to it."""
    port = launch.asked_port
    if port is None:
        return "-"
    if launch.ready == SERVER:
        return ask("localhost", port, launch.name or launch.task, timeout_s).verdict
    from .process import holder  # most launches don't come by here

    return NOT_LISTENING if holder(port) is None else READY


def ask(host: str, port: int, task: str, timeout_s: float = 3.0) -> Health:
    """Ask host:port whether it is `task` (e.g. `worker:1`). Never raises."""
    try:
        with dial(host, port, timeout_s) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _ask(_Call(connection, time.monotonic() + timeout_s), host, task)
    except ConnectionRefusedError:
        return Health(NOT_LISTENING, "nothing listens there")
    except OSError as error:
        return Health(UNREACHABLE, str(error.strerror or error))


class _Call:
    """A connection with one deadline for everything, however slowly or endlessly it is fed."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline

    def send(self, data: bytes) -> None:
        self._hurry()
        self.connection.sendall(data)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self._hurry()
            part = self.connection.recv(size - len(data))
            if not part:
                raise ValueError("it closed the connection")
            data += part
        return data

    def _hurry(self) -> None:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise socket.timeout
        self.connection.settimeout(left_s)


def _ask(call: _Call, host: str, task: str) -> Health:
    try:
        call.send(PREFACE + _frame(SETTINGS, 0, 0, b"") + _request(host))
        answer = _answer(call)
    except socket.timeout:
        return Health(FROZEN, "it accepts connections and doesn't answer")
    except (OSError, ValueError, struct.error) as error:
        return Health(NOT_GRPC, "it doesn't speak gRPC ({})".format(error))
    if answer is None:
        return Health(WRONG_TASK, "another gRPC server answers there")
    found = TASK_NAME.search(answer)
    name = "{}:{}".format(found[1].decode(), int(found[2])) if found else "nobody"
    if name != task:
        return Health(WRONG_TASK, "{} answers there".format(name))
    return Health(READY)


def _request(host: str) -> bytes:
    """HEADERS and DATA of one unary call with an empty message, on stream 1."""
    headers = (
        b"\x83\x86"  # static table: ":method: POST", ":scheme: http"
        + b"\x04" + _text(PATH)  # ":path", literal, not indexed
        + b"\x01" + _text(host.encode())  # ":authority"
        + b"\x0f\x10" + _text(b"application/grpc")  # "content-type"
        + b"\x00" + _text(b"te") + _text(b"trailers")
    )  # fmt: skip
    message = b"\x00" + struct.pack(">I", 0)  # not compressed, no bytes
    return _frame(HEADERS, END_HEADERS, 1, headers) + _frame(DATA, END_STREAM, 1, message)


def _text(value: bytes) -> bytes:
    """A string of RFC 7541: its length in 7 bits, or 127 and the rest in groups of 7; the bytes."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, size = b"", len(value) - 127
    while size >= 128:
        rest, size = rest + bytes([size % 128 + 128]), size // 128
    return b"\x7f" + rest + bytes([size]) + value


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _answer(call: _Call) -> Optional[bytes]:
    """The response message, or None where the server refused the call (headers and no message)."""
    body = b""
    for kind, flags, stream, payload in _frames(call):
        if kind == SETTINGS and not flags & ACK:
            call.send(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            call.send(_frame(PING, ACK, 0, payload))
        elif kind in (RESET, GOAWAY):
            raise ValueError("it ended the call")
        elif kind == DATA and stream == 1:
            body += _unpadded(payload) if flags & PADDED else payload
        if len(body) > MAX_ANSWER:
            raise ValueError("its answer has no end")
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            return body[5:] if body else None
        if len(body) >= 5 and len(body) - 5 >= struct.unpack(">I", body[1:5])[0]:
            return body[5:]
    return None


def _frames(call: _Call) -> Iterator[Tuple[int, int, int, bytes]]:
    first = True
    while True:
        head = call.exactly(9)
        size = struct.unpack(">I", b"\0" + head[:3])[0]
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        if (first and kind != SETTINGS) or size >= MAX_FRAME:
            raise ValueError("it begins with {!r}".format(head))
        first = False
        yield kind, flags, stream & 0x7FFFFFFF, call.exactly(size)


def _unpadded(payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]]
