"""Who listens on a port, as the kernel answers and as its tables show."""

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


def test_the_kernel_and_its_tables_list_the_same_listeners():
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        with socket.create_server(("127.0.0.2", port)):
            asked = [
                found for family in listeners.FAMILIES for found in listeners.ask(family, port)
            ]
            assert len(asked) == 2
            assert sorted(listeners.listed(port)) == sorted(asked)
