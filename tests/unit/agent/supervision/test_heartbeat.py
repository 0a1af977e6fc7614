"""Heartbeats of a run over real sockets, also while strangers connect or listen."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest
from support.builders import eventually, heartbeat_server, make_heartbeat_settings, no_files
from support.ports import free_port

from tfdeploy.agent.machine import sockets
from tfdeploy.agent.machine.sockets import DeadlineSocket
from tfdeploy.agent.supervision.heartbeat import client as clients
from tfdeploy.agent.supervision.heartbeat import messages, signing
from tfdeploy.agent.supervision.heartbeat import server as server_module
from tfdeploy.agent.supervision.heartbeat.client import HeartbeatClient
from tfdeploy.agent.supervision.heartbeat.messages import Answer, End, Offer, Question
from tfdeploy.agent.supervision.heartbeat.server import HeartbeatServer, Observer
from tfdeploy.shared.protocol.record import replace

NO_ANSWER = (OSError, signing.Untrusted)


def report_of(task, state="READY", reason=""):
    """Return the body of a report sent now."""
    return {"task": task, "state": state, "reason": reason, "sent_ns": time.monotonic_ns()}


def request(settings, body, *timeout_s):
    """Send a request as the task of the report, or as the chief."""
    ours = settings.of(body.get("task", settings.chief))
    return clients.request(ours, to_question(body), *timeout_s)


def to_question(body):
    return Question(**{name: body[name] for name in body if name != "task"})


def stored(server, task):
    return server.reports[task].state, server.reports[task].reason


@pytest.fixture
def short_intervals(monkeypatch):
    monkeypatch.setattr(clients, "INTERVAL_S", 0.02)
    monkeypatch.setattr(server_module, "REQUEST_TIMEOUT_S", 1.0)


@pytest.fixture
def patient_server(monkeypatch):
    """A server whose time limits no busy machine exceeds; only a defect has to wait for them."""
    monkeypatch.setattr(server_module, "REQUEST_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(sockets, "EVICT_S", 60.0)


@pytest.fixture
def start_client(short_intervals):
    """Create heartbeat clients that send nothing after the test."""
    ended = threading.Event()

    def create(settings, get_report):
        def get_report_during_test():
            if ended.is_set():
                threading.Event().wait()
            return to_question(get_report())

        return HeartbeatClient(settings.of("ps:0"), get_report_during_test)

    yield create
    ended.set()


# Answers


def test_a_report_is_stored_and_answered():
    with heartbeat_server() as (server, settings):
        answer, data = request(settings, report_of("ps:0", "BACKOFF", "exit 1"))
        unfinished = ["ps:0", "worker:1"]
        assert answer == Answer(unfinished=unfinished, seen_from="127.0.0.1", lists=answer.lists)
        assert data == b""
        assert stored(server, "ps:0") == ("BACKOFF", "exit 1")
        assert stored(server, "worker:1") == ("", "")


@pytest.mark.parametrize(
    "message", [Answer(), Answer(priority="high", unfinished=["a"]), Question(known_lists=None)]
)
def test_what_is_left_out_has_its_default(message):
    sent = messages.without_defaults(message)
    assert signing.read(type(message), sent) == message
    assert len(sent) < 3


def test_a_client_knows_for_how_long_a_host_that_has_answered_refuses(start_client):
    with heartbeat_server() as (_, settings):
        client = start_client(settings, lambda: report_of("ps:0"))
        assert client.send()
    assert eventually(lambda: client.refused_s > 0.1)
    with socket.create_server(("", settings.port)):
        assert eventually(lambda: client.refused_s == 0.0)
    early = start_client(replace(settings, port=free_port()), lambda: report_of("ps:0"))
    assert [early.send(), early.send(), early.refused_s] == [False, False, 0.0]


def test_the_addresses_that_hosts_report_are_passed_on():
    with heartbeat_server() as (server, settings):
        server.set_own_sources(["192.0.2.1"])
        request(settings, {**report_of("ps:0", "READY"), "sources": ["192.0.2.7"]})
        answer, _ = request(settings, report_of("worker:1", "READY"))
        assert answer.sources == ["192.0.2.1", "192.0.2.7"]


def test_a_task_has_the_sources_of_its_last_report():
    with heartbeat_server() as (server, settings):
        for sources in (["192.0.2.7", "192.0.2.8"], ["192.0.2.9"]):
            request(settings, {**report_of("ps:0"), "sources": sources})
        assert server.lists().sources == ["192.0.2.9"]


def test_few_sources_of_a_task_are_taken():
    with heartbeat_server() as (server, settings):
        many = [f"10.0.{n // 250}.{n % 250}" for n in range(2000)]
        request(settings, {**report_of("ps:0"), "sources": many})
        assert len(server.lists().sources) == messages.MAX_SOURCES


def test_only_addresses_are_sources_and_no_name_is_resolved(monkeypatch):
    def resolve(*arguments):
        raise AssertionError(arguments)

    with heartbeat_server() as (server, settings):
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        ours = replace(settings.of("ps:0"), address="127.0.0.1")
        for sources in (["\0", "example.org", "", "1.2.3", "::ffff:192.0.2.8", "fe80::1%eth0"], []):
            body = {**report_of("ps:0"), "sources": [*sources, "192.0.2.7"]}
            send_line(ours, sign_request(ours, body))
            expected = ["192.0.2.7", "192.0.2.8", "fe80::1"] if sources else ["192.0.2.7"]
            assert server.lists().sources == expected


def test_a_client_reports_the_address_from_which_it_was_seen(start_client):
    with heartbeat_server() as (server, settings):
        client = start_client(settings, lambda: {**report_of("ps:0"), "sources": ["192.0.2.7"]})
        assert eventually(lambda: server.lists().sources == ["127.0.0.1", "192.0.2.7"])
        assert client.answer.seen_from == "127.0.0.1"


# Messages that a stranger has read on the network


def sign_request(settings, body):
    """Return a request of the task of these settings, as it is on the network."""
    return signing.sign(settings.secret, signing.REQUEST, settings.task, os.urandom(16).hex(), body)


def send_line(settings, line, source="127.0.0.1"):
    """Send a line as it is, from an address; return what is answered."""
    with socket.socket() as connection:
        connection.bind((source, 0))
        connection.connect(("127.0.0.1", settings.port))
        connection.sendall(line)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_a_message_that_a_stranger_sends_admits_nobody():
    with heartbeat_server() as (server, settings):
        ps = settings.of("ps:0")
        line = sign_request(ps, {**report_of("ps:0"), "sources": ["192.0.2.7"]})
        assert send_line(ps, line, source="127.0.0.2")
        assert server.lists().sources == ["192.0.2.7"]


@pytest.mark.parametrize("wanted", [{}, {"file": "model-7.index"}, {"backup": True}])
def test_a_request_is_answered_once(wanted):
    with heartbeat_server(lambda file, offset: b"weights") as (server, settings):
        ps = settings.of("ps:0")
        first, last = ({**report_of("ps:0"), **wanted} for _ in range(2))
        lines = [sign_request(ps, body) for body in (first, last)]
        # Threads of a sender may overtake each other; strangers may not, and send nothing again.
        assert all(send_line(ps, line) for line in reversed(lines))
        reports = {**server.reports}
        assert [send_line(ps, line, source="127.0.0.2") for line in lines] == [b"", b""]
        assert server.reports == reports


def test_a_request_is_refused_when_its_nonce_is_forgotten_too():
    answered = signing.AnsweredOnce()
    for n in range(5):
        answered.take(f"nonce {n}", n * signing.LATEST_NS // 2)
    assert answered._nonces == {"nonce 2", "nonce 3", "nonce 4"}
    for n in range(5):
        with pytest.raises(signing.Untrusted):
            answered.take(f"nonce {n}", n * signing.LATEST_NS // 2)


def test_an_old_message_that_is_sent_again_takes_no_source_back():
    with heartbeat_server() as (server, settings):
        ps = settings.of("ps:0")
        old = sign_request(ps, {**report_of("ps:0"), "sources": ["192.0.2.7"]})
        send_line(ps, old)
        request(settings, {**report_of("ps:0"), "sources": ["192.0.2.8"]})
        send_line(ps, old)
        assert server.lists().sources == ["192.0.2.8"]


@pytest.mark.parametrize(
    "changes",
    [{"sources": "192.0.2.7"}, {"sources": [7]}, {"reason": ["x"]}, {"restarts": "many"},
     {"sent_ns": 1e999}, {"sent_ns": 1 << 70}, {"stops_run": 1}, {"state": {}}, {"file": 7}],
)  # fmt: skip
def test_a_message_of_wrong_types_does_not_count(changes):
    with heartbeat_server() as (server, settings):
        with pytest.raises(signing.Untrusted):
            request(settings, {**report_of("ps:0", "FAILED"), **changes})
        assert stored(server, "ps:0") == ("", "")


def test_a_reason_without_end_is_cut():
    with heartbeat_server() as (server, settings):
        request(settings, report_of("ps:0", "FAILED", "x" * 100_000))
        assert len(stored(server, "ps:0")[1]) == messages.MAX_TEXT


# Lists


def test_lists_that_the_sender_knows_are_not_sent_again():
    with heartbeat_server() as (_, settings):
        first, _ = request(settings, report_of("ps:0"))
        again, _ = request(settings, {**report_of("ps:0"), "known_lists": first.lists})
        assert (first.unfinished, again.unfinished) == (["ps:0", "worker:1"], [])
        changed = {**report_of("worker:1", "SUCCEEDED"), "known_lists": first.lists}
        answer, _ = request(settings, changed)
        assert answer.unfinished == ["ps:0"]


def test_a_client_keeps_the_lists_that_are_not_sent_again(start_client):
    with heartbeat_server() as (server, settings):
        client = start_client(settings, lambda: report_of("ps:0"))
        eventually(lambda: server.reports["ps:0"].sent_ns)
        for _ in range(3):
            assert client.send()
            assert client.answer.unfinished == ["ps:0", "worker:1"]
            assert client.answer.sources == ["127.0.0.1"]
        request(settings, report_of("worker:1", "SUCCEEDED"))
        assert client.send()
        assert client.answer.unfinished == ["ps:0"]


@pytest.mark.parametrize("count", [16, 200, 1000])
def test_an_answer_to_a_task_that_knows_the_lists_does_not_grow_with_the_run(count):
    tasks = ["ps:0", "worker:0", *(f"worker:{n}" for n in range(1, count))]
    with heartbeat_server(tasks=tasks) as (_, settings):
        first, _ = request(settings, report_of("ps:0"))
        again, _ = request(settings, {**report_of("ps:0"), "known_lists": first.lists})
        assert len(str(messages.without_defaults(again))) < 300


@pytest.mark.parametrize("question", [{}, {"advance": True}])
def test_a_request_that_needs_no_lists_gets_none(question):
    with heartbeat_server() as (_, settings):
        answer, _ = request(settings, {**question, "known_lists": None})
        assert (answer.unfinished, answer.sources) == ([], [])


def test_only_a_changed_report_or_a_new_address_is_news():
    news = []
    settings = make_heartbeat_settings(secret=os.urandom(8).hex())

    class Counting(Observer):
        def reported(self):
            news.append(1)

    server = HeartbeatServer(settings, Counting())
    found = replace(settings, port=server.port)
    try:
        counts = []
        for body in (
            report_of("ps:0"),
            report_of("ps:0"),
            report_of("ps:0", "FAILED"),
            report_of("ps:0", "FAILED", "exit 1"),
            {**report_of("ps:0", "FAILED", "exit 1"), "sources": ["192.0.2.7"]},
            {**report_of("ps:0", "FAILED", "exit 1"), "sources": ["192.0.2.7"]},
            {**report_of("ps:0", "FAILED", "exit 1"), "stops_run": True},
        ):
            request(found, body)
            counts.append(len(news))
        assert counts == [1, 1, 2, 3, 4, 4, 5]
    finally:
        server.close()


def test_only_an_answer_that_differs_is_news_for_a_client(monkeypatch):
    monkeypatch.setattr(clients, "INTERVAL_S", 3600.0)
    news = []
    with heartbeat_server() as (server, settings):
        client = HeartbeatClient(
            settings.of("ps:0"), lambda: to_question(report_of("ps:0")), lambda: news.append(1)
        )
        assert eventually(lambda: client.acknowledged)
        assert client.send()
        count = len(news)
        assert client.send()
        assert len(news) == count
        request(settings, report_of("worker:1", "SUCCEEDED"))
        assert client.send()
        server.ended = End("FAILED", "exit 1")
        assert client.send()
        assert client.send()
        assert len(news) == count + 2


def test_the_last_report_of_a_task_counts():
    with heartbeat_server() as (server, settings):
        before = server.reports["ps:0"].at
        for state in ("RUNNING", "READY"):
            request(settings, report_of("ps:0", state))
        assert stored(server, "ps:0") == ("READY", "")
        assert server.reports["ps:0"].at > before


def test_a_replayed_report_does_not_count():
    with heartbeat_server() as (server, settings):
        replayed = report_of("ps:0", "RUNNING")
        for body in (replayed, report_of("ps:0", "FAILED")):
            request(settings, body)
        last = server.reports["ps:0"]
        assert request(settings, replayed)[0].unfinished == ["worker:1"]
        assert server.reports["ps:0"] == last


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_a_task_that_reported_its_end_is_not_unfinished(state):
    with heartbeat_server() as (server, settings):
        assert request(settings, report_of("ps:0", state))[0].unfinished == ["worker:1"]
        assert server.unfinished_tasks() == ["worker:1"]


def test_every_answer_has_the_end_and_the_checkpoint():
    with heartbeat_server() as (server, settings):
        server.ended = End("SUCCEEDED", "exit 0")
        server.checkpoint = Offer("model-7")
        for task in ("ps:0", "worker:1"):
            answer = request(settings, report_of(task))[0]
            assert (answer.ended, answer.checkpoint) == (server.ended, server.checkpoint)


def test_a_request_without_a_report_is_answered():
    with heartbeat_server() as (server, settings):
        for body in ({}, report_of("worker:0"), report_of("nobody:9")):
            assert request(settings, body)[0].ended is None
        assert {task: report.state for task, report in server.reports.items()} == {
            "ps:0": "",
            "worker:1": "",
        }


def test_a_file_is_read_from_the_requested_offset():
    reads = []

    def read(file, offset):
        reads.append((file, offset))
        return b"bytes"

    with heartbeat_server(read) as (_, settings):
        assert request(settings, {"file": "model-7.index", "offset": 9})[1] == b"bytes"
    assert reads == [("model-7.index", 9)]


def test_a_refused_file_gets_no_answer_and_the_server_continues():
    with heartbeat_server(no_files) as (_, settings):
        with pytest.raises(signing.Untrusted):
            request(settings, {"file": "../../etc/passwd", "offset": 0})
        assert request(settings, {})[0].ended is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_the_server_listens_on_all_addresses_of_its_host(address):
    with heartbeat_server() as (_, settings):
        assert request(replace(settings, address=address), {})[0].ended is None


def test_a_port_that_is_taken_is_an_error():
    with (
        heartbeat_server() as (_, settings),
        pytest.raises(OSError, match="Address already in use"),
    ):
        HeartbeatServer(settings, Observer())


def test_a_closed_server_frees_its_port():
    with heartbeat_server(port=free_port()) as (server, settings):
        assert request(settings, {})[0].ended is None
        server.close()
        with pytest.raises(ConnectionRefusedError):
            request(settings, {})
        successor = HeartbeatServer(settings, Observer())
        assert request(settings, {})[0].ended is None
        server._server = successor._server  # the fixture closes it


def test_a_client_is_answered_later_if_no_file_can_be_opened():
    with (
        heartbeat_server() as (_, settings),
        socket.socket() as stranger,
        socket.socket() as client,
    ):
        with no_more_files():
            # The stranger gets the descriptor that accept() has reserved.
            stranger.connect(("127.0.0.1", settings.port))
            client.connect(("127.0.0.1", settings.port))
            client.sendall(signing.sign(settings.secret, signing.REQUEST, "worker:0", "nonce", {}))
            time.sleep(0.1)  # the server tries again meanwhile
        line = signing.receive_line(DeadlineSocket(client, 30.0))
        assert signing.verify(settings.secret_of, signing.ANSWER, line)[2]["lists"]


@contextmanager
def no_more_files():
    """Let this process open no further descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    os.close(last)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Strangers


