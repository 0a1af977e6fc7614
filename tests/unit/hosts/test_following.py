"""Many hosts are followed at once: none delays the events, or the end, of the others."""

from __future__ import annotations

import threading
import time

import pytest
from support.builders import eventually

from tfdeploy.errors import CommandTimedOut, NotTrusted, TfdeployError, Unreachable
from tfdeploy.hosts import following as following_module
from tfdeploy.hosts.events import EVENT_BYTES, MAX_WAITING_BYTES, Listener
from tfdeploy.hosts.following import Following, FollowTimes, Subscription
from tfdeploy.shared.protocol.preflight import FreePorts, Ports
from tfdeploy.shared.protocol.reports import Follow, StateChange
from tfdeploy.shared.records import TaskReport


class Stream:
    """The events of a host; the first one comes when it may."""

    answer_bytes = MAX_WAITING_BYTES // 2

    def __init__(self, first):
        self._first, self._over = first, threading.Event()

    def __iter__(self):
        self._first()
        yield StateChange(TaskReport("w:0", "READY", 0.0, 7, None, 0, ""))
        self._over.wait()

    def finish(self):
        self._over.set()

    close = finish


class FakeAgent:
    def __init__(self, host, first):
        self.host, self._first = host, first

    def stream(self, request, silence_s):
        return Stream(self._first)


def following(count, first, times=following_module.TIMES):
    request = Follow("p", "r", ["w:0"], logs=False, lines=None, forever=True)
    subscriptions = {FakeAgent(f"gpu{n}", first): Subscription(request) for n in range(count)}
    return Following(subscriptions, times=times)


def test_an_error_that_is_not_of_the_host_is_raised_and_not_tried_again():
    def refuse():
        raise NotTrusted("hosts.toml names a file of another user")

    with following(1, refuse) as hosts:
        [(host, error)] = hosts.events()
    with pytest.raises(NotTrusted):
        Listener().dispatch(host, error)


def test_many_hosts_are_followed_but_only_some_connect_at_a_time():
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
    assert max(most) <= following_module.MAX_CONNECTING


def test_hosts_that_hang_do_not_block_the_events_of_others():
    hung, over = [], threading.Event()

    def first():
        if len(hung) < following_module.MAX_CONNECTING:
            hung.append(1)
            over.wait(60)

    with following(following_module.MAX_CONNECTING + 3, first, FollowTimes(connect_s=0.1)) as many:
        heard = [next(events)[0] for events in [many.events()] for _ in range(3)]
        over.set()
    assert len(set(heard)) == 3


def test_hosts_wait_until_their_events_are_handled():
    sent = []
    with following(8, lambda: sent.append(1)) as few:
        assert eventually(lambda: len(sent) == 8)
        assert few._events.waiting_bytes <= MAX_WAITING_BYTES + Stream.answer_bytes + EVENT_BYTES
        assert len({next(events)[0] for events in [few.events()] for _ in range(8)}) == 8


def test_a_host_that_is_asked_once_may_not_be_silent_forever():
    once = Follow("p", "r", ["w:0"], logs=True, lines=None, forever=False)
    assert Subscription(once).silence_s
    assert (
        Subscription(Follow(**{**vars(once), "forever": True})).silence_s is None
    )  # a task may write nothing


def test_leaving_the_context_ends_every_thread():
    before = threading.active_count()
    with following(200, lambda: None) as many:
        next(many.events())
    assert eventually(lambda: threading.active_count() <= before)


class LastAnswer(Stream):
    """A stream whose last answer is that to one more request, unless its agent hangs."""

    def __init__(self, first=lambda: None, *, hangs=False):
        super().__init__(first)
        self._hangs, self.next_answer = hangs, None

    def finish_with(self, request):
        if not self._hangs:
            self.next_answer = FreePorts([2222] * request.count)
            self.finish()


class Returning:
    """An agent that was lost, and answers again just when `finishing` is set."""

    def __init__(self, finishing):
        self.host, self._finishing, self._attempts = "lost", finishing, 0

    def stream(self, request, silence_s):
        self._attempts += 1
        if self._attempts == 1:
            raise Unreachable(self.host, "no answer")
        self._finishing.wait(60)
        return LastAnswer()


def follow_agents(*agents, times):
    request = Follow("p", "r", ["w:0"], logs=False, lines=None, forever=True)
    return Following({agent: Subscription(request) for agent in agents}, times=times)


def test_a_host_that_hangs_does_not_hold_up_the_last_answers_of_the_others():
    agents = [FakeAgent("well", None), FakeAgent("hung", None)]
    for agent in agents:
        stream = LastAnswer(hangs=agent.host == "hung")
        agent.stream = lambda request, silence_s, stream=stream: stream
    with follow_agents(*agents, times=FollowTimes(finish_s=2.0)) as two:
        events = two.events(time.monotonic() + 60)
        assert {next(events)[0] for _ in agents} == {"well", "hung"}
        answers, errors = two.finish_with({"well": Ports(1), "hung": Ports(1)})
    assert answers == {"well": FreePorts([2222])}
    assert [(type(error), error.host) for error in errors] == [(CommandTimedOut, "hung")]


def test_a_host_that_returns_while_the_streams_end_is_not_waited_for():
    finishing, times = threading.Event(), FollowTimes(retry_s=(0.0,), finish_s=5.0)
    with follow_agents(Returning(finishing), times=times) as one:
        one._finishing = finishing
        host, error = next(one.events(time.monotonic() + 60))
        assert isinstance(error, Unreachable)
        assert one.finish_with({host: Ports(1)}) == ({}, [])
