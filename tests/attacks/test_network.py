"""A stranger on the network, and another user of a host, try every port of a training."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from support.machines import MACHINES, docker
from support.sites import training

pytestmark = pytest.mark.slow

HOSTS = {"ps0": {"ps": 1}, "chief": {"workers": 1}}
STRANGER = "ps1"  # on the same network, but not in hosts.toml
SECOND = "198.18.0.7"  # no machine is in this network: RFC 2544
NO_PROGRAMS = "/dev/shm/tfdeploy with spaces"  # Docker mounts /dev/shm with noexec
PYTHON = "/opt/python/bin/python"
SERVER_PORT = 2222
METHODS = ("WorkerService/GetStatus", "MasterService/CreateSession", "MasterService/Reset")
# Prints, for each method and port, the gRPC code that the call ends with.
CALL = """
import grpc, sys
methods, endpoints = sys.argv[1].split(","), sys.argv[2:]
for endpoint in endpoints:
    for method in methods:
        with grpc.insecure_channel(endpoint) as channel:
            try:
                channel.unary_unary("/tensorflow." + method)(b"", timeout=60)
                print("OK")
            except grpc.RpcError as error:
                print(error.code().name)
"""
# Prints what a port sends to somebody who says something.
SAY = """
import socket, sys
for endpoint in sys.argv[1:]:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 60) as client:
            client.sendall(b'{"task": "ps:0", "state": "FAILED"}\\n')
            print(client.recv(9999))
    except OSError as error:
        print(type(error).__name__)
"""


def run_python(machine, code, *words, user="trainer"):
    """Run Python code on a machine; return the lines that it prints."""
    argv = (PYTHON, "-c", code, *words)
    return docker("exec", "-u", user, MACHINES[machine].container, *argv).splitlines()


def call(machine, endpoints, methods=METHODS, user="trainer"):
    return run_python(machine, CALL, ",".join(methods), *endpoints, user=user)


def listening(machine):
    """Return the ports on which the machine listens on the network, without its sshd."""
    rows = MACHINES[machine].shell("ss -tlnH").splitlines()
    local = [row.split()[3].rpartition(":") for row in rows]
    return sorted({port for address, _, port in local if not address.startswith("127.")} - {"22"})


def endpoints_of(machine):
    return [f"{MACHINES[machine].address}:{port}" for port in listening(machine)]


def servers():
    return [f"{MACHINES[host].address}:{SERVER_PORT}" for host in HOSTS]


def assert_it_goes_on(site):
    """Check that the tasks still reach each other."""
    site.wait_for_step("worker:0", "chief", beyond=site.step("worker:0", "chief"))
    assert site.states() == {"ps:0": "READY", "worker:0": "READY"}


@contextmanager
def second_address():
    """Let the worker connect to the ps from an address that the ps does not know."""
    worker, ps = MACHINES["chief"], MACHINES["ps0"]
    worker.root("ip", "address", "add", f"{SECOND}/32", "dev", "eth0")
    worker.root("ip", "route", "add", ps.address, "dev", "eth0", "src", SECOND)
    ps.root("ip", "route", "add", SECOND, "via", worker.address)
    try:
        yield
    finally:
        worker.root("ip", "route", "del", ps.address, "dev", "eth0", "src", SECOND)
        worker.root("ip", "address", "del", f"{SECOND}/32", "dev", "eth0")
        ps.root("ip", "route", "del", SECOND, "via", worker.address)


@pytest.fixture
def no_programs():
    """Hosts of which the ps's has a directory in which no program may run."""
    yield {**HOSTS, "ps0": {"ps": 1, "directory": NO_PROGRAMS}}
    MACHINES["ps0"].shell(f"chmod -R u+w '{NO_PROGRAMS}'; rm -rf '{NO_PROGRAMS}'")


def test_nobody_else_gets_an_answer_before_during_and_after_a_run(tmp_path, no_programs):
    """Where no program may run, too. A host that connects from another address is admitted by its
    proof."""
    silent = ["UNAVAILABLE"] * len(METHODS) * len(HOSTS)
    with training(tmp_path, "train_async.py", hosts=no_programs) as site:
        site.ok("push")
        assert call(STRANGER, servers()) == silent
        with second_address():
            site.ok("start")
            # First: not every refusal is logged.
            _assert_another_user_of_a_host_gets_no_answer(site)
            assert call(STRANGER, servers()) == silent
            _assert_no_port_says_anything_to_a_stranger()
            assert_it_goes_on(site)
            assert SECOND in MACHINES["ps0"].shell("ss -tnH state established sport = :2222")
            _assert_another_user_of_another_host_reaches_a_task_as_plan_says(site)
            assert_it_goes_on(site)
            site.ok("stop")
        assert call(STRANGER, servers()) == silent


def _assert_no_port_says_anything_to_a_stranger():
    ports = {host: listening(host) for host in HOSTS}
    assert str(SERVER_PORT) in ports["ps0"]
    assert len(ports["chief"]) == 2  # the worker's, and the supervisor's for heartbeats
    for host in HOSTS:
        for line in run_python(STRANGER, SAY, *endpoints_of(host)):
            assert line in ("b''", "ConnectionResetError"), (host, line)


def _assert_another_user_of_a_host_gets_no_answer(site):
    here = [f"127.0.0.1:{SERVER_PORT}", f"{MACHINES['chief'].address}:{SERVER_PORT}"]
    silent = ["UNAVAILABLE"] * len(METHODS) * len(here)
    assert call("chief", here, user="nobody") == silent
    # A port on this host does not open by the detour over its neighbour, or its address.
    assert call("ps0", servers()[:1], user="nobody") == ["UNAVAILABLE"] * len(METHODS)
    assert "refused a connection from 127.0.0.1" in "".join(site.log("worker:0", "chief"))


def _assert_another_user_of_another_host_reaches_a_task_as_plan_says(site):
    assert call("ps0", servers()[1:], METHODS[:1], user="nobody") == ["OK"]
    assert "all users of the run's other hosts" in site.ok("plan")


def test_another_user_of_another_host_of_the_run_gets_no_answer_from_a_strict_task(tmp_path):
    with training(tmp_path, "train_async.py", hosts=HOSTS, top={"network": "strict"}) as site:
        site.start()
        ps, chief = servers()
        for machine, endpoint in (("chief", ps), ("ps0", chief)):
            for user in ("nobody", "trainer"):  # trainer: not from a port of a task
                assert call(machine, [endpoint], user=user) == ["UNAVAILABLE"] * len(METHODS)
        assert call(STRANGER, servers()) == ["UNAVAILABLE"] * len(METHODS) * len(HOSTS)
        assert_it_goes_on(site)


def test_an_open_network_answers_a_stranger_and_says_so(tmp_path):
    with training(tmp_path, "train_stub.py", hosts=HOSTS, top={"network": "open"}) as site:
        site.start()
        assert call(STRANGER, servers(), METHODS[:1]) == ["OK", "OK"]
        assert 'network = "open": anyone who reaches' in site.tf("plan").stderr
        assert "network open" in site.ok("status").splitlines()[0]
