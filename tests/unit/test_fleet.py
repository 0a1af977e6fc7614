"""Many hosts at once: none waits for another that is slow or gone, and Ctrl-C waits for none."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from tfdeploy import at_once, fleet
from tfdeploy.agent.records import TaskReport, to_json
from tfdeploy.errors import AgentError, FleetError, TfdeployError, Unreachable
from tfdeploy.fleet import Fleet, Following
from unit.made import eventually, inventory, python

GONE_S = 1.0


def hosts(count):
    """A fleet that nobody connects to."""
    tables = (f"[hosts.gpu{n:03}]\nport = {10_000 + n}\nworkers = 1" for n in range(count))
    return Fleet(inventory("\n".join(tables)))


@contextmanager
def black_hole():
    """An address that never answers: its backlog is full, so the kernel drops who knocks."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hole:
        knocking = [socket.socket() for _ in range(3)]
        for knock in knocking:
            knock.setblocking(False)
            knock.connect_ex(hole.getsockname())
        yield hole.getsockname()
        for knock in knocking:
            knock.close()


# Outcomes


def test_every_outcome_is_kept_in_the_order_of_the_hosts():
    def act(agent):
        if agent.host.endswith("1"):
            raise AgentError(agent.host, "no")
        return agent.host

    names = [f"gpu{n:03}" for n in range(40)][::-1]
    outcomes = hosts(40).outcomes(names, act)
    assert list(outcomes) == names
    assert {h for h, o in outcomes.items() if isinstance(o, AgentError)} == {
        "gpu001", "gpu011", "gpu021", "gpu031",
    }  # fmt: skip
    assert all(outcomes[host] in (host,) for host in names if not host.endswith("1"))


def test_each_raises_all_errors_when_every_host_is_done():
    done = []

    def act(agent):
        done.append(agent.host)
        raise Unreachable(agent.host, "gone")

    with pytest.raises(FleetError) as raised:
        hosts(50).each([f"gpu{n:03}" for n in range(50)], act)
    assert len(done) == len(raised.value.errors) == 50
    assert str(raised.value) == "gpu[000-049]: gone"


def test_a_failure_is_told_when_it_happens():
    """While another host is still at work."""
    told = threading.Event()

    def act(agent):
        if agent.host == "gpu000":
            raise Unreachable(agent.host, "gone")
        return told.wait(20)

    outcomes = hosts(2).outcomes(["gpu000", "gpu001"], act, lambda error: told.set())
    assert outcomes["gpu001"] is True


def test_what_is_no_outcome_is_raised_when_all_are_done():
    done = []

    def act(agent):
        if agent.host == "gpu000":
            raise ZeroDivisionError
        done.append(agent.host)

    with pytest.raises(ZeroDivisionError):
        hosts(3).outcomes(["gpu000", "gpu001", "gpu002"], act)
    assert sorted(done) == ["gpu001", "gpu002"]


def test_the_living_do_not_wait_for_one_in_twenty_that_is_gone():
    """All the others are done before the first of those is given up."""
    many = hosts(1000)
    gone = {f"gpu{n:03}" for n in range(0, 1000, 20)}
    living, given_up = [], []

    def act(agent):
        if agent.host in gone:
            with pytest.raises(TimeoutError):
                socket.create_connection(address, GONE_S)
            given_up.append(time.monotonic())
            raise Unreachable(agent.host, "no answer")
        living.append(time.monotonic())

    with black_hole() as address:
        outcomes = many.outcomes(many.agents, act)
    assert sum(isinstance(outcome, Unreachable) for outcome in outcomes.values()) == 50
    assert max(living) < min(given_up)


def test_threads_are_bounded():
    most = []

    def act(agent):
        most.append(threading.active_count())
        time.sleep(0.001)

    before = threading.active_count()
    many = hosts(600)
    many.outcomes(many.agents, act)
    assert max(most) <= before + fleet.AT_ONCE


def test_more_hosts_than_the_usual_descriptors_raise_their_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        hosts(fleet.MANY)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, hard)
        hosts(fleet.MANY + 1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 1 << 16), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("connections", "processes"), [(2, 0), (1, 2)])
def test_where_descriptors_are_few_connections_are_closed_and_opened_again(
    home, monkeypatch, connections, processes
):
    """What answered the first question answers the next ones, unless it was closed."""
    monkeypatch.setattr(fleet, "MANY", 0)
    monkeypatch.setattr(fleet, "_connections", lambda: connections)
    begun, counting = home / "begun", home / "python"
    counting.write_text(f'#!/bin/sh\necho >> {begun}\nexec {sys.executable} "$@"\n')
    counting.chmod(0o755)
    lines = f'[hosts.here]\ntransport = "local"\nworkers = 1\npython = "{counting}"'
    with Fleet(inventory(lines)) as one:
        one.each(["here"], offer)  # ships it
        begun.write_text("")
        for _ in range(2):
            assert one.each(["here"], offer) == {"here": False}
    assert len(begun.read_text()) == processes


def offer(agent):
    return agent.ask("offer", {"project": "p", "release": "f00d"})["present"]


# Ctrl-C. The main thread of a process of its own is interrupted, as in a terminal.

