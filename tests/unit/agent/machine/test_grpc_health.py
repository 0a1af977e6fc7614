"""Probes of real servers: gRPC, HTTP, an sshd banner, servers that are silent or send noise."""

from __future__ import annotations

import http.server
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from tfdeploy.agent.machine import grpc_health
from tfdeploy.agent.preflight import reachability
from tfdeploy.shared.protocol.preflight import Peer, PeerHealth

# An address for documentation (RFC 3849): no host has it and no route leads to it.
UNROUTABLE = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 1, 0, 0))
DEVICE = b"/job:%s/replica:0/task:%d/device:CPU:0"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
WINDOW_UPDATE = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\1"


def device(job, index):
    """Return a GetStatusResponse with one device, encoded as TensorFlow's protobuf."""
    name = DEVICE % (job.encode(), index)
    attributes = b"\x0a" + bytes([len(name)]) + name + b"\x12\x03CPU"
    return b"\x0a" + bytes([len(attributes)]) + attributes


def frame(kind, flags, payload):
    """Return an HTTP/2 frame on the stream of the first call."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, 1) + payload


@contextmanager
def tensorflow_server(answer):
    """Run a gRPC server and yield its port. It has GetStatus unless `answer` is None."""
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    if answer is not None:
        method = grpc.unary_unary_rpc_method_handler(answer)
        handlers = {"GetStatus": method}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("tensorflow.WorkerService", handlers),)
        )
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


@contextmanager
def raw_server(handle):
    """Run a server that calls `handle(connection)` for every client, and yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        try:
            while True:
                handle(listener.accept()[0])
        except OSError:
            pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def probe(port, task="worker:1", timeout_s=60.0):
    return grpc_health.probe("localhost", port, task, timeout_s)


# TensorFlow


def test_a_task_that_answers_with_its_own_name_is_ready():
    requests = []

    def answer(request, context):
        requests.append(request)
        return device("worker", 1)

    with tensorflow_server(answer) as port:
        assert probe(port) == grpc_health.Health("READY", "")
    assert requests == [b""]


@pytest.mark.parametrize("count", [40, 400])
def test_an_answer_in_many_frames_is_read_completely(count):
    with tensorflow_server(
        lambda *_: b"\x12\x7f" + b"x" * 127 * count + device("worker", 1)
    ) as port:
        assert probe(port).verdict == grpc_health.READY


def test_another_task_on_the_port_is_named():
    with tensorflow_server(lambda *_: device("ps", 0)) as port:
        assert probe(port) == grpc_health.Health("WRONG_TASK", "ps:0 answers on the port")


def test_a_task_with_another_index_is_the_wrong_task():
    with tensorflow_server(lambda *_: device("worker", 12)) as port:
        assert probe(port) == grpc_health.Health("WRONG_TASK", "worker:12 answers on the port")


def test_pings_padding_and_split_messages_are_understood():
    """The server waits for the echo of its ping, then sends padding and two frames."""
    message = b"\0" + struct.pack(">I", len(device("worker", 1))) + device("worker", 1)
    padded = b"\3" + message[:7] + b"\0" * 3
    received = []

    def handle(connection):
        connection.sendall(SETTINGS + WINDOW_UPDATE + b"\0\0\x08\x06\0\0\0\0\0" + b"echo-me!")
        while b"\0\0\x08\x06\1\0\0\0\0echo-me!" not in b"".join(received):
            received.append(connection.recv(4096))
        connection.sendall(frame(0, 8, padded) + frame(0, 0, message[7:]))

    with raw_server(handle) as port:
        assert probe(port) == grpc_health.Health("READY", "")
    assert b"\0\0\0\x04\1\0\0\0\0" in b"".join(received)


def test_a_server_without_devices_is_unnamed():
    with tensorflow_server(lambda *_: b"\x0a\x03abc") as port:
        assert probe(port) == grpc_health.Health(
            "WRONG_TASK", "an unnamed server answers on the port"
        )


def test_a_grpc_server_of_another_program_is_the_wrong_task():
    with tensorflow_server(None) as port:
        assert probe(port) == grpc_health.Health(
            "WRONG_TASK", "another gRPC server answers on the port"
        )


def test_an_empty_answer_is_the_wrong_task():
    with tensorflow_server(lambda *_: b"") as port:
        assert probe(port).verdict == grpc_health.WRONG_TASK


def test_a_task_that_does_not_answer_is_frozen():
    go = threading.Event()

    def answer(request, context):
        go.wait(60)
        return b""

    with tensorflow_server(answer) as port:
        assert probe(port, timeout_s=0.3).verdict == grpc_health.FROZEN
        go.set()


def test_a_program_that_need_not_answer_is_only_connected_to():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        peer = Peer("worker:1", "", "127.0.0.1", silent.getsockname()[1])
        assert reachability.probe_tasks([peer], 60.0) == [PeerHealth("worker:1", "READY", "")]


