"""Whose events are fetched, also from the agent of an older version that started the run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfdeploy.agent.protocol.outputs import EventFiles
from tfdeploy.errors import AgentError
from tfdeploy.hosts import agent_bundle
from tfdeploy.transfer import artifacts
from unit.builders import make_plan

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2\nevaluator = true"


class Agent:
    """An agent that knows only these verbs."""

    host = "w"

    def __init__(self, **answers):
        self.answers, self.requests = answers, []

    def ask(self, request, timeout_s=60.0):
        self.requests.append((request.VERB, request.task))
        if request.VERB not in self.answers:
            raise AgentError(self.host, f"the agent failed: KeyError: {request.VERB!r}")
        return self.answers[request.VERB]


def make_run(tmp_path, agent):
    record = {"id": "r", "agent": agent, "folder": tmp_path, "plan": make_plan(HOSTS)}
    return SimpleNamespace(**record, inventory=SimpleNamespace(project="p"))


@pytest.fixture
def fetched(monkeypatch):
    fetched = []
    monkeypatch.setattr(artifacts, "fetch_files", lambda agent, *where: fetched.append(where))
    return fetched


def test_only_the_chief_and_the_evaluator_are_asked_for_events(tmp_path, fetched):
    agent = Agent(events=EventFiles({"/a": ["x"], "/b": ["y", "z"]}))
    run = make_run(tmp_path, agent_bundle.current_version())
    assert artifacts.fetch_events(agent, run, run.plan.placements_on("w")) == 6
    assert agent.requests == [("events", "worker:0"), ("events", "evaluator:0")]
    folders = {where[1] for where in fetched}
    assert folders == {tmp_path / "events", tmp_path / "events" / "evaluator-0"}


def test_an_error_of_an_agent_of_this_version_is_raised(tmp_path, fetched):
    run = make_run(tmp_path, agent_bundle.current_version())
    with pytest.raises(AgentError):
        artifacts.fetch_events(Agent(), run, run.plan.placements_on("w"))
