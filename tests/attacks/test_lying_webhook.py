"""A webhook whose server lies: the notification fails in time, and its sentence hides the URL."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest
from support.ports import ADDRESS

from tfdeploy.agent.reports import notify
from tfdeploy.transfer.relay import create_identity

OK = b"HTTP/1.1 200 OK\r\n"


def flood(connection, data):
    while True:
        connection.sendall(data * 100)


def drip(connection, data):
    while True:
        for byte in data:
            connection.sendall(bytes([byte]))
            threading.Event().wait(0.05)


LIES = {
    "a status line by the byte": lambda c: drip(c, b"x"),
    "headers by the byte": lambda c: (c.sendall(OK), drip(c, b"A: b\r\n")),
    "Continue without end": lambda c: flood(c, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers without end": lambda c: (c.sendall(OK), flood(c, b"A: b\r\n")),
    "a header without end": lambda c: (c.sendall(OK), flood(c, b"A")),
    "a line without end": lambda c: flood(c, b"x"),
    "another protocol": lambda c: c.sendall(b"SSH-2.0-OpenSSH\r\n"),
    "escapes": lambda c: c.sendall(b"HTTP/1.1 500 \x1b]0;evil\x07\r\n\r\n"),
    "an end": lambda c: None,
}


@contextmanager
def server(lie, kind="http"):
    """Yield the URL of a server that does not read all of a request before it lies."""

    def serve():
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), connection:
                    connection.recv(1 << 16, socket.MSG_PEEK if kind == "https" else 0)
                    lie(connection)

    with socket.create_server((ADDRESS, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"{kind}://{ADDRESS}:{listener.getsockname()[1]}/SECRET"
        listener.shutdown(socket.SHUT_RDWR)


def failure(url, env, limit_s=notify.LIMIT_S):
    with pytest.raises(notify.NotSent) as failed:
        notify.send([url], b"{}", env, "/", limit_s)
    assert "SECRET" not in str(failed.value)
    assert str(failed.value).isprintable()
    return failed.value.reason


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_is_given_up_in_time(lie):
    with server(LIES[lie]) as url:
        reason = failure(url, {}, limit_s=1.0)
    expected = ("no answer within 1 s", "not a valid URL, or no valid answer", "HTTP 500 Internal",
                "Remote end closed connection", "Connection reset")  # fmt: skip
    assert reason.startswith(expected), reason


def test_a_body_without_end_is_not_read():
    with server(lambda c: (c.sendall(OK + b"\r\n"), flood(c, b"x"))) as url:
        assert notify.send([url], b"{}", {}, "/") == "HTTP 200"


def test_a_certificate_that_nobody_signed_is_refused(tmp_path):
    identity = tmp_path / "identity.pem"
    identity.write_text(create_identity())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(identity)
    read = []

    def answer(connection):
        with tls.wrap_socket(connection, server_side=True) as secured:
            read.append(secured.recv(1 << 16))
            secured.sendall(OK + b"\r\n")

    with server(answer, "https") as url:
        assert "certificate verify failed" in failure(url, {}).lower()
    assert read == []


@pytest.mark.parametrize("token", ["a\r\nX-Injected: 1", "a\nb", "a b", "\x00", "é\ud800"])
def test_a_token_adds_nothing_to_a_request(token):
    seen = []
    with server(lambda c: seen.append(c)) as url:
        reason = failure(f"{url}/{{TOKEN}}", {"TOKEN": token})
    assert reason.startswith("not a valid URL")
    assert seen == []