def test_many_probes_at_the_same_time_are_all_answered():
    with tensorflow_server(lambda *_: device("worker", 1)) as port:
        peers = [Peer("chief:0", "worker:1", "localhost", port)] * 20
        peers.append(Peer("ps:0", "ps:0", "localhost", port))
        answers = reachability.probe_tasks(peers, 60.0)
    assert answers == [
        *[PeerHealth("chief:0", "READY", "")] * 20,
        PeerHealth("ps:0", "WRONG_TASK", "worker:1 answers on the port"),
    ]
    assert reachability.probe_tasks([], 1.0) == []


# Other servers, and none


def test_a_closed_port_is_not_listening():
    with raw_server(lambda connection: None) as port:
        pass
    assert probe(port) == grpc_health.Health("NOT_LISTENING", "nothing listens on the port")


def test_an_unknown_name_is_unreachable():
    health = grpc_health.probe("no-such-host.invalid", 2222, "worker:1", 2.0)
    assert health.verdict == grpc_health.UNREACHABLE
    assert health.detail


def test_an_http_server_does_not_speak_grpc():
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

    web = http.server.HTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    health = probe(web.server_port)
    web.shutdown()
    thread.join()
    web.server_close()
    assert health.verdict == grpc_health.NOT_GRPC
    assert health.detail.startswith("it does not speak gRPC (its answer starts with b'")


@pytest.mark.parametrize(
    "banner",
    [b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64],
)
def test_a_server_with_another_first_frame_does_not_speak_grpc(banner):
    with raw_server(lambda connection: connection.sendall(banner)) as port:
        assert probe(port).verdict == grpc_health.NOT_GRPC


def test_a_server_that_hangs_up_does_not_speak_grpc():
    with raw_server(lambda connection: connection.close()) as port:
        assert probe(port).verdict == grpc_health.NOT_GRPC


def test_a_server_that_accepts_and_sends_nothing_is_frozen():
    connections = []
    with raw_server(connections.append) as port:
        assert probe(port, timeout_s=0.2) == grpc_health.Health(
            "FROZEN", "it accepts connections but does not answer"
        )


def test_a_listener_that_accepts_no_connection_is_frozen():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert probe(listener.getsockname()[1], timeout_s=0.2).verdict == grpc_health.FROZEN


@pytest.mark.parametrize(
    ("piece", "pause_s"),
    [(WINDOW_UPDATE, 0.001), (WINDOW_UPDATE * 100, 0), (SETTINGS, 0.001), (b"\0", 0.05)],
    ids=["frames", "a flood of frames", "frames to acknowledge", "a byte at a time"],
)
def test_a_probe_ends_in_time_if_the_server_sends_endlessly(piece, pause_s):
    ended = threading.Event()

    def handle(connection):
        connection.sendall(SETTINGS)
        while not ended.is_set():
            connection.sendall(piece)
            time.sleep(pause_s)

    with raw_server(handle) as port:
        answers = []
        prober = threading.Thread(target=lambda: answers.append(probe(port, timeout_s=0.2)))
        prober.start()
        prober.join(60.0)  # on a busy machine the last piece alone takes seconds
        in_time = not prober.is_alive()
        ended.set()
        prober.join()
    assert in_time
    assert answers[0].verdict in (grpc_health.FROZEN, grpc_health.NOT_GRPC)


def test_an_answer_over_the_size_limit_is_rejected():
    data = b"\0\x40\0\0\0\0\0\0\1" + b"\0\xff\xff\xff\xff" + b"x" * 16379

    def handle(connection):
        connection.sendall(SETTINGS)
        while True:
            connection.sendall(data)

    with raw_server(handle) as port:
        assert probe(port) == grpc_health.Health(
            "NOT_GRPC", "it does not speak gRPC (its answer is longer than 4194304 bytes)"
        )


@pytest.mark.parametrize(
    "noise", [b"\xff\xff\xff\x00\0\0\0\0\1", SETTINGS + b"\0\0\x08\x07" + b"\0" * 13]
)
def test_noise_does_not_speak_grpc(noise):
    with raw_server(lambda connection: [connection.sendall(noise), connection.close()]) as port:
        assert probe(port).verdict == grpc_health.NOT_GRPC


@pytest.mark.parametrize("size", [126, 127, 128, 253])
def test_a_host_with_a_long_name_can_be_probed(monkeypatch, size):
    """A name has up to 253 bytes; the length of a header of 127 or more takes two bytes."""
    resolve = socket.getaddrinfo
    name = ".".join(["a" * 60] * 5)[:size]
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: resolve("localhost", *rest))
    with tensorflow_server(lambda *_: device("worker", 1)) as port:
        assert grpc_health.probe(name, port, "worker:1", 60.0) == grpc_health.Health("READY", "")


@pytest.mark.parametrize("first", [True, False])
def test_an_address_without_a_network_does_not_hide_a_closed_port(monkeypatch, first):
    """localhost has one if /etc/hosts names ::1 and there is no IPv6."""
    resolve = socket.getaddrinfo

    def resolve_with_unroutable(*arguments, **options):
        addresses = resolve(*arguments, **options)
        return [UNROUTABLE, *addresses] if first else [*addresses, UNROUTABLE]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_with_unroutable)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert grpc_health.probe("localhost", port, "worker:0").verdict == grpc_health.NOT_LISTENING
