"""A host that is silent is given up after a few quick tries, one that refuses at once."""

from __future__ import annotations

import socket

import pytest
from paramiko.ssh_exception import NoValidConnectionsError
from support.ports import ADDRESS, free_port
from support.silent_host import silent_port

from tfdeploy.transport.ssh.dial import HostSilent, dial


def test_a_host_that_listens_is_connected():
    with socket.create_server((ADDRESS, 0)) as server:
        dial(ADDRESS, server.getsockname()[1], (60.0,)).close()


def test_a_host_that_refuses_is_not_tried_again():
    with pytest.raises(NoValidConnectionsError, match="Unable to connect"):
        dial(ADDRESS, free_port(), (3600.0, 3600.0))


def test_a_host_that_drops_packets_is_silent():
    with silent_port() as port, pytest.raises(HostSilent) as silent:
        dial(ADDRESS, port, (0.1, 0.2))
    assert silent.value.seconds >= 0.3


@pytest.mark.slow
def test_a_host_that_loses_the_first_packets_is_reached_by_a_later_try(monkeypatch):
    tries = []
    connect = socket.socket.connect

    def lossy(self, address):
        tries.append(address)
        if len(tries) < 3:
            raise TimeoutError
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", lossy)
    with socket.create_server((ADDRESS, 0)) as server:
        dial(ADDRESS, server.getsockname()[1], (1.0, 1.0, 60.0)).close()
    assert len(tries) == 3


def test_an_unknown_name_is_an_error_of_its_own():
    with pytest.raises(socket.gaierror):
        dial("no.such.host.invalid", 22, (1.0,))
