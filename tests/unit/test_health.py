"""What a port says it is, asked of real servers: gRPC, HTTP, sshd's banner, silence, noise."""

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

from tfdeploy.agent import health, peers

DEVICE = b"/job:%s/replica:0/task:%d/device:CPU:0"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
WINDOW_UPDATE = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\1"


def device(job, index):
    """A GetStatusResponse with one device, as TensorFlow's protobuf lays it out."""
    name = DEVICE % (job.encode(), index)
    attributes = b"\x0a" + bytes([len(name)]) + name + b"\x12\x03CPU"
    return b"\x0a" + bytes([len(attributes)]) + attributes


def frame(kind, flags, payload):
    """A frame of HTTP/2 on the stream of the first call."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, 1) + payload


@contextmanager
def tensorflow(answer):
    """A gRPC server with WorkerService/GetStatus, or without where `answer` is None: its port."""
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
def server(talk):
    """A server that does `talk(connection)` with whoever comes: its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        try:
            while True:
                talk(listener.accept()[0])
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


def ask(port, task="worker:1", timeout_s=2.0):
    return health.ask("localhost", port, task, timeout_s)


# TensorFlow


def test_a_task_that_gives_its_own_name_is_ready():
    asked = []

    def answer(request, context):
        asked.append(request)
        return device("worker", 1)

    with tensorflow(answer) as port:
        assert ask(port) == health.Health("READY", "")
    assert asked == [b""]


@pytest.mark.parametrize("count", [40, 400])
def test_an_answer_in_many_frames_is_read_whole(count):
    with tensorflow(lambda *_: b"\x12\x7f" + b"x" * 127 * count + device("worker", 1)) as port:
        assert ask(port).verdict == health.READY


def test_another_task_is_named():
    with tensorflow(lambda *_: device("ps", 0)) as port:
        assert ask(port) == health.Health("WRONG_TASK", "ps:0 answers there")


def test_another_index_is_another_task():
    with tensorflow(lambda *_: device("worker", 12)) as port:
        assert ask(port) == health.Health("WRONG_TASK", "worker:12 answers there")


def test_what_http2_allows_around_an_answer_is_understood():
    """A ping that wants its echo before anything goes on, padding, and a message in two frames."""
    message = b"\0" + struct.pack(">I", len(device("worker", 1))) + device("worker", 1)
    padded = b"\3" + message[:7] + b"\0" * 3
    seen = []

    def talk(connection):
        connection.sendall(SETTINGS + WINDOW_UPDATE + b"\0\0\x08\x06\0\0\0\0\0" + b"echo-me!")
        while b"\0\0\x08\x06\1\0\0\0\0echo-me!" not in b"".join(seen):
            seen.append(connection.recv(4096))
        connection.sendall(frame(0, 8, padded) + frame(0, 0, message[7:]))

    with server(talk) as port:
        assert ask(port) == health.Health("READY", "")
    assert b"\0\0\0\x04\1\0\0\0\0" in b"".join(seen)


def test_a_server_without_devices_is_nobody():
    with tensorflow(lambda *_: b"\x0a\x03abc") as port:
        assert ask(port) == health.Health("WRONG_TASK", "nobody answers there")


def test_a_grpc_server_of_something_else_is_the_wrong_task():
    with tensorflow(None) as port:
        assert ask(port) == health.Health("WRONG_TASK", "another gRPC server answers there")


def test_an_empty_answer_is_the_wrong_task():
    with tensorflow(lambda *_: b"") as port:
        assert ask(port).verdict == health.WRONG_TASK


def test_a_task_that_does_not_answer_is_frozen():
    go = threading.Event()

    def answer(request, context):
        go.wait(5)
        return b""

    with tensorflow(answer) as port:
        assert ask(port, timeout_s=0.3).verdict == health.FROZEN
        go.set()


def test_many_asking_at_once_are_all_answered():
    with tensorflow(lambda *_: device("worker", 1)) as port:
        there = {"address": "localhost", "port": port}
        asked = [{"task": "chief:0", "name": "worker:1", **there}] * 20
        answers = peers.ask([*asked, {"task": "ps:0", "name": "ps:0", **there}], 5.0)
    assert answers == [
        *[{"task": "chief:0", "verdict": "READY", "detail": ""}] * 20,
        {"task": "ps:0", "verdict": "WRONG_TASK", "detail": "worker:1 answers there"},
    ]
    assert peers.ask([], 1.0) == []