def test_a_client_without_the_secret_gets_no_answer_and_is_not_believed():
    with heartbeat_server() as (server, settings):
        with pytest.raises(signing.Untrusted):
            request(replace(settings, secret="guessed"), report_of("ps:0", "FAILED"))
        assert stored(server, "ps:0") == ("", "")


def test_a_task_speaks_only_for_itself():
    with heartbeat_server() as (server, settings):
        neighbour = settings.of("worker:1")
        for sender in ("ps:0", settings.chief):
            with pytest.raises(signing.Untrusted):
                question = to_question(report_of("ps:0", "FAILED"))
                clients.request(replace(neighbour, task=sender), question)
        far_ahead = Question(state="FAILED", sent_ns=1 << 62)
        assert clients.request(neighbour, far_ahead)[0].unfinished == ["ps:0"]
        assert stored(server, "ps:0") == ("", "")
        request(settings, report_of("ps:0", "READY"))
        assert stored(server, "ps:0") == ("READY", "")


def test_no_task_but_the_chief_has_the_secret_of_another():
    chief = make_heartbeat_settings()
    ps, worker = chief.of("ps:0"), chief.of("worker:1")
    secrets = [chief.secret, ps.secret, worker.secret]
    assert len({*secrets, ps.secret_of("worker:1"), worker.secret_of("ps:0")}) == 5
    assert chief.of(chief.chief) == chief


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 99999 + b"\n", b"x" * (2 << 20), b"{}\n"],
)
def test_a_client_in_another_format_gets_no_answer_and_the_server_continues(data):
    with (
        heartbeat_server() as (_, settings),
        socket.create_connection(("127.0.0.1", settings.port)) as stranger,
    ):
        with suppress(
            OSError
        ):  # the server may hang up before everything is sent; ENOTCONN is possible, too
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
        assert request(settings, {})[0].ended is None


