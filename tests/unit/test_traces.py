"""Of whose events is asked, and with which words: an agent that began a run may be an older one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfdeploy import bundle
from tfdeploy.errors import AgentError
from tfdeploy.steps import traces
from unit.made import plan

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2\nevaluator = true"


class Agent:
    """Answers as a host does whose agent knows these verbs."""

    host = "w"

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def ask(self, verb, body, timeout_s=60.0):
        self.asked.append((verb, body.get("task")))
        if verb not in self.answers:
            raise AgentError(self.host, f"the agent failed: KeyError: {verb!r}")
        return self.answers[verb]


def made(tmp_path, agent):
    record = {"id": "r", "agent": agent, "folder": tmp_path, "plan": plan(HOSTS)}
    return SimpleNamespace(**record, inventory=SimpleNamespace(project="p"))


@pytest.fixture
def brought(monkeypatch):
    found = []
    monkeypatch.setattr(traces, "bring", lambda agent, *where: found.append(where))
    return found


def test_the_chief_and_the_evaluator_are_asked_and_nobody_else(tmp_path, brought):
    agent = Agent(events={"folders": {"/a": ["x"], "/b": ["y", "z"]}})
    assert traces.events(agent, made(tmp_path, bundle.current_version())) == 6
    assert agent.asked == [("events", "worker:0"), ("events", "evaluator:0")]
    homes = {where[1] for where in brought}
    assert homes == {tmp_path / "events", tmp_path / "events" / "evaluator-0"}


def test_an_older_agent_tells_of_events_as_it_pins(tmp_path, brought):
    agent = Agent(pin={"checkpoint_dir": "/c", "events": ["x"]}, unpin={})
    assert traces.events(agent, made(tmp_path, "older")) == 2
    assert brought[0] == ("/c", tmp_path / "events", ["x"])
    assert ("unpin", "worker:0") in agent.asked


def test_what_goes_wrong_with_this_agent_is_told(tmp_path, brought):
    with pytest.raises(AgentError):
        traces.events(Agent(), made(tmp_path, bundle.current_version()))