# Everything else


def test_a_closed_port_is_not_listening():
    with server(lambda connection: None) as port:
        pass
    assert ask(port) == health.Health("NOT_LISTENING", "nothing listens there")


def test_an_unknown_name_is_unreachable():
    found = health.ask("no-such-host.invalid", 2222, "worker:1", 2.0)
    assert found.verdict == health.UNREACHABLE
    assert found.detail


def test_an_http_server_does_not_speak_grpc():
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

    web = http.server.HTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    found = ask(web.server_port)
    web.shutdown()
    thread.join()
    web.server_close()
    assert found.verdict == health.NOT_GRPC
    assert found.detail.startswith("it doesn't speak gRPC (it begins with b'")


@pytest.mark.parametrize(
    "banner",
    [b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64],
)
def test_a_server_that_begins_otherwise_does_not_speak_grpc(banner):
    with server(lambda connection: connection.sendall(banner)) as port:
        assert ask(port).verdict == health.NOT_GRPC


def test_a_server_that_hangs_up_does_not_speak_grpc():
    with server(lambda connection: connection.close()) as port:
        assert ask(port).verdict == health.NOT_GRPC


def test_a_server_that_accepts_and_says_nothing_is_frozen():
    kept = []
    with server(kept.append) as port:
        assert ask(port, timeout_s=0.2) == health.Health(
            "FROZEN", "it accepts connections and doesn't answer"
        )


def test_a_listener_that_accepts_nobody_is_frozen():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert ask(listener.getsockname()[1], timeout_s=0.2).verdict == health.FROZEN


@pytest.mark.parametrize(
    ("piece", "pause_s"),
    [(WINDOW_UPDATE, 0.001), (WINDOW_UPDATE * 100, 0), (SETTINGS, 0.001), (b"\0", 0.05)],
    ids=["frames", "a flood of frames", "frames to acknowledge", "a byte at a time"],
)
def test_a_server_that_never_comes_to_an_end_is_given_up_in_time(piece, pause_s):
    ended = threading.Event()

    def talk(connection):
        connection.sendall(SETTINGS)
        while not ended.is_set():
            connection.sendall(piece)
            time.sleep(pause_s)

    with server(talk) as port:
        answers = []
        asking = threading.Thread(target=lambda: answers.append(ask(port, timeout_s=0.2)))
        asking.start()
        asking.join(1.2)
        in_time = not asking.is_alive()
        ended.set()
        asking.join()
    assert in_time
    assert answers[0].verdict in (health.FROZEN, health.NOT_GRPC)


def test_an_answer_without_end_is_given_up():
    data = b"\0\x40\0\0\0\0\0\0\1" + b"\0\xff\xff\xff\xff" + b"x" * 16379

    def talk(connection):
        connection.sendall(SETTINGS)
        while True:
            connection.sendall(data)

    with server(talk) as port:
        assert ask(port) == health.Health(
            "NOT_GRPC", "it doesn't speak gRPC (its answer has no end)"
        )


@pytest.mark.parametrize(
    "noise", [b"\xff\xff\xff\x00\0\0\0\0\1", SETTINGS + b"\0\0\x08\x07" + b"\0" * 13]
)
def test_noise_is_no_answer(noise):
    with server(lambda connection: [connection.sendall(noise), connection.close()]) as port:
        assert ask(port).verdict == health.NOT_GRPC


@pytest.mark.parametrize("size", [126, 127, 128, 253])
def test_a_long_name_of_a_host_is_asked_as_well(monkeypatch, size):
    """Names have up to 253 bytes; a header of 127 or more takes two bytes for its length."""
    found = socket.getaddrinfo
    name = ".".join(["a" * 60] * 5)[:size]
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: found("localhost", *rest))
    with tensorflow(lambda *_: device("worker", 1)) as port:
        assert health.ask(name, port, "worker:1", 2.0) == health.Health("READY", "")
