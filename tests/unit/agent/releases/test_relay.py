"""A host shares a release only with hosts that have the push's key, and only unchanged."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from contextlib import ExitStack

import pytest
from cryptography import x509
from support.builders import eventually
from support.ports import free_port

from tfdeploy.agent.machine import sockets
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.releases import receive, relay
from tfdeploy.release import snapshot
from tfdeploy.shared.pack import FRAME
from tfdeploy.transfer.relay import create_identity
from unit.agent.releases.test_receive import manifest, push, source, start_release  # noqa: F401 - a fixture

KEY = create_identity()
ID = "f00d"


@pytest.fixture(autouse=True)
def clear_staged_releases():
    receive.staged.clear()


@pytest.fixture
def tree(source):  # noqa: F811
    (source / "weights").write_bytes(os.urandom(700_000))
    return source


def share(tree):
    """Share the release of `tree` on a host; return the port."""
    assert push(tree) == []
    return relay.share("p", ID, [0], KEY).port


@pytest.fixture
def become_another_host(root, monkeypatch, tmp_path):
    """A function that makes this process another host, which has no release."""

    def become():
        monkeypatch.setattr("sys.argv", [os.fspath(tmp_path / "other" / "agent" / "abc")])
        return tmp_path / "other"

    return become


def fetch(port, key=KEY):
    return relay.fetch("p", ID, "127.0.0.1", port, key).wrong


def test_a_clock_that_is_years_off_refuses_no_certificate():
    certificate = x509.load_pem_x509_certificate(KEY[KEY.index("-----BEGIN CERT") :].encode())
    valid = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    assert [each.year for each in valid] == [1970, 9999]


def test_another_host_fetches_the_whole_release(tree, become_another_host):
    port = share(tree)
    other_root = become_another_host()
    start_release(tree)
    assert fetch(port) == []
    assert manifest(other_root / "p" / "releases" / ID) == manifest(tree)


@pytest.mark.parametrize("said", [b"", b"\x16"], ids=["nothing", "one byte"])
def test_strangers_have_few_threads_and_do_not_stop_a_fetch(
    tree, become_another_host, monkeypatch, said
):
    monkeypatch.setattr(relay, "HANDSHAKE_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(sockets, "EVICT_S", 60.0)
    port, before = share(tree), threading.active_count()
    become_another_host()
    start_release(tree)
    with ExitStack() as strangers:
        for _ in range(2 * sockets.MAX_CONNECTIONS):
            stranger = socket.create_connection(("127.0.0.1", port))
            strangers.enter_context(stranger).sendall(said)
        most = before + sockets.MAX_CONNECTIONS
        assert eventually(lambda: threading.active_count() >= most - 1)
        assert fetch(port) == []
        assert threading.active_count() <= most + 1


def test_the_first_free_port_is_used(tree, root):
    push(tree)
    with socket.create_server(("", 0)) as taken:
        ports = [taken.getsockname()[1], free_port()]
        assert relay.share("p", ID, ports, KEY).port == ports[1]


def test_no_free_port_is_refused(tree, root):
    push(tree)
    with socket.create_server(("", 0)) as taken, pytest.raises(Refusal, match="none of its ports"):
        relay.share("p", ID, [taken.getsockname()[1]], KEY)


def test_a_release_without_a_manifest_can_not_be_shared(root):
    with pytest.raises(Refusal, match="this host has no manifest of release f00d"):
        relay.share("p", ID, [0], KEY)


def test_a_release_that_was_not_started_can_not_be_fetched(tree, become_another_host):
    port = share(tree)
    become_another_host()
    with pytest.raises(Refusal, match="no push of release f00d is in progress"):
        fetch(port)


def answer_to(port, key):
    """Return what a host answers to a client that has this key ("": none)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if key:
        context = relay._tls_context(ssl.PROTOCOL_TLS_CLIENT, key)
        context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain) as sock,
    ):
        sock.sendall(b"[0]\n")
        return sock.recv(100)


@pytest.mark.parametrize("key", ["", create_identity()], ids=["no key", "another key"])
def test_a_client_without_the_key_gets_no_answer(tree, root, key):
    port = share(tree)
    with pytest.raises(OSError):
        assert answer_to(port, key) == b""
        raise OSError("hung up")


def test_a_host_with_another_key_is_rejected(tree, become_another_host):
    port = share(tree)
    become_another_host()
    start_release(tree)
    with pytest.raises(Refusal, match="can't be fetched from"):
        fetch(port, create_identity())


@pytest.mark.parametrize("lie", ["other content", "cut off", "no such file", "nothing"])
def test_a_host_that_sends_wrong_files_yields_no_release(tree, become_another_host, lie):
    other_root = become_another_host()
    start_release(tree)
    sent = {
        "other content": b"".join(FRAME.pack(at, 4) + b"evil" for at in range(len(manifest(tree)))),
        "cut off": FRAME.pack(0, 4) + b"ev",
        "no such file": FRAME.pack(1000, 4) + b"evil",
        "nothing": b"",
    }[lie]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_serve_wrong_files, args=(listener, sent), daemon=True)
        server.start()
        try:
            assert fetch(listener.getsockname()[1])
        except Refusal as refused:
            assert "can't be fetched from" in refused.message
        server.join(5)
    assert not (other_root / "p" / "releases" / ID).exists()


def _serve_wrong_files(listener, sent):
    plain, _ = listener.accept()
    context = relay._tls_context(ssl.PROTOCOL_TLS_SERVER, KEY)
    with context.wrap_socket(plain, server_side=True) as sock:
        json.loads(sock.recv(10_000))
        sock.sendall(sent)


def test_the_key_is_stored_in_no_file(tree, root, tmp_path):
    share(tree)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in files)
    assert snapshot.take(tree).size > 700_000