def test_idle_strangers_do_not_block_clients(patient_server):
    with heartbeat_server() as (_, settings), ExitStack() as strangers:
        for _ in range(sockets.MAX_CONNECTIONS + 16):
            strangers.enter_context(socket.create_connection(("127.0.0.1", settings.port)))
        assert [is_refused(settings) for _ in range(5)] == [False] * 5


def test_a_flood_from_one_address_takes_no_place_of_other_addresses(patient_server):
    with heartbeat_server() as (_, settings), ExitStack() as strangers:
        address, ps = ("127.0.0.1", settings.port), settings.of("ps:0")
        with socket.create_connection(address, 60.0) as slow:
            for _ in range(sockets.MAX_CONNECTIONS + 16):
                flood = socket.create_connection(address, source_address=("127.0.0.2", 0))
                strangers.enter_context(flood)
            assert eventually(lambda: not is_refused(settings))
            slow.sendall(sign_request(ps, report_of("ps:0")))
            assert slow.recv(1)


def test_clients_are_answered_on_a_host_that_allows_no_more_threads(monkeypatch, patient_server):
    def refuse(*words):
        raise RuntimeError("can't start new thread")

    with heartbeat_server() as (_, settings):
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert [is_refused(settings) for _ in range(3)] == [False] * 3


