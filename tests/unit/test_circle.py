"""The tasks of a run hear of each other: over real sockets, whoever else knocks or listens."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest

from tfdeploy.agent import circle, wire
from tfdeploy.agent.circle import Asker, Beacon
from unit.made import answering, eventually, no_files
from unit.made import circle as known_circle

UNBELIEVED = (OSError, wire.Untrusted)


def says(task, state="READY", reason=""):
    """What an asker says of its task, now."""
    return {"task": task, "state": state, "reason": reason, "asked": time.monotonic_ns()}


def heard(beacon, task):
    return beacon.heard[task].state, beacon.heard[task].reason


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(circle, "ASK_EVERY_S", 0.02)
    monkeypatch.setattr(circle, "TIMEOUT_S", 1.0)


@pytest.fixture
def asking(often):
    """Makes an Asker that asks no more once the test is over."""
    over = threading.Event()

    def make(known, report):
        def until_over():
            if over.is_set():
                threading.Event().wait()
            return report()

        return Asker(known, until_over)

    yield make
    over.set()


# What is told


def test_who_asks_is_told_how_it_goes_and_is_remembered():
    with answering() as (beacon, known):
        told, data = circle.ask(known, says("ps:0", "BACKOFF", "exit 1"))
        assert told == {"ended": None, "checkpoint": None, "going": ["ps:0", "worker:1"]}
        assert data == b""
        assert heard(beacon, "ps:0") == ("BACKOFF", "exit 1")
        assert heard(beacon, "worker:1") == ("", "")


def test_the_last_word_of_a_task_counts():
    with answering() as (beacon, known):
        before = beacon.heard["ps:0"].at
        for state in ("RUNNING", "READY"):
            circle.ask(known, says("ps:0", state))
        assert heard(beacon, "ps:0") == ("READY", "")
        assert beacon.heard["ps:0"].at > before


def test_a_word_that_is_said_again_by_who_listened_does_not_count():
    with answering() as (beacon, known):
        overheard = says("ps:0", "RUNNING")
        for body in (overheard, says("ps:0", "FAILED")):
            circle.ask(known, body)
        last = beacon.heard["ps:0"]
        assert circle.ask(known, overheard)[0]["going"] == ["worker:1"]
        assert beacon.heard["ps:0"] == last


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_who_has_ended_goes_no_more(state):
    with answering() as (beacon, known):
        assert circle.ask(known, says("ps:0", state))[0]["going"] == ["worker:1"]
        assert beacon.going() == ["worker:1"]


def test_the_end_and_the_checkpoint_are_told_to_all():
    with answering() as (beacon, known):
        beacon.ended = {"state": "SUCCEEDED", "reason": "exit 0"}
        beacon.checkpoint = {"name": "model-7"}
        for task in ("ps:0", "worker:1"):
            told = circle.ask(known, says(task))[0]
            assert (told["ended"], told["checkpoint"]) == (beacon.ended, beacon.checkpoint)


def test_anyone_with_the_secret_may_just_ask():
    with answering() as (beacon, known):
        for body in ({}, says("worker:0"), says("nobody:9")):
            assert circle.ask(known, body)[0]["ended"] is None
        assert {task: said.state for task, said in beacon.heard.items()} == {
            "ps:0": "",
            "worker:1": "",
        }


def test_a_file_is_read_from_where_it_is_asked():
    asked = []

    def read(file, offset):
        asked.append((file, offset))
        return b"bytes"

    with answering(read) as (_, known):
        assert circle.ask(known, {"file": "model-7.index", "offset": 9})[1] == b"bytes"
    assert asked == [("model-7.index", 9)]


def test_what_can_not_be_read_is_no_answer_and_harms_nobody():
    with answering(no_files) as (_, known):
        with pytest.raises(wire.Untrusted):
            circle.ask(known, {"file": "../../etc/passwd", "offset": 0})
        assert circle.ask(known, {})[0]["ended"] is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_the_chief_is_heard_at_every_address_of_its_host(address):
    with answering() as (_, known):
        assert circle.ask(replace(known, address=address), {})[0]["ended"] is None


def test_a_port_that_is_taken_is_an_error():
    with answering() as (_, known), pytest.raises(OSError, match="Address already in use"):
        Beacon(known, no_files)


def test_once_it_is_closed_it_is_heard_no_more_and_its_port_is_free():
    with answering() as (beacon, known):
        assert circle.ask(known, {})[0]["ended"] is None
        beacon.close()
        with pytest.raises(ConnectionRefusedError):
            circle.ask(known, {})
        again = Beacon(known, no_files)
        assert circle.ask(known, {})[0]["ended"] is None
        beacon._server = again._server  # to be closed in the end


def test_who_comes_when_no_file_can_be_opened_is_answered_later():
    with answering() as (_, known), socket.socket() as stranger, socket.socket() as asking:
        with no_more_files():
            stranger.connect(("127.0.0.1", known.port))  # gets the one that accept() took before
            asking.connect(("127.0.0.1", known.port))
            asking.sendall(wire.signed(known.secret, wire.ASK, "nonce", {}))
            time.sleep(0.1)  # meanwhile it tries
        line = wire.Line(asking, 30.0).line()
        assert wire.trusted(known.secret, wire.ANSWER, line)[1]["ended"] is None


@contextmanager
def no_more_files():
    """The next descriptor would be one too many for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    os.close(last)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Strangers


def test_who_does_not_know_the_secret_is_told_nothing_and_not_believed():
    with answering() as (beacon, known):
        with pytest.raises(wire.Untrusted):
            circle.ask(replace(known, secret="guessed"), says("ps:0", "FAILED"))
        assert heard(beacon, "ps:0") == ("", "")


