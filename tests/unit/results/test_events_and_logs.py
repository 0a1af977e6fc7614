"""Whose events are fetched."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from support.builders import make_plan

from tfdeploy.config.models import Trials
from tfdeploy.errors import AgentError
from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.hosts import agent_bundle
from tfdeploy.hosts.pipeline import RoundPart, run_rounds
from tfdeploy.results import events_and_logs
from tfdeploy.shared.event_records import EVENTS
from tfdeploy.shared.protocol.outputs import EventFiles

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2\nevaluator = true"


class Pipeline:
    """A pipeline to an agent that knows only these verbs."""

    agent = SimpleNamespace(host="w")

    def __init__(self, **answers):
        self.answers, self.requests = answers, []

    def send(self, request):
        self.requests.append((request.TAG, request.task))
        return SimpleNamespace(answer=lambda: self.answer(request))

    def answer(self, request):
        if request.TAG not in self.answers:
            raise AgentError("w", f"the agent failed: KeyError: {request.TAG!r}")
        return self.answers[request.TAG]


def make_run(tmp_path, agent):
    record = {"id": "r", "agent": agent, "plan": make_plan(HOSTS)}
    record["open"] = lambda: OwnFolder.at(tmp_path)
    return SimpleNamespace(**record, inventory=SimpleNamespace(project="p", trials=Trials()))


def fetch_events(pipeline, run):
    parts = [
        RoundPart(partial(events_and_logs.fetch_events, run=run, placement=p))
        for p in run.plan.placements_on("w")
        if events_and_logs.has_events(run, p)
    ]
    run_rounds(pipeline, parts)
    return sum(part.results[0].count for part in parts)


def test_only_the_chief_and_the_evaluator_are_asked_for_events(tmp_path, monkeypatch):
    folders = []

    def fetch(pipeline, source, dest, files):
        folders.append(dest.path)
        return SimpleNamespace(receive=dict)

    monkeypatch.setattr(events_and_logs, "FileFetch", fetch)
    pipeline = Pipeline(events=EventFiles({"/a": [EVENTS], "/b": [f"y/{EVENTS}", f"z/{EVENTS}"]}))
    run = make_run(tmp_path, agent_bundle.current_version())
    assert fetch_events(pipeline, run) == 6
    assert pipeline.requests == [("events", "worker:0"), ("events", "evaluator:0")]
    assert {*folders} == {tmp_path / "events", tmp_path / "events" / "evaluator-0"}


@pytest.mark.parametrize("name", ["x.html", f"{EVENTS}/x", f"../{EVENTS}"])
def test_a_host_that_names_another_file_is_refused(tmp_path, name):
    run = make_run(tmp_path, agent_bundle.current_version())
    with pytest.raises(AgentError, match="which is refused"):
        fetch_events(Pipeline(events=EventFiles({"/a": [name]})), run)


def test_an_error_of_an_agent_is_raised(tmp_path):
    run = make_run(tmp_path, agent_bundle.current_version())
    with pytest.raises(AgentError):
        fetch_events(Pipeline(), run)