INTERRUPTED = """
import sys, threading
sys.path[:0] = sys.argv[1].split(":")
from tfdeploy import at_once
at_once.PATIENCE_S = float(sys.argv[2])
begun, over = [], threading.Event()
def act(one):
    begun.append(one)
    if len(begun) == 4:
        print("begun", flush=True)
    over.wait()
    sys.stdout.write("ended\\n")
try:
    at_once.each(act, range(100), 4)
except KeyboardInterrupt:
    print("interrupted", len(begun), flush=True)
"""


@contextmanager
def interrupted(patience_s, code=INTERRUPTED):
    listens = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    path = ":".join(filter(None, sys.path))
    process = python(code, path, str(patience_s), preexec_fn=listens)
    try:
        assert process.said == "begun"
        process.send_signal(signal.SIGINT)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_ctrl_c_begins_nothing_more_and_leaves_what_does_not_end():
    """Not even the interpreter's own end waits for it."""
    with interrupted(0.1) as process:
        assert process.stdout.read() == "interrupted 4\n"
        assert process.wait(10) == 0


def test_ctrl_c_lets_what_is_being_done_end():
    code = INTERRUPTED.replace("over.wait()", "over.wait(1.0)")
    with interrupted(20.0, code) as process:
        assert process.stdout.read() == "ended\n" * 4 + "interrupted 4\n"


@pytest.fixture
def listening():
    """As in a terminal: a shell lets what it begins in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_was_left_at_a_ctrl_c_ends_before_its_host_is_asked_again(listening, monkeypatch):
    """A stop must not overtake the start that it takes back."""
    monkeypatch.setattr(at_once, "PATIENCE_S", 0.05)
    two, said = hosts(2), []
    begun, go_on = threading.Event(), threading.Event()

    def start(agent):
        if agent.host == "gpu000":
            begun.set()
            go_on.wait(20)
            said.append("started")

    def stop(agent):
        said.append(f"stopped {agent.host}")
        if agent.host == "gpu001":
            go_on.set()

    def interrupt():
        begun.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        two.outcomes(["gpu000", "gpu001"], start)
    two.outcomes(["gpu000", "gpu001"], stop)
    assert said == ["stopped gpu001", "started", "stopped gpu000"]


# Following


class Told:
    """A host that is followed; its first answer comes when it may."""

    def __init__(self, first):
        self._first, self._over = first, threading.Event()

    def __iter__(self):
        self._first()
        yield {"state": to_json(TaskReport("w:0", "READY", 0.0, 7, None, 0, ""))}
        self._over.wait()
        yield {"end": True}

    def enough(self):
        self._over.set()

    close = enough


class Followed:
    def __init__(self, host, first):
        self.host, self._first = host, first

    def follow(self, body):
        return Told(self._first)


def following(count, first):
    body = {"tasks": ["w:0"], "forever": True}
    return Following({Followed(f"gpu{n}", first): body for n in range(count)})


def test_many_are_followed_and_so_many_connected_to_at_a_time():
    connecting, most, lock = [], [], threading.Lock()

    def first():
        with lock:
            connecting.append(1)
            most.append(len(connecting))
        time.sleep(0.01)
        with lock:
            connecting.pop()

    heard = set()
    with following(500, first) as many:
        for host, event in many.events(time.monotonic() + 60):
            assert not isinstance(event, TfdeployError)
            heard.add(host)
            if len(heard) == 500:
                break
    assert len(heard) == 500
    assert max(most) <= fleet.AT_ONCE


def test_hosts_that_hang_do_not_keep_others_from_being_heard(monkeypatch):
    monkeypatch.setattr(fleet, "TURN_S", 0.1)
    hung, over = [], threading.Event()

    def first():
        if len(hung) < fleet.AT_ONCE:
            hung.append(1)
            over.wait(60)

    with following(fleet.AT_ONCE + 3, first) as many:
        heard = [next(events)[0] for events in [many.events()] for _ in range(3)]
        over.set()
    assert len(set(heard)) == 3


def test_leaving_ends_every_listener():
    before = threading.active_count()
    with following(200, lambda: None) as many:
        next(many.events())
    assert eventually(lambda: threading.active_count() <= before)


def test_when_no_thread_can_be_begun_any_more_nothing_more_is_done(monkeypatch):
    done, begun, start = [], [], threading.Thread.start

    def few(thread):
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    def do(one):
        time.sleep(0.2)
        done.append(one)

    monkeypatch.setattr(threading.Thread, "start", few)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        at_once.each(do, range(50), 8)
    assert len(done) <= len(begun)
    assert not any(thread.is_alive() for thread in begun)


def test_a_cursor_of_another_task_than_was_asked_for_is_refused():
    lie = {"state": {"task": "worker:0"}, "cursor": "x"}
    with pytest.raises(AgentError, match="a task that it was not asked for"):
        fleet._refuse_nonsense("here", {"tasks": ["worker:0"]}, lie)


@pytest.mark.parametrize(
    "answer",
    [{"state": {"task": "worker:0", "state": 3}}, {"task": "worker:0", "cursor": 3, "lines": []}],
)
def test_a_host_that_talks_nonsense_of_its_task_is_refused(answer):
    with pytest.raises(AgentError, match=r"^here: its answer makes no sense"):
        fleet._refuse_nonsense("here", {"tasks": ["worker:0"]}, answer)
