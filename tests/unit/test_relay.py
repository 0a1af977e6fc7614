"""A release passes from host to host to those alone who hold the push's key, and only unchanged."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading

import pytest

from tfdeploy import identity, release
from tfdeploy.agent import relay, releases
from tfdeploy.agent.payload import FRAME
from tfdeploy.agent.refusal import Refusal
from unit.test_releases import begun, manifest, pushed, source  # noqa: F401 - a fixture

KEY = identity.made()
ID = "f00d"


@pytest.fixture(autouse=True)
def nothing_is_left():
    releases.growing.clear()


@pytest.fixture
def tree(source):  # noqa: F811
    (source / "weights").write_bytes(os.urandom(700_000))
    return source


def shared(tree):
    """The port on which a host shares the release of `tree`."""
    assert pushed(tree) == []
    return relay.share("p", ID, [0], KEY)["port"]


@pytest.fixture
def another(root, monkeypatch, tmp_path):
    """From now on we are another host, which has nothing."""

    def become():
        monkeypatch.setattr("sys.argv", [os.fspath(tmp_path / "other" / "agent" / "abc")])
        return tmp_path / "other"

    return become


def fetched(port, key=KEY):
    return relay.fetch("p", ID, "127.0.0.1", port, key)["wrong"]


def test_another_host_gets_all_of_it(tree, another):
    port = shared(tree)
    there = another()
    begun(tree)
    assert fetched(port) == []
    assert manifest(there / "p" / "releases" / ID) == manifest(tree)


def test_the_first_free_port_is_taken(tree, root):
    pushed(tree)
    with socket.create_server(("", 0)) as taken, socket.create_server(("", 0)) as free:
        ports = [taken.getsockname()[1], free.getsockname()[1]]
        free.close()
        assert relay.share("p", ID, ports, KEY)["port"] == ports[1]


def test_no_free_port_is_refused(tree, root):
    pushed(tree)
    with socket.create_server(("", 0)) as taken, pytest.raises(Refusal, match="none of its ports"):
        relay.share("p", ID, [taken.getsockname()[1]], KEY)


def test_what_is_not_here_can_not_be_shared(root):
    with pytest.raises(Refusal, match="what release f00d holds is not known here"):
        relay.share("p", ID, [0], KEY)


def test_what_was_not_begun_can_not_be_fetched(tree, another):
    port = shared(tree)
    another()
    with pytest.raises(Refusal, match="release f00d was not begun here"):
        fetched(port)


def stranger(port, key):
    """What a host says to somebody who has no key, or another one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if key:
        context = relay._context(ssl.PROTOCOL_TLS_CLIENT, key)
        context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain) as sock,
    ):
        sock.sendall(b"[0]\n")
        return sock.recv(100)


@pytest.mark.parametrize("key", ["", identity.made()], ids=["no key", "another key"])
def test_a_stranger_is_not_answered(tree, root, key):
    port = shared(tree)
    with pytest.raises(OSError):
        assert stranger(port, key) == b""
        raise OSError("hung up")


def test_a_host_with_another_key_is_not_believed(tree, another):
    port = shared(tree)
    another()
    begun(tree)
    with pytest.raises(Refusal, match="can't be fetched from"):
        fetched(port, identity.made())


@pytest.mark.parametrize("lie", ["other content", "cut off", "no such file", "nothing"])
def test_a_host_that_lies_gives_no_release(tree, another, lie):
    there = another()
    begun(tree)
    said = {
        "other content": b"".join(FRAME.pack(at, 4) + b"evil" for at in range(len(manifest(tree)))),
        "cut off": FRAME.pack(0, 4) + b"ev",
        "no such file": FRAME.pack(1000, 4) + b"evil",
        "nothing": b"",
    }[lie]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        liar = threading.Thread(target=_lie, args=(listener, said), daemon=True)
        liar.start()
        try:
            assert fetched(listener.getsockname()[1])
        except Refusal as refused:
            assert "can't be fetched from" in refused.message
        liar.join(5)
    assert not (there / "p" / "releases" / ID).exists()


def _lie(listener, said):
    plain, _ = listener.accept()
    with relay._context(ssl.PROTOCOL_TLS_SERVER, KEY).wrap_socket(plain, server_side=True) as sock:
        json.loads(sock.recv(10_000))
        sock.sendall(said)


def test_the_key_lies_in_no_file(tree, root, tmp_path):
    shared(tree)
    held = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert held
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in held)
    assert release.snapshot(tree).size > 700_000
