"""What a host says about the tasks that it does not reach."""

from __future__ import annotations

import os
import socket
import struct
import threading

import pytest
from support.builders import as_unprivileged_user

from tfdeploy.agent.preflight.reachability import explain_refusal, probe_tasks
from tfdeploy.shared.protocol.preflight import REFUSED, Peer
from tfdeploy.shared.records import NOT_GRPC, NOT_LISTENING, UNREACHABLE

RESET = struct.pack("ii", 1, 0)  # SO_LINGER, as the guard closes: with a reset


@pytest.fixture
def resetting():
    """Yield a port where each connection is reset, by a process of this user."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def explain(address, port):
    peer = Peer("ps:0", "ps:0", address, port)
    return explain_refusal(peer, probe_tasks([peer], 60.0)[0])


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_the_guard_of_another_users_task_on_this_machine_is_named(resetting, tmp_path, address):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with as_unprivileged_user(tmp_path):
        found = explain(address, resetting)
    assert found.verdict == REFUSED
    assert found.detail == (
        "tfdeploy's guard refused a process of user nobody: those of the task belong to user "
        "root of the same machine"
    )


def test_the_guard_refuses_no_process_of_its_own_user(resetting):
    assert explain("127.0.0.1", resetting).verdict in (UNREACHABLE, NOT_GRPC)


def test_a_port_where_nothing_listens_is_not_the_guards(resetting, tmp_path):
    with socket.socket() as unused, as_unprivileged_user(tmp_path):
        unused.bind(("127.0.0.1", 0))
        assert explain("127.0.0.1", unused.getsockname()[1]).verdict == NOT_LISTENING
