"""The preloaded library: whom a listener that runs under it admits, and how it connects."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from support.builders import as_unprivileged_user, end_processes, start_python
from support.ports import free_port, free_row

import tfdeploy
from tfdeploy.agent.machine import guard, interfaces

FOLDER = Path(tfdeploy.__file__).parent / "inside" / "preload"
PACKAGE = FOLDER.parents[2]
LIBRARY = FOLDER / f"{os.uname().machine}.so"
GREETING = b"admitted"
LISTEN = """
import socket, sys
listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
print(listener.getsockname()[1], flush=True)
while True:
    connection, peer = listener.accept()
    assert peer[0].endswith((".1", "::1")), peer
    connection.sendall(b"admitted")
    connection.close()
"""
# Accepts the first connection only after a line of input, and prints what it receives.
LISTEN_LATE = """
import socket
listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
print(listener.getsockname()[1], flush=True)
input()
print(listener.accept()[0].recv(99).decode(), flush=True)
"""
CLOSE_AT_ONCE = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as client:
    client.sendall(b"my address")
print("closed", flush=True)
"""
# Connects to one server from 16 processes at the same moment; prints their ports and exits.
CONNECT_AT_ONCE = """
import os, socket, sys, time
begin = time.time() + 0.3
for _ in range(16):
    if not os.fork():
        while time.time() < begin:
            pass
        client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        os.write(1, b"%d " % client.getsockname()[1])
        os._exit(0)
ends = [os.wait()[1] for _ in range(16)]
print(*set(ends), flush=True)
"""
# Forbids sockets of the family 16, AF_NETLINK, to this process. Source: seccomp(2). The filter:
# load the system call's number; if it is socket(2), load the family; if that is 16, fail.
WITHOUT_NETLINK = """
import ctypes, os, platform, struct
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 16),
         (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(
    ctypes.get_errno())
import socket
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    raise SystemExit("netlink is not forbidden")
except PermissionError:
    pass
"""
# Prints how many bytes of files the process reads to admit a connection.
COUNT_BYTES = """
import socket
def bytes_read():
    with open("/proc/self/io") as file:  # source: proc(5)
        return int(file.readline().split()[1])
own = bytes_read()
own = bytes_read() - own
listener = socket.create_server(("", 0))
client = socket.create_connection(listener.getsockname())
before = bytes_read()
listener.accept()
print(bytes_read() - before - own, flush=True)
"""
CONNECT = """
import socket, sys
client = socket.socket()
if sys.argv[2:]:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(sys.argv[2]))
client.connect(("127.0.0.1", int(sys.argv[1])))
options = [client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
    options.append(client.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)))
print(*options, flush=True)
"""
# Prints the ports from which it connects to a server: of three sockets, and of one that is bound.
CONNECT_OFTEN = """
import socket, sys
bound, kept = int(sys.argv[2]), []
for port in (0, 0, 0, bound):
    kept.append(socket.socket())
    if port:
        kept[-1].bind(("", port))
    kept[-1].connect(("127.0.0.1", int(sys.argv[1])))
print(*(client.getsockname()[1] for client in kept), flush=True)
"""
# Prints whether a process has loaded the library, without and with LD_PRELOAD.
PREPARE = """
import subprocess, sys
package, sys.argv[0] = sys.argv[1:]
sys.path.insert(0, package)
from tfdeploy.agent.machine import guard
for env in ({}, {"LD_PRELOAD": guard.prepare()}):
    words = [sys.executable, "-S", "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        print(guard.is_loaded(child.pid))
        child.kill()
"""


@pytest.fixture
def listen(tmp_path):
    """Start a listener that greets everybody it admits; return its port."""
    started = []

    def start(*, guarded, peers=None, netlink=True):
        file = tmp_path / "peers"
        file.write_text("")
        env = {**os.environ, "LD_PRELOAD": str(LIBRARY)}
        if guarded:
            env["TFDEPLOY_PEERS"] = peers or str(file)
            env["TFDEPLOY_LOCAL_PORTS"] = "61440 61471"
        with (tmp_path / "errors").open("w") as errors:
            code = LISTEN if netlink else WITHOUT_NETLINK + LISTEN
            started.append(start_python(code, env=env, stderr=errors))
        return int(started[-1].first_line)

    yield start
    end_processes(started)


