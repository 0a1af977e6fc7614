"""A request that may arrive twice is repeated once, and only if its connection does not answer."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from support.builders import eventually

from tfdeploy.errors import CommandTimedOut, Unreachable
from tfdeploy.transport.daemon.ipc import EXIT, FAILED, INPUT, OUTPUT
from tfdeploy.transport.daemon.reusable_command import ReusableCommand

REQUEST = b"request\n"


class Site:
    """One host, and the streams that were opened to it. `is_opening` holds the next ones up."""

    host = "one"

    def __init__(self) -> None:
        self.streams: list[FakeStream] = []
        self.checks = 0
        self.answers = True
        self.is_gone = False
        self.is_opening = threading.Event()
        self.may_open = threading.Event()
        self.may_open.set()

    def start(self, argv):
        if self.streams:
            self.is_opening.set()
            self.may_open.wait()
        if self.is_gone:
            raise Unreachable("one", "no SSH answer")
        self.streams.append(FakeStream())
        return self.streams[-1]

    def is_alive(self, stream):
        self.checks += 1
        return self.answers


class FakeStream:
    """A stream whose outputs the test writes: a chunk, b"" at its end, or an error."""

    is_idle = True

    def __init__(self):
        self.sent = b""
        self.reads = 0
        self.outputs = []
        self.is_closed = False

    def send(self, data):
        self.sent += bytes(data)

    def read(self, timeout_s):
        self.reads += 1
        threading.Event().wait(0.001)
        if self.is_closed:
            return b""
        if not self.outputs:
            raise CommandTimedOut("one", "it wrote nothing")
        output = self.outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return output

    def result(self):
        return SimpleNamespace(stdout=b"", stderr=b"", exit=0)

    def close(self):
        self.is_closed = True


class Client:
    """A client that sends one request and stays until the test lets it leave."""

    def __init__(self):
        self.inputs = [(INPUT, REQUEST)]
        self.left = threading.Event()
        self.received = []

    def next(self):
        if self.inputs:
            return self.inputs.pop()
        self.left.wait()
        return b"", b""

    def is_peer_gone(self):
        return self.left.is_set()

    def send(self, kind, data=b""):
        self.received.append((kind, bytes(data)))


@pytest.fixture
def site():
    return Site()


@pytest.fixture
def client():
    client = Client()
    yield client
    client.left.set()


def serve(site, client):
    """Serve the client in a thread, as the daemon does; return the thread."""
    command = ReusableCommand(["agent"], site)

    def run():
        command.serve(client, repeatable=True)
        command.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_request_is_repeated_on_another_connection(site, client):
    site.answers = False
    serve(site, client)
    assert eventually(lambda: len(site.streams) == 2 and site.streams[1].sent == REQUEST)
    first, second = site.streams
    second.outputs = [b"answer", b""]
    assert eventually(lambda: client.received and client.received[-1][0] == EXIT)
    assert client.received[0] == (OUTPUT, b"answer")
    assert first.is_closed


def test_a_host_that_answers_is_asked_once(site, client):
    serve(site, client)
    assert eventually(lambda: site.streams[0].reads > 20)
    assert site.checks == 1
    site.answers = False  # the network pauses
    site.streams[0].outputs = [b"answer"]
    assert eventually(lambda: client.received == [(OUTPUT, b"answer")])
    assert len(site.streams) == 1


def test_the_connection_stays_if_no_other_one_can_be_opened(site, client):
    site.answers, site.is_gone = False, False
    site.may_open.clear()
    serve(site, client)
    assert site.is_opening.wait(60)
    assert not site.streams[0].is_closed
    site.is_gone = True
    site.may_open.set()
    site.streams[0].outputs = [b"answer"]
    assert eventually(lambda: client.received)
    assert client.received == [(OUTPUT, b"answer")]


def test_a_connection_that_is_lost_later_is_replaced(site, client):
    serve(site, client)
    assert eventually(lambda: site.checks == 1)
    site.streams[0].outputs = [Unreachable("one", "the connection was lost")]
    assert eventually(lambda: len(site.streams) == 2 and site.streams[1].sent == REQUEST)
    site.streams[1].outputs = [Unreachable("one", "the connection was lost")]
    assert eventually(lambda: client.received)  # only once
    assert client.received[0][0] == FAILED


def test_the_request_of_a_client_that_has_left_is_not_repeated(site, client):
    site.answers = False
    site.may_open.clear()
    served = serve(site, client)
    assert site.is_opening.wait(60)
    client.left.set()
    served.join(60)
    site.may_open.set()
    assert eventually(lambda: len(site.streams) == 2 and site.streams[1].is_closed)
    assert site.streams[1].sent == b""
