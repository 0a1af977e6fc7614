"""A page in a browser of somebody in the network posts to the ports that tfdeploy opens."""

from __future__ import annotations

import os
import socket
import time

from support.builders import heartbeat_server
from support.ports import ADDRESS

from tfdeploy.agent.supervision.heartbeat import signing

REQUEST = (
    "{} / HTTP/1.1\r\nHost: {}:{}\r\nOrigin: http://evil.example\r\n"
    "Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n"
)


def send(port, data):
    """Send data and return what comes back until the other side closes the connection."""
    with socket.create_connection((ADDRESS, port), 30) as connection:
        connection.sendall(data)
        received = b""
        try:
            while chunk := connection.recv(1 << 16):
                received += chunk
        except ConnectionResetError:
            pass
        return received


def test_a_request_of_http_is_no_heartbeat_even_with_a_signed_line_in_its_body():
    with heartbeat_server() as (server, settings):
        body = {"state": "FAILED", "reason": "evil", "sent_ns": time.monotonic_ns()}
        secret = settings.secret_of("ps:0")
        line = signing.sign(secret, signing.REQUEST, "ps:0", os.urandom(16).hex(), body)
        for method in ("POST", "GET", "PUT", "OPTIONS"):
            head = REQUEST.format(method, ADDRESS, server.port, len(line)).encode()
            assert send(server.port, head + line) == b""
        assert server.reports["ps:0"].state == ""
        assert send(server.port, line)  # as it counts without HTTP
        assert server.reports["ps:0"].state == "FAILED"
