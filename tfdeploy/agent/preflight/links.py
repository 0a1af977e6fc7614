"""Measure the links between hosts: how fast data passes over one TCP connection, as gRPC opens one
for each pair of tasks, and how long a round trip takes.

A host listens on a port of its tasks (`listen_for_links`), and others connect (`measure_link`).
Each client has a secret of its own from the controller. It is valid once, and both sides sign
their first line with it: a client that does not know one gets no answer, and is not measured.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import sys
import time
from typing import Any, Callable, Dict, Iterator, List

from ...shared.protocol.preflight import Interface, LinkPort, LiveTasks, MeasuredLink
from ...shared.protocol.record import to_json
from ..machine import interfaces, leases, ports
from ..machine.peers import plain
from ..machine.sockets import ConnectionServer, DeadlineSocket, connect
from ..refusal import Refusal
from ..supervision.heartbeat import signing

Body = Dict[str, Any]


VIRTUAL = ("docker", "veth", "virbr", "br-")
OPEN_S = 600.0
CONNECT_S = 5.0
MAX_SECONDS = 5.0  # in each direction, whatever a client asks for
MAX_BYTES = 4 << 30
SLACK_S = 20.0  # a slow link needs them for the blocks that are in its buffers
PINGS = 20
WARM_UP_S = 0.3  # TCP starts slowly
BLOCK = 1 << 16  # bytes; the first one says whether the block is the last one
MORE, LAST = b"+", b"."
MIN_BLOCKS = 3
RATE = struct.Struct("!d")


def live_tasks() -> LiveTasks:
    """Report which tasks of any user hold ports or GPUs of this host."""
    return LiveTasks(sorted({each.description for each in leases.holders()}))


def listen_for_links(ports_wanted: List[int], secrets: Dict[str, str]) -> Iterator[LinkPort]:
    """Measure with each client that knows one of the secrets, which are given by client.

    Listens on the first of the ports that is free, or else on one that a start would choose. Yields
    one answer then, and stops when the caller sends anything or hangs up, or after OPEN_S seconds.
    """
    unused = dict(secrets)

    def answer(connection: DeadlineSocket) -> None:
        line = signing.receive_line(connection)
        client, nonce, body = signing.verify(unused.__getitem__, signing.REQUEST, line)
        secret = unused.pop(client)
        own = to_json(_interface(connection))
        connection.send(signing.sign(secret, signing.ANSWER, client, nonce, own))
        for _ in range(PINGS):
            connection.send(connection.receive_exactly(1))
        connection.send(RATE.pack(_receive(connection)))
        _send(connection, _limit(body, "seconds", MAX_SECONDS), _limit(body, "bytes", MAX_BYTES))

    server = _serve(ports_wanted, answer)
    try:
        found = [(name, address) for address, name in interfaces.addresses()]
        real = [each for each in reversed(found) if not each[0].startswith(VIRTUAL)]
        yield LinkPort(int(server.address[1]), dict(real))  # of an interface the first one, IPv4
        select.select([sys.stdin], [], [], OPEN_S)
    finally:
        server.close()


def measure_link(
    address: str, port: int, client: str, secret: str, seconds: float, max_bytes: int
) -> MeasuredLink:
    """Measure the link to a host that listens for this client: for `seconds` in each direction, and
    with at most `max_bytes`. Raises Refusal if it fails."""
    limit_s = 2 * seconds + SLACK_S
    try:
        with connect(address, port, CONNECT_S) as opened:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = DeadlineSocket(opened, limit_s)
            asked = {"seconds": seconds, "bytes": max_bytes}
            answer = signing.exchange(connection, secret, client, asked)
            peer = signing.read(Interface, answer)
            round_trip_s = _ping(connection)
            _send(connection, seconds, max_bytes)
            [sent] = RATE.unpack(connection.receive_exactly(RATE.size))
            received = _receive(connection)
            own = _interface(connection)
    except socket.timeout:
        words = "no answer within {:g} s, or it takes longer than {:g} s"
        raise Refusal(words.format(CONNECT_S, limit_s)) from None
    except (OSError, EOFError, signing.Untrusted) as error:
        raise Refusal(str(getattr(error, "strerror", None) or error)) from None
    if not (math.isfinite(sent) and sent >= 0):
        raise Refusal("it sent an invalid rate")
    return MeasuredLink(sent, received, round_trip_s, own, peer)


def _serve(ports_wanted: List[int], answer: Callable[[DeadlineSocket], None]) -> ConnectionServer:
    for port in ports_wanted:
        try:
            return ConnectionServer(port, answer, 2 * MAX_SECONDS + SLACK_S)
        except OSError:  # a task has it
            continue
    return ConnectionServer(ports.choose(1)[0], answer, 2 * MAX_SECONDS + SLACK_S)


def _limit(body: Body, key: str, most: float) -> float:
    value = body.get(key)
    return min(most, value) if isinstance(value, (int, float)) else 0.0


def _interface(connection: DeadlineSocket) -> Interface:
    """Return the interface of this end of a connection, and its speed."""
    name = interfaces.with_address(plain(connection.own_address()))
    return Interface(name, interfaces.megabits_per_s(name) if name else None)


def _ping(connection: DeadlineSocket) -> float:
    """Return the median time of a round trip, in seconds."""
    times = []
    for _ in range(PINGS):
        begin = time.monotonic()
        connection.send(b"-")
        connection.receive_exactly(1)
        times.append(time.monotonic() - begin)
    return sorted(times)[PINGS // 2]


def _send(connection: DeadlineSocket, seconds: float, max_bytes: float) -> None:
    """Send blocks of what no network can compress."""
    connection.limit_unsent(BLOCK)
    noise, number, until = os.urandom(BLOCK - 1), 1, time.monotonic() + seconds
    more, last = MORE + noise, LAST + noise
    while number < MIN_BLOCKS or (time.monotonic() < until and (number + 1) * BLOCK < max_bytes):
        connection.send(more)
        number += 1
    connection.send(last)


def _receive(connection: DeadlineSocket) -> float:
    """Receive what `_send` sends; return how many bytes arrived in a second. Raises Untrusted if
    more than MAX_BYTES arrive."""
    block = memoryview(bytearray(BLOCK))
    connection.receive_into(block)
    begin = since = now = time.monotonic()
    received = total = 0
    while block[:1] == MORE:
        total += BLOCK
        if total > max(MAX_BYTES, MIN_BLOCKS * BLOCK):
            raise signing.Untrusted("it sends more than was asked for")
        if since == begin and now - begin > WARM_UP_S:
            since, received = now, 0
        connection.receive_into(block)
        now = time.monotonic()
        received += BLOCK
    return received / max(now - since, 1e-9)