def is_refused(settings):
    try:
        request(settings, {}, 30.0)
    except NO_ANSWER:
        return True
    return False


def test_the_server_hangs_up_on_a_silent_stranger(short_intervals):
    with (
        heartbeat_server() as (_, settings),
        socket.create_connection(("127.0.0.1", settings.port)) as silent,
    ):
        silent.settimeout(60.0)
        assert silent.recv(1) == b""


# Many clients


def test_many_clients_are_answered_at_the_same_time(patient_server):
    tasks = [f"worker:{n}" for n in range(50)]
    with heartbeat_server(tasks=tasks, needed=[]) as (server, settings):
        with ThreadPoolExecutor(len(tasks)) as pool:
            answers = list(
                pool.map(lambda task: request(settings, report_of(task), 60.0), tasks[1:])
            )
        assert len(answers) == 49
        assert {report.state for report in server.reports.values()} == {"READY"}


# The client


def test_a_client_sends_reports_and_stores_answers(start_client):
    state = ["RUNNING"]
    with heartbeat_server() as (server, settings):
        client = start_client(settings, lambda: report_of("ps:0", state[0]))
        assert eventually(lambda: stored(server, "ps:0") == ("RUNNING", ""))
        state[0] = "READY"
        assert eventually(lambda: stored(server, "ps:0") == ("READY", ""))
        first = client.answered_at
        assert eventually(lambda: client.answered_at > first)
        assert client.answer.unfinished == ["ps:0", "worker:1"]
        assert client.ended_at is None


