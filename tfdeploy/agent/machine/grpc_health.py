"""Probe a gRPC port: which TensorFlow task, if any, answers there.

A host needs no gRPC package for this: the call is written in HTTP/2 by hand.

`/tensorflow.WorkerService/GetStatus` takes an empty message and returns the server's devices, such
as `/job:worker/replica:0/task:1/device:CPU:0`. A device's name contains the name of the task.
Sources: tensorflow/core/protobuf/worker_service.proto; HTTP/2 frames: RFC 9113; header blocks:
RFC 7541. Never call MasterService instead: one empty Reset blocks a master permanently.
"""

from __future__ import annotations

import re
import socket
import struct
from typing import Iterator, Optional, Sequence, Tuple

from ...shared.records import (
    FROZEN,
    NOT_GRPC,
    NOT_LISTENING,
    READY,
    SERVER,
    UNREACHABLE,
    WRONG_TASK,
    Health,
    Launch,
)
from .process import port_holder
from .sockets import DeadlineSocket, connect

GET_STATUS = b"/tensorflow.WorkerService/GetStatus"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Frame types and flags of HTTP/2.
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK, END_STREAM, END_HEADERS, PADDED = 1, 1, 4, 8
MAX_FRAME = 1 << 24
MAX_RESPONSE = 1 << 22
TASK_NAME = re.compile(rb"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")


def task_health(launch: Launch, timeout_s: float = 3.0) -> str:
    """Return the health of a task of this host: one of the words above, or "-" if it has no port.

    A task with `ready = "port"` only has to listen; its port is not probed.
    """
    port = launch.endpoint.health_port
    if port is None:
        return "-"
    if launch.endpoint.ready == SERVER:
        return probe("localhost", port, launch.endpoint.name or launch.task, timeout_s).verdict
    return NOT_LISTENING if port_holder(port) is None else READY


def probe(
    host: str, port: int, task: str, timeout_s: float = 3.0, source_ports: Sequence[int] = (0,)
) -> Health:
    """Find out whether `task` (for example `worker:1`), or for "" any program that may not answer,
    is reached at host:port. Never raises."""
    try:
        with connect(host, port, timeout_s, source_ports) as connection:
            if not task:
                return Health(READY)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _call_get_status(DeadlineSocket(connection, timeout_s), host, task)
    except ConnectionRefusedError:
        return Health(NOT_LISTENING, "nothing listens on the port")
    except OSError as error:
        return Health(UNREACHABLE, str(error.strerror or error))


def _call_get_status(connection: DeadlineSocket, host: str, task: str) -> Health:
    try:
        connection.send(PREFACE + _frame(SETTINGS, 0, 0, b"") + _request(host))
        response = _read_response(connection)
    except socket.timeout:
        return Health(FROZEN, "it accepts connections but does not answer")
    except (OSError, EOFError, ValueError, struct.error) as error:
        return Health(NOT_GRPC, "it does not speak gRPC ({})".format(error))
    if response is None:
        return Health(WRONG_TASK, "another gRPC server answers on the port")
    match = TASK_NAME.search(response)
    name = "{}:{}".format(match[1].decode(), int(match[2])) if match else "an unnamed server"
    if name != task:
        return Health(WRONG_TASK, "{} answers on the port".format(name))
    return Health(READY)


def _request(host: str) -> bytes:
    """Return HEADERS and DATA of one unary call with an empty message, on stream 1."""
    headers = (
        b"\x83\x86"  # static table: ":method: POST", ":scheme: http"
        + b"\x04" + _encode_string(GET_STATUS)  # ":path", literal, not indexed
        + b"\x01" + _encode_string(host.encode())  # ":authority"
        + b"\x0f\x10" + _encode_string(b"application/grpc")  # "content-type"
        + b"\x00" + _encode_string(b"te") + _encode_string(b"trailers")
    )  # fmt: skip
    message = b"\x00" + struct.pack(">I", 0)  # not compressed, 0 bytes
    return _frame(HEADERS, END_HEADERS, 1, headers) + _frame(DATA, END_STREAM, 1, message)


def _encode_string(value: bytes) -> bytes:
    """Return a string of RFC 7541: its length, then its bytes.

    The length takes 7 bits, or is 127 followed by the rest in groups of 7 bits.
    """
    if len(value) < 127:
        return bytes([len(value)]) + value
    encoded, size = b"", len(value) - 127
    while size >= 128:
        encoded, size = encoded + bytes([size % 128 + 128]), size // 128
    return b"\x7f" + encoded + bytes([size]) + value


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _read_response(connection: DeadlineSocket) -> Optional[bytes]:
    """Return the response message, or None if the server refused the call (headers only)."""
    body = b""
    for kind, flags, stream, payload in _frames(connection):
        if kind == SETTINGS and not flags & ACK:
            connection.send(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            connection.send(_frame(PING, ACK, 0, payload))
        elif kind in (RESET, GOAWAY):
            raise ValueError("it ended the call")
        elif kind == DATA and stream == 1:
            body += _strip_padding(payload) if flags & PADDED else payload
        if len(body) > MAX_RESPONSE:
            raise ValueError("its answer is longer than {} bytes".format(MAX_RESPONSE))
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            return body[5:] if body else None
        if len(body) >= 5 and len(body) - 5 >= struct.unpack(">I", body[1:5])[0]:
            return body[5:]
    return None


def _frames(connection: DeadlineSocket) -> Iterator[Tuple[int, int, int, bytes]]:
    """Yield type, flags, stream and payload of each frame; the first must be SETTINGS."""
    first = True
    while True:
        head = connection.receive_exactly(9)
        size = struct.unpack(">I", b"\0" + head[:3])[0]
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        if (first and kind != SETTINGS) or size >= MAX_FRAME:
            raise ValueError("its answer starts with {!r}".format(head))
        first = False
        yield kind, flags, stream & 0x7FFFFFFF, connection.receive_exactly(size)


def _strip_padding(payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]]