def answer(address, port):
    """Return what the listener sends; "reset" if it refuses the connection."""
    try:
        with socket.create_connection((address, port), timeout=60) as client:
            client.sendall(b"hello")
            return client.recv(99)
    except ConnectionResetError:
        return "reset"


@pytest.mark.parametrize("netlink", [True, False], ids=["sock_diag", "tables"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
def test_the_same_user_is_admitted(listen, address, netlink):
    if address == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert answer(address, listen(guarded=True, netlink=netlink)) == GREETING


@pytest.mark.parametrize("netlink", [True, False], ids=["sock_diag", "tables"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_another_user_of_the_host_is_refused(listen, tmp_path, address, netlink):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    port = listen(guarded=True, netlink=netlink)
    with as_unprivileged_user(tmp_path):
        assert answer(address, port) == "reset"
    assert answer(address, port) == GREETING
    assert "refused a connection from 127.0.0.1 (1 so far)" in (tmp_path / "errors").read_text()


def test_a_list_whose_path_is_too_long_admits_nobody_else(listen, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    port = listen(guarded=True, peers=f"{'/' * 4096}{tmp_path}/peers")
    with as_unprivileged_user(tmp_path):
        assert answer("127.0.0.1", port) == "reset"
    assert answer("127.0.0.1", port) == GREETING


def test_an_address_on_the_list_does_not_admit_another_user_of_the_host(listen, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    port = listen(guarded=True)
    (tmp_path / "peers").write_text("127.0.0.1\n")
    with as_unprivileged_user(tmp_path):
        assert answer("127.0.0.1", port) == "reset"


def test_another_user_who_closes_at_once_is_not_heard(listen, tmp_path):
    """The system then shows the connection as one of root, who is admitted."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    port = listen(guarded=True)
    with as_unprivileged_user(tmp_path):
        for _ in range(200):
            # It may be refused before it can send.
            with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"write a file")
        assert answer("127.0.0.1", port) == "reset"
    refused = re.findall(r"\((\d+) so far\)", (tmp_path / "errors").read_text())
    assert int(refused[-1]) == 128  # of 201, reported at each power of two


def hold_ports(count):
    """Hold free ports in a row until this process ends, as a supervisor does; return the first and
    the last."""
    while True:
        row = free_row(count)
        if guard._hold(row[0], count):
            return row[0], row[-1]


@pytest.mark.parametrize("netlink", [True, False], ids=["sock_diag", "tables"])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "0.0.0.0", "::1", "own"])
def test_a_process_of_this_user_that_closes_at_once_is_admitted(tmp_path, address, netlink):
    """NCCL's processes send the first one their addresses in this way."""
    address = next(interfaces.addresses())[0] if address == "own" else address
    (tmp_path / "peers").write_text("")
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_PEERS": str(tmp_path / "peers")}
    env["TFDEPLOY_LOCAL_PORTS"] = "{} {}".format(*hold_ports(4))
    code = LISTEN_LATE if netlink else WITHOUT_NETLINK + LISTEN_LATE
    listener = start_python(code, env=env, stdin=subprocess.PIPE)
    client = start_python(CLOSE_AT_ONCE, address, listener.first_line, env=env)
    listener.stdin.write("\n")
    listener.stdin.close()
    received = listener.stdout.readline().strip()
    end_processes([client, listener])
    assert received == "my address"


def test_a_program_does_not_connect_to_itself():
    """From the port to which it connects, TCP would."""
    port = free_port()
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_LOCAL_PORTS": f"{port} {port}"}
    code = "import socket, sys; print(socket.socket().connect_ex(('127.0.0.1', int(sys.argv[1]))))"
    connected = start_python(code, str(port), env=env)
    end_processes([connected])
    assert int(connected.first_line) == errno.ECONNREFUSED


def test_a_user_who_takes_the_names_of_claims_takes_no_port(listen):
    first, last = hold_ports(3)
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_LOCAL_PORTS": f"{first} {last}"}
    with ExitStack() as stack:
        for port in range(first, last + 1):
            claim = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            claim.bind(f"\0tfdeploy-port-{port}")
        connected = start_python(
            CONNECT_OFTEN, str(listen(guarded=False)), str(free_port()), env=env
        )
    end_processes([connected])
    used = [int(word) for word in connected.first_line.split()]
    assert sorted(used[:3]) == [first, first + 1, last]


def test_processes_that_connect_at_the_same_moment_have_different_ports(listen):
    first, last = hold_ports(32)
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_LOCAL_PORTS": f"{first} {last}"}
    connected = start_python(CONNECT_AT_ONCE, str(listen(guarded=False)), env=env)
    end_processes([connected])
    *used, end = map(int, connected.first_line.split())
    assert end == 0
    assert len({*used} & {*range(first, last + 1)}) == 16


def test_without_a_list_everybody_is_admitted(listen, tmp_path):
    port = listen(guarded=False)
    with as_unprivileged_user(tmp_path):
        assert answer("127.0.0.1", port) == GREETING


def test_a_connection_is_admitted_without_reading_the_table_of_all_sockets(tmp_path):
    (tmp_path / "peers").write_text("")
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_PEERS": str(tmp_path / "peers")}
    counts = []
    for code in (COUNT_BYTES, WITHOUT_NETLINK + COUNT_BYTES):
        counting = start_python(code, env=env)
        counts.append(int(counting.first_line))
        end_processes([counting])
    row = 150  # bytes; each table has a header, and there are at least two sockets
    assert counts[0] < row < 4 * row <= counts[1]


def test_a_connection_notices_that_the_other_side_is_gone(listen):
    port, env = listen(guarded=True), {**os.environ, "LD_PRELOAD": str(LIBRARY)}
    connected = start_python(CONNECT, str(port), env=env)
    end_processes([connected])
    assert connected.first_line == "1 15 15 20"


def test_a_program_keeps_the_keepalive_that_it_has_set(listen):
    port, env = listen(guarded=True), {**os.environ, "LD_PRELOAD": str(LIBRARY)}
    connected = start_python(CONNECT, str(port), "99", env=env)
    end_processes([connected])
    assert connected.first_line.startswith("1 99 ")


def test_a_program_connects_from_the_ports_of_its_task_and_from_each_once(listen):
    (first, last), own = hold_ports(2), free_port()
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_SOURCE_PORTS": f"{first} {last}"}
    connected = start_python(CONNECT_OFTEN, str(listen(guarded=False)), str(own), env=env)
    end_processes([connected])
    used = [int(word) for word in connected.first_line.split()]
    assert sorted(used[:2]) == [first, last]
    assert used[2] not in used[:2]  # from any other port, so that other hosts refuse it
    assert used[3] == own  # the program has chosen it


@pytest.mark.parametrize("ports", ["", "x", "9", "9 8"])
def test_ports_of_a_task_that_make_no_sense_are_none(listen, ports):
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_SOURCE_PORTS": ports}
    connected = start_python(CONNECT, str(listen(guarded=False)), env=env)
    end_processes([connected])
    assert connected.first_line == "1 15 15 20"


@pytest.mark.parametrize(("processor", "machine"), [("x86_64", 62), ("aarch64", 183)])
def test_each_library_was_built_from_this_source_for_its_processor(processor, machine):
    data = (FOLDER / f"{processor}.so").read_bytes()
    assert struct.unpack_from("<H", data, 18) == (machine,)  # e_machine, source: elf(5)
    sources = b"".join(source.read_bytes() for source in sorted(FOLDER.glob("*.c")))
    assert hashlib.sha256(sources).hexdigest().encode() in data


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_each_library_needs_no_newer_glibc_than_tensorflow(processor):
    data = (FOLDER / f"{processor}.so").read_bytes()
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", data)
    assert versions
    assert max((int(major), int(minor)) for major, minor in versions) <= (2, 17)


@pytest.mark.parametrize("name", ["agent", "my models", "a:b"])
def test_the_library_can_be_loaded_from_any_folder(tmp_path, name):
    agent = tmp_path / name
    shutil.copytree(FOLDER, agent / "preload")
    command = [sys.executable, "-c", PREPARE, str(PACKAGE), str(agent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "True"]


def test_a_library_that_cannot_be_loaded_is_reported_with_the_reason(tmp_path):
    agent = tmp_path / "my models"
    (agent / "preload").mkdir(parents=True)
    (agent / "preload" / LIBRARY.name).write_bytes(b"no library")
    command = [sys.executable, "-c", PREPARE, str(PACKAGE), str(agent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("contains a space or a colon\n")