def test_the_time_of_the_first_answer_with_the_end_is_kept(start_client):
    with heartbeat_server() as (server, settings):
        client = start_client(settings, lambda: report_of("ps:0"))
        assert eventually(lambda: client.acknowledged)
        server.ended = End("FAILED", "exit 1")
        assert eventually(lambda: client.ended_at)
        first = client.ended_at
        assert eventually(lambda: client.answered_at > first)
        assert (client.ended_at, client.answer.ended.state) == (first, "FAILED")


def test_a_changed_state_is_sent_at_once(monkeypatch):
    monkeypatch.setattr(clients, "INTERVAL_S", 3600.0)
    state = ["RUNNING"]
    with heartbeat_server() as (server, settings):
        client = HeartbeatClient(
            settings.of("ps:0"), lambda: to_question(report_of("ps:0", state[0]))
        )
        assert eventually(lambda: stored(server, "ps:0")[0] == "RUNNING")
        state[0] = "READY"
        client.send_soon()
        assert eventually(lambda: stored(server, "ps:0")[0] == "READY")


def test_the_last_report_is_never_overtaken_by_an_older_one(monkeypatch):
    monkeypatch.setattr(clients, "INTERVAL_S", 3600.0)
    main_thread, is_sending = threading.current_thread(), threading.Event()

    def report():
        if threading.current_thread() is main_thread:
            return to_question(report_of("ps:0", "FAILED"))
        is_sending.set()
        time.sleep(0.2)
        return to_question(report_of("ps:0", "RUNNING"))

    with heartbeat_server() as (server, settings):
        client = HeartbeatClient(settings.of("ps:0"), report)
        assert is_sending.wait(60.0)
        assert client.send()
        assert client.acknowledged.state == "FAILED"
        assert not eventually(lambda: stored(server, "ps:0")[0] != "FAILED", within_s=0.4)


