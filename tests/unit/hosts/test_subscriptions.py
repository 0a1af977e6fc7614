"""What a host that is followed may send, and where its stream continues."""

from __future__ import annotations

import pytest

from tfdeploy.errors import AgentError
from tfdeploy.hosts.following import Subscription
from tfdeploy.shared.protocol.reports import (
    Follow,
    LogLines,
    NewCheckpoint,
    StateChange,
)
from unit.branches.live.samples import sample, task_use
from unit.output.samples import make_report

FOREIGN = "it reported task 'ps:9', which is not one of its tasks"


class FakeAgent:
    host = "a"


def subscribe(**asked):
    fields = {"logs": True, "lines": None, "forever": True, **asked}
    return Subscription(Follow("p", "r", ["worker:0"], **fields))


@pytest.fixture
def events():
    return subscribe()


@pytest.fixture
def samples():
    return subscribe(samples=True, lines=50)


def test_a_log_continues_where_it_was(events):
    assert events.request().cursors is None
    assert not events.accept(FakeAgent, LogLines("worker:0", [], "1:0:0"))
    assert events.accept(FakeAgent, LogLines("worker:0", ["x"], "1:2:3"))
    assert events.request().cursors == {"worker:0": "1:2:3"}


def test_samples_continue_where_each_log_was(samples):
    assert samples.accept(FakeAgent, sample(task_use(), logs={"worker:0": ["x"]}))
    assert samples.request().cursors == {"worker:0": "1:2:3"}


@pytest.mark.parametrize(
    "event",
    [LogLines("ps:9", ["x"], "1"), StateChange(make_report(task="ps:9"))],
)
def test_an_event_of_a_foreign_task_is_refused(events, event):
    with pytest.raises(AgentError, match=FOREIGN):
        events.accept(FakeAgent, event)


@pytest.mark.parametrize("event", [sample(task_use("ps:9")), sample(logs={"ps:9": ["x"]})])
def test_a_sample_of_a_foreign_task_is_refused(samples, event):
    with pytest.raises(AgentError, match=FOREIGN):
        samples.accept(FakeAgent, event)


def test_a_checkpoint_needs_no_task(events):
    assert events.accept(FakeAgent, NewCheckpoint("model.ckpt-7"))


def test_a_host_that_sends_something_else_than_samples_is_refused(samples):
    with pytest.raises(AgentError, match=r"invalid answer: StateChange.*, expected HostSample"):
        samples.accept(FakeAgent, StateChange(make_report(task="worker:0")))
