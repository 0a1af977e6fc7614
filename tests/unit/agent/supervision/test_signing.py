"""Signed requests and answers; an answer from any other process is not trusted."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import make_heartbeat_settings

from tfdeploy.agent.machine import sockets
from tfdeploy.agent.machine.sockets import DeadlineSocket
from tfdeploy.agent.supervision.heartbeat import signing
from tfdeploy.agent.supervision.heartbeat.signing import (
    ANSWER,
    REQUEST,
    Untrusted,
    describe_data,
    receive_line,
    sign,
    verify,
)

SECRET, SENDER = "s3cret", "worker:1"
BODY = {"state": "READY", "reason": "é😀\n\ud800"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def secret_of(sender):
    """Every task has the same secret here."""
    return SECRET


# Signed lines


@given(st.text(), st.dictionaries(st.text(), JSON, max_size=3))
def test_a_line_is_read_as_it_was_signed(nonce, body):
    line = sign(SECRET, REQUEST, SENDER, nonce.encode(errors="replace").decode(), body)
    assert line.count(b"\n") == 1
    assert verify(secret_of, REQUEST, line)[2] == body


def test_another_secret_is_not_trusted():
    with pytest.raises(Untrusted, match="does not know the secret"):
        verify(lambda sender: "another", REQUEST, sign(SECRET, REQUEST, SENDER, "1", BODY))


def test_a_request_is_not_accepted_as_an_answer():
    with pytest.raises(Untrusted):
        verify(secret_of, ANSWER, sign(SECRET, REQUEST, SENDER, "1", BODY))


def test_the_sender_is_signed():
    fields = json.loads(sign(SECRET, REQUEST, SENDER, "1", BODY))
    with pytest.raises(Untrusted, match="does not know the secret"):
        verify(secret_of, REQUEST, json.dumps({**fields, "sender": "ps:0"}).encode())


def test_a_line_with_a_flipped_bit_is_not_trusted():
    line = sign(SECRET, REQUEST, SENDER, "a1", {"state": "READY"})
    for index in range(len(line) - 1):
        for bit in (1, 0x20, 0x80):
            flipped = bytes([*line[:index], line[index] ^ bit, *line[index + 1 :]])
            try:
                assert verify(secret_of, REQUEST, flipped) == (SENDER, "a1", {"state": "READY"})
            except Untrusted:
                continue
            assert json.loads(flipped) == json.loads(line)  # a capital in an escape: the same text


GARBAGE = [
    b"", b"\0", b"hello", b"[]", b"7", b"null", b"{}", b'{"nonce": "1"}', b"\xff\xfe", b'"' * 99,
    b'{"sender": "", "nonce": "1", "body": {}, "mac": 1}',
    b'{"sender": [], "nonce": [], "body": "{}", "mac": null}',
    b'{"sender": "", "nonce": "\\ud800", "body": "{}", "mac": "x"}',
    b'{"sender": "", "nonce": "1", "body": "{}", "mac": "\\udfff"}',
    b'{"sender": "", "nonce": "1", "body": "{}", "mac": "\xc3\xa9"}',
    b"[" * 100_000, b'{"a":' * 100_000, b"SSH-2.0-OpenSSH_9.2", b"HTTP/1.1 400 Bad Request\r",
]  # fmt: skip


@pytest.mark.parametrize("line", GARBAGE, ids=lambda line: repr(line[:20]))
def test_a_line_in_another_format_is_not_trusted(line):
    with pytest.raises(Untrusted):
        verify(secret_of, ANSWER, line)


@given(st.binary(max_size=60))
def test_random_bytes_are_not_trusted(line):
    with pytest.raises(Untrusted):
        verify(secret_of, ANSWER, line)


# Requests


@contextmanager
def peer(handle):
    """Listen on loopback, call `handle` with the first connection, and yield the address."""

    def serve():
        with listener.accept()[0] as connection, suppress(OSError):  # the client has hung up
            handle(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        thread.join(5.0)


def send_request(address, timeout_s=5.0):
    host, port = address
    settings = make_heartbeat_settings(address=host, port=port, secret=SECRET, task=SENDER)
    return signing.request(settings, BODY, timeout_s)


def assert_untrusted(handle, match):
    """Check that the answer of this peer is not trusted, for the given reason."""
    with peer(handle) as address, pytest.raises(Untrusted, match=match):
        send_request(address)


def receive_request(connection):
    """Return the nonce and the body of a request."""
    line = receive_line(DeadlineSocket(connection, 5.0))
    sender, nonce, body = verify(secret_of, REQUEST, line)
    assert sender == SENDER
    return nonce, body


def answer_with(body, data=b"", nonce=None):
    """Return a handler that knows the secret and sends this answer."""

    def handle(connection):
        request_nonce, _ = receive_request(connection)
        connection.sendall(sign(SECRET, ANSWER, SENDER, nonce or request_nonce, body) + data)

    return handle


def test_a_request_gets_its_answer():
    requests = []

    def handle(connection):
        nonce, body = receive_request(connection)
        requests.append(body)
        connection.sendall(sign(SECRET, ANSWER, SENDER, nonce, {"ended": None}))

    with peer(handle) as address:
        assert send_request(address) == ({"ended": None}, b"")
    assert requests == [BODY]


def test_every_request_has_its_own_nonce():
    nonces = []
    for _ in range(2):
        assert_untrusted(
            lambda connection: nonces.append(receive_request(connection)[0]),
            "it closed the connection",
        )
    assert len(set(nonces)) == 2


def test_a_replayed_answer_is_not_trusted():
    assert_untrusted(
        answer_with({"ended": {"state": "SUCCEEDED"}}, nonce="0" * 32), "another request"
    )


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20])
def test_data_follows_its_answer(size):
    data = b"\n\0x" * (size // 3) + b"y" * (size % 3)
    with peer(answer_with(describe_data({"more": 1}, data), data)) as address:
        body, received = send_request(address)
    assert (body["more"], body["size"], received == data) == (1, size, True)


def test_changed_data_is_detected():
    data = b"tensor" * 1000
    assert_untrusted(answer_with(describe_data({}, data), data[:-1] + b"s"), "not what was signed")


def test_incomplete_data_is_detected():
    data = b"tensor" * 1000
    assert_untrusted(answer_with(describe_data({}, data), data[:3000]), "it closed the connection")


def test_an_incomplete_answer_is_detected():
    def handle(connection):
        nonce, _ = receive_request(connection)
        connection.sendall(sign(SECRET, ANSWER, SENDER, nonce, {"ended": None})[:-20])

    assert_untrusted(handle, "it closed the connection")


def test_a_line_without_an_end_is_rejected():
    def handle(connection):
        while True:
            connection.sendall(b"x" * 65536)

    assert_untrusted(handle, "a line without an end")


def test_a_silent_peer_times_out():
    silent = threading.Event()
    with peer(lambda connection: silent.wait(10.0)) as address:
        with pytest.raises(socket.timeout):
            send_request(address, timeout_s=0.2)
        silent.set()


def test_a_slow_peer_cannot_extend_the_deadline(monkeypatch):
    """By the client's clock, the peer sends a byte each second."""
    sent = []
    monkeypatch.setattr(sockets, "time", SimpleNamespace(monotonic=lambda: float(len(sent))))

    def handle(connection):
        for _ in range(1000):
            connection.sendall(b"x")
            sent.append(1)
            time.sleep(0.02)

    with peer(handle) as address, pytest.raises(socket.timeout):
        send_request(address, timeout_s=20.0)
    assert 3 < len(sent) < 1000


def test_a_closed_port_is_an_oserror():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        send_request(address)


@pytest.mark.parametrize("line", [b"SSH-2.0-OpenSSH_9.2\r\n", b"[" * 9999 + b"\n", b"\0\n"])
def test_a_stranger_is_not_trusted(line):
    assert_untrusted(lambda connection: connection.sendall(line), "is not a supervisor of this run")