def stranger(port):
    """Listen on the chief's port and send malformed answers; the event is set after the first."""
    listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)

    def serve():
        while True:
            try:
                with listener.accept()[0] as connection:
                    connection.sendall(next(answers) + b"\n")
            except OSError:
                return
            served.set()

    served = threading.Event()
    answers = iter(
        [
            b"[" * 99999,
            b'{"sender": "", "nonce": "\\ud800", "body": "", "mac": "\\ud800"}',
            *[b"?"] * 9999,
        ]
    )
    threading.Thread(target=serve, daemon=True).start()
    return listener, served


def test_a_client_keeps_its_last_answer_while_a_stranger_answers(start_client):
    with heartbeat_server(port=free_port()) as (_, settings):
        client = start_client(settings, lambda: report_of("ps:0"))
        assert eventually(lambda: client.acknowledged)
    # A closed server still answers a request that it has received: wait until this is over.
    assert not client.send()
    answer, answered_at = client.answer, client.answered_at
    listener, served = stranger(settings.port)
    with listener:
        assert served.wait(60.0)
        listener.shutdown(socket.SHUT_RDWR)
    assert (client.answer, client.answered_at) == (answer, answered_at)
    restarted = HeartbeatServer(settings, Observer())
    try:
        assert eventually(lambda: client.answered_at > answered_at)
    finally:
        restarted.close()


def test_a_client_without_any_answer_has_none(start_client):
    settings = make_heartbeat_settings(port=1, secret=os.urandom(8).hex())
    client = start_client(settings, lambda: report_of("ps:0"))
    assert not client.send()
    assert (client.answer, client.acknowledged, client.ended_at) == (Answer(), None, None)
