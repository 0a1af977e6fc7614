"""Who listens on a port, as the kernel's tables show."""

from __future__ import annotations

import os
import socket

import pytest

from tfdeploy.agent.machine import listeners


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
def test_each_listener_on_a_port_is_listed_with_its_user_and_inode(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        inode = str(os.fstat(listener.fileno()).st_ino)
        with socket.create_connection(("::1" if ":" in address else "127.0.0.1", port)):
            assert listeners.of_port(port) == [(os.geteuid(), inode)]
    assert listeners.of_port(port) == []


def test_sockets_at_which_anybody_may_arrive_are_listed():
    with (
        socket.create_server(("", 0)) as tcp,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connected,
        socket.create_connection(("127.0.0.1", tcp.getsockname()[1])) as client,
    ):
        udp.bind(("::", 0))
        connected.connect(("127.0.0.1", 9))
        found = {each.inode: each for each in listeners.of_user(os.geteuid())}
        for sock, protocol in ((tcp, "tcp"), (udp, "udp")):
            inode, port = str(os.fstat(sock.fileno()).st_ino), sock.getsockname()[1]
            assert found[inode] == listeners.ListeningSocket(inode, port, protocol)
        assert not {str(os.fstat(each.fileno()).st_ino) for each in (connected, client)} & {*found}
        assert inode not in {each.inode for each in listeners.of_user(os.geteuid() + 1)}


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_connections_to_a_port_are_listed_by_the_sockets_of_those_who_connect(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert listeners.connected_to(port) == set()
        with socket.create_connection((address, port)) as client:
            assert listeners.connected_to(port) == {str(os.fstat(client.fileno()).st_ino)}
