"""A signed line there, a signed line back: whoever else answers, and however, is not believed."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import wire
from tfdeploy.agent.wire import ANSWER, ASK, Line, Untrusted, signed, trusted, with_bytes

SECRET = "s3cret"
BODY = {"task": "worker:1", "state": "READY", "reason": "é😀\n\ud800"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


# Lines


@given(st.text(), st.dictionaries(st.text(), JSON, max_size=3))
def test_a_line_is_read_as_it_was_signed(nonce, body):
    line = signed(SECRET, ASK, nonce.encode(errors="replace").decode(), body)
    assert line.count(b"\n") == 1
    assert trusted(SECRET, ASK, line)[1] == body


def test_another_secret_is_not_trusted():
    with pytest.raises(Untrusted, match="doesn't know the run's secret"):
        trusted("another", ASK, signed(SECRET, ASK, "1", BODY))


def test_a_question_is_no_answer():
    with pytest.raises(Untrusted):
        trusted(SECRET, ANSWER, signed(SECRET, ASK, "1", BODY))


def test_no_flipped_bit_is_trusted():
    line = signed(SECRET, ASK, "a1", {"state": "READY"})
    for place in range(len(line) - 1):
        for bit in (1, 0x20, 0x80):
            flipped = bytes([*line[:place], line[place] ^ bit, *line[place + 1 :]])
            try:
                assert trusted(SECRET, ASK, flipped) == ("a1", {"state": "READY"})
            except Untrusted:
                continue
            assert json.loads(flipped) == json.loads(line)  # a capital in an escape: the same text


GARBAGE = [
    b"", b"\0", b"hello", b"[]", b"7", b"null", b"{}", b'{"nonce": "1"}', b"\xff\xfe", b'"' * 99,
    b'{"nonce": "1", "body": {}, "mac": 1}', b'{"nonce": [], "body": "{}", "mac": null}',
    b'{"nonce": "\\ud800", "body": "{}", "mac": "x"}',
    b'{"nonce": "1", "body": "{}", "mac": "\\udfff"}',
    b'{"nonce": "1", "body": "{}", "mac": "\xc3\xa9"}',
    b"[" * 100_000, b'{"a":' * 100_000, b"SSH-2.0-OpenSSH_9.2", b"HTTP/1.1 400 Bad Request\r",
]  # fmt: skip


@pytest.mark.parametrize("line", GARBAGE, ids=lambda line: repr(line[:20]))
def test_what_is_no_line_of_ours_is_not_trusted(line):
    with pytest.raises(Untrusted):
        trusted(SECRET, ANSWER, line)


@given(st.binary(max_size=60))
def test_no_bytes_at_all_are_trusted(line):
    with pytest.raises(Untrusted):
        trusted(SECRET, ANSWER, line)


# Asking


@contextmanager
def peer(act):
    """Someone who listens on loopback and does `act` to whoever connects; the address."""

    def serve():
        with listener.accept()[0] as connection, suppress(OSError):  # who asked has hung up
            act(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        thread.join(5.0)


def ask(address, timeout_s=5.0):
    return wire.ask(address, SECRET, BODY, timeout_s)


def unbelieved(act, match):
    """Asked of this peer, nothing is believed, and why."""
    with peer(act) as address, pytest.raises(Untrusted, match=match):
        ask(address)


def asked(connection):
    """What came, from one who knows the secret."""
    return trusted(SECRET, ASK, Line(connection, 5.0).line())


def answers(body, data=b"", nonce=None):
    """One who knows the secret, and answers with this."""

    def act(connection):
        theirs, _ = asked(connection)
        connection.sendall(signed(SECRET, ANSWER, nonce or theirs, body) + data)

    return act


def test_an_answer_is_given_to_its_question():
    questions = []

    def act(connection):
        nonce, body = asked(connection)
        questions.append(body)
        connection.sendall(signed(SECRET, ANSWER, nonce, {"ended": None}))

    with peer(act) as address:
        assert ask(address) == ({"ended": None}, b"")
    assert questions == [BODY]


def test_every_question_has_a_nonce_of_its_own():
    nonces = []
    for _ in range(2):
        unbelieved(lambda connection: nonces.append(asked(connection)[0]), "ended in the middle")
    assert len(set(nonces)) == 2


def test_an_answer_that_was_given_before_is_not_believed():
    unbelieved(answers({"ended": {"state": "SUCCEEDED"}}, nonce="0" * 32), "another question")


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20])
def test_bytes_come_behind_their_answer(size):
    data = b"\n\0x" * (size // 3) + b"y" * (size % 3)
    with peer(answers(with_bytes({"more": 1}, data), data)) as address:
        body, got = ask(address)
    assert (body["more"], body["size"], got == data) == (1, size, True)


def test_a_flipped_bit_in_the_bytes_is_found():
    data = b"tensor" * 1000
    unbelieved(answers(with_bytes({}, data), data[:-1] + b"s"), "not those that were signed")


def test_half_of_the_bytes_are_none():
    data = b"tensor" * 1000
    unbelieved(answers(with_bytes({}, data), data[:3000]), "ended in the middle")


def test_half_of_an_answer_is_none():
    def act(connection):
        nonce, _ = asked(connection)
        connection.sendall(signed(SECRET, ANSWER, nonce, {"ended": None})[:-20])

    unbelieved(act, "ended in the middle")


def test_a_line_without_an_end_is_given_up():
    def act(connection):
        while True:
            connection.sendall(b"x" * 65536)

    unbelieved(act, "a line without an end")


def test_who_is_silent_is_given_up_in_time():
    silent = threading.Event()
    with peer(lambda connection: silent.wait(10.0)) as address:
        with pytest.raises(socket.timeout):
            ask(address, timeout_s=0.2)
        silent.set()


def test_one_deadline_holds_however_slowly_it_is_fed():
    fed = []

    def act(connection):
        for _ in range(1000):
            connection.sendall(b"x")
            fed.append(1)
            time.sleep(0.02)

    with peer(act) as address, pytest.raises(socket.timeout):
        ask(address, timeout_s=0.3)
    assert 3 < len(fed) < 1000


def test_nobody_at_all_is_an_error_of_the_system():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        ask(address)


@pytest.mark.parametrize("line", [b"SSH-2.0-OpenSSH_9.2\r\n", b"[" * 9999 + b"\n", b"\0\n"])
def test_a_stranger_is_not_believed(line):
    unbelieved(lambda connection: connection.sendall(line), "doesn't speak as a task of this run")