@pytest.mark.parametrize(
    "words",
    [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 99999 + b"\n", b"x" * (2 << 20), b"{}\n"],
)
def test_who_speaks_otherwise_gets_no_word_and_harms_nobody(words):
    with answering() as (_, known), socket.create_connection(("localhost", known.port)) as stranger:
        with suppress(OSError):  # it may be hung up on before it has said all: also ENOTCONN
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
        assert circle.ask(known, {})[0]["ended"] is None


def test_strangers_who_stay_keep_nobody_out():
    with answering() as (_, known), ExitStack() as strangers:
        for _ in range(circle.AT_ONCE + 16):
            strangers.enter_context(socket.create_connection(("localhost", known.port)))
        assert [is_refused(known) for _ in range(5)] == [False] * 5


def is_refused(known):
    try:
        circle.ask(known, {}, 2.0)
    except UNBELIEVED:
        return True
    return False


def test_a_silent_stranger_is_hung_up_on(often):
    with answering() as (_, known), socket.create_connection(("localhost", known.port)) as silent:
        silent.settimeout(10.0)
        assert silent.recv(1) == b""


# Many at once


def test_many_are_answered_at_once():
    tasks = [f"worker:{n}" for n in range(50)]
    with answering(tasks=tasks, needed=[]) as (beacon, known):
        with ThreadPoolExecutor(len(tasks)) as pool:
            told = list(pool.map(lambda task: circle.ask(known, says(task)), tasks[1:]))
        assert len(told) == 49
        assert {said.state for said in beacon.heard.values()} == {"READY"}


# Asking on and on


def test_an_asker_hears_how_it_goes_and_says_how_it_is(asking):
    state = ["RUNNING"]
    with answering() as (beacon, known):
        asker = asking(known, lambda: says("ps:0", state[0]))
        assert eventually(lambda: heard(beacon, "ps:0") == ("RUNNING", ""))
        state[0] = "READY"
        assert eventually(lambda: heard(beacon, "ps:0") == ("READY", ""))
        first = asker.heard_at
        assert eventually(lambda: asker.heard_at > first)
        assert asker.told["going"] == ["ps:0", "worker:1"]
        assert asker.ended_at is None


def test_the_end_is_noted_when_it_is_heard_first(asking):
    with answering() as (beacon, known):
        asker = asking(known, lambda: says("ps:0"))
        assert eventually(lambda: asker.told)
        beacon.ended = {"state": "FAILED", "reason": "exit 1"}
        assert eventually(lambda: asker.ended_at)
        first = asker.ended_at
        assert eventually(lambda: asker.heard_at > first)
        assert (asker.ended_at, asker.told["ended"]["state"]) == (first, "FAILED")


def test_a_change_is_said_without_waiting(monkeypatch):
    monkeypatch.setattr(circle, "ASK_EVERY_S", 3600.0)
    state = ["RUNNING"]
    with answering() as (beacon, known):
        asker = Asker(known, lambda: says("ps:0", state[0]))
        assert eventually(lambda: heard(beacon, "ps:0")[0] == "RUNNING")
        state[0] = "READY"
        asker.hurry()
        assert eventually(lambda: heard(beacon, "ps:0")[0] == "READY")


def test_a_last_word_is_never_overtaken_by_an_older_one(monkeypatch):
    monkeypatch.setattr(circle, "ASK_EVERY_S", 3600.0)
    ours, on_its_way = threading.current_thread(), threading.Event()

    def report():
        if threading.current_thread() is ours:
            return says("ps:0", "FAILED")
        on_its_way.set()
        time.sleep(0.2)
        return says("ps:0", "RUNNING")

    with answering() as (beacon, known):
        asker = Asker(known, report)
        assert on_its_way.wait(5.0)
        assert asker.say()
        assert asker.said["state"] == "FAILED"
        assert not eventually(lambda: heard(beacon, "ps:0")[0] != "FAILED", within_s=0.4)


def stranger(port):
    """Someone else listens where the chief did: to each who asks it says something dreadful."""
    listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)

    def serve():
        while True:
            try:
                with listener.accept()[0] as connection:
                    connection.sendall(next(dreadful) + b"\n")
            except OSError:
                return
            served.set()

    served = threading.Event()
    dreadful = iter(
        [b"[" * 99999, b'{"nonce": "\\ud800", "body": "", "mac": "\\ud800"}', *[b"?"] * 9999]
    )
    threading.Thread(target=serve, daemon=True).start()
    return listener, served


def test_what_was_told_stays_while_the_chief_is_away_and_strangers_answer(asking):
    with answering() as (_, known):
        asker = asking(known, lambda: says("ps:0"))
        assert eventually(lambda: asker.told)
    told, heard_at = asker.told, asker.heard_at
    listener, served = stranger(known.port)
    with listener:
        assert served.wait(5.0)
        listener.shutdown(socket.SHUT_RDWR)
    assert (asker.told, asker.heard_at) == (told, heard_at)
    back = Beacon(known, no_files)
    try:
        assert eventually(lambda: asker.heard_at > heard_at)
    finally:
        back.close()


def test_an_asker_that_never_heard_anything_knows_nothing(asking):
    nobody = known_circle(port=1, secret=os.urandom(8).hex())
    asker = asking(nobody, lambda: says("ps:0"))
    assert not asker.say()
    assert (asker.told, asker.said, asker.ended_at) == ({}, {}, None)
