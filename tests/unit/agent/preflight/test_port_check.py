"""A host tries the ports of others."""

from __future__ import annotations

import socket

from support.ports import free_ports

from tfdeploy.agent.preflight import port_check
from tfdeploy.shared.protocol.preflight import Address


def test_a_closed_port_is_reported_with_the_reason(tmp_path):
    open_port, closed = free_ports(2)
    with socket.create_server(("127.0.0.1", open_port)):
        at = [Address("127.0.0.1", port) for port in (open_port, closed)]
        assert port_check.try_ports(at, 5.0).answers == ["", "Connection refused"]
